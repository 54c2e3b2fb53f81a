from __future__ import annotations

import base64

import pytest
from kafka.errors import SaslAuthenticationFailedError
from kafka.net.sasl.scram import ScramClient

from changefeed.kafka import client_internals


def _offered(client: ScramClient, iterations: str) -> bytes:
    return b"r=" + client.nonce + b"more,s=" + base64.b64encode(b"salt") + f",i={iterations}".encode()


@pytest.mark.parametrize("iterations", ["1", "0", "4095", "0001"])
def test_scram_with_few_iterations_gets_no_proof_of_the_password(iterations: str) -> None:
    client = ScramClient("u", "p", "SCRAM-SHA-256")
    client.first_message()
    with pytest.raises(SaslAuthenticationFailedError, match=r"wants at least 4096: no proof of the password was sent"):
        client.process_server_first_message(_offered(client, iterations))
    assert client.client_proof is None


def test_scram_with_enough_iterations_is_answered() -> None:
    client = ScramClient("u", "p", "SCRAM-SHA-512")
    client.first_message()
    client.process_server_first_message(_offered(client, "4096"))
    assert client.final_message().startswith(b"c=biws,")
    assert SaslAuthenticationFailedError in client_internals.NOT_AUTHENTICATED, "no retry"
