"""Addresses and options of a cluster: librdkafka's names, followed or refused, and no secret shown."""

from __future__ import annotations

import pickle
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import kafka.errors
import pytest

from changefeed.errors import BrokerUnavailableError, SettingsError
from changefeed.kafka.client_internals import PatchedClient
from changefeed.kafka.commit_log.log import CommitLog
from changefeed.kafka.commit_log.snapshots import PauseRecord
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.lease import Lease
from changefeed.kafka.refusal import refusal_error, write_error
from changefeed.model.password_source import PasswordSource
from changefeed.model.publish_settings import PublishSettings
from devstack.port import free_port

_SECURE = {
    "security.protocol": "sasl_ssl",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "changefeed",
    "sasl.password": "hunter2",
    "ssl.key.password": "hunter3",
    "ssl.endpoint.identification.algorithm": "none",
    "socket.keepalive.enable": "true",
}


def test_secrets_are_not_in_the_repr() -> None:
    shown = repr(KafkaConnection("127.0.0.1:9092", _SECURE)) + str(KafkaConnection("127.0.0.1:9092", _SECURE))
    assert "hunter" not in shown
    assert "SCRAM-SHA-512" in shown


def test_options_reach_the_client_under_its_own_names() -> None:
    settings = KafkaConnection("one:9092, two:9092", _SECURE, timeout_seconds=3).kafka_python()
    context = settings.pop("ssl_context")
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_REQUIRED)
    assert dict(_SECURE)["socket.keepalive.enable"] == "true"
    assert len(settings.pop("socket_options")) == 2
    assert settings.pop("kafka_client") is PatchedClient
    assert settings == {
        "bootstrap_servers": ["one:9092", "two:9092"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "changefeed",
        "sasl_plain_password": "hunter2",
        "bootstrap_timeout_ms": 3000,
        "request_timeout_ms": 3000,
    }


def _checked(options: dict[str, str]) -> None:
    KafkaConnection("127.0.0.1:1", options).check_options()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sasl.login.callback": "oidc"}, r"'sasl\.login\.callback' of the Kafka connection is not supported"),
        ({"ssl.keystore.location": "x.p12"}, r"'ssl\.keystore\.location'"),
        ({"securty.protocol": "SSL"}, r"securty\.protocol.*did you mean 'security\.protocol'"),
        ({"no.such.option": "1"}, r"no\.such\.option"),
        ({"linger.ms": "5"}, r"kafka-python, has no such option.*linger\.ms"),
        ({"retry.backoff.max.ms": "5"}, r"no such option.*did you mean 'retry\.backoff\.ms'"),
        ({"security.protocol": "sasl-ssl"}, r"'sasl-ssl'.*did you mean 'SASL_SSL'"),
        ({"security.protocol": "SASL_SSL"}, r"is missing, 'sasl\.mechanism'"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTH"}, "'OAUTH', expected one of PLAIN"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}, "a token that expires.*`passwords`"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, r"'sasl\.username', 'sasl\.password'"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/no/such.pem"}, r"ssl\.ca\.location.*No such file"),
        ({"security.protocol": "SSL", "ssl.ca.pem": "hunter2"}, r"ssl\.ca\.pem of the Kafka connection cannot be used"),
        ({"security.protocol": "SSL", "ssl.ca.location": "-----BEGIN hunter2"}, r"is PEM text.*'ssl\.ca\.pem'"),
        ({"security.protocol": "SSL", "ssl.ca.pem": "-----BEGIN hunter2"}, r"ssl\.ca\.pem .* cannot be used"),
        ({"security.protocol": "SSL", "ssl.key.pem": "-----BEGIN hunter2", "ssl.key.location": "x"}, "contradict"),
        ({"security.protocol": "SSL", "ssl.certificate.pem": "-----BEGIN hunter2"}, r"ssl\.certificate\..*cannot be"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "no"}, "expected https or none"),
        ({"security.protocol": "SSL", "enable.ssl.certificate.verification": "no"}, "expected true or false"),
        ({"security.protocol": "SSL", "ssl.cipher.suites": "none such"}, r"ssl\.cipher\.suites"),
        (
            {"ssl.ca.location": "/ca.pem"},
            r"would do nothing, 'sasl\.password': without 'security\.protocol' all is sent",
        ),
        ({"socket.timeout.ms": "soon"}, "'soon', expected a whole number"),
    ],
)
def test_an_option_that_cannot_be_followed_is_refused_without_a_broker(options: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError, match=words) as raised:
        _checked({"sasl.password": "hunter2", **options} if "sasl.mechanism" not in options else options)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "logs in nowhere: its 'security.protocol' is PLAINTEXT"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "with a ticket instead of a password"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, r"logs in with \['sasl\.username'\]"),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.extensions": "hunter2",
            },
            r"'sasl\.oauthbearer\.extensions', expected name=value",
        ),
    ],
)
def test_entry_in_passwords_without_a_matching_login_is_refused(options: dict[str, str], words: str) -> None:
    source = PasswordSource("kafka_shop", ("true",))
    with pytest.raises(SettingsError, match=words) as raised:
        KafkaConnection("127.0.0.1:1", options, password_source=source).check_options()
    assert "hunter2" not in str(raised.value)


def test_unloadable_certificate_is_an_error_without_its_password(tmp_path: Path) -> None:
    (tmp_path / "mine.pem").write_text("no certificate")
    options = {"ssl.certificate.location": str(tmp_path / "mine.pem"), "ssl.key.password": "hunter3"}
    with pytest.raises(SettingsError, match=r"ssl\.certificate\.location, ssl\.key\.location") as raised:
        _checked({"security.protocol": "SSL", **options})
    assert "hunter" not in str(raised.value)


def test_switching_the_check_of_certificates_off_is_followed() -> None:
    options = {"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"}
    context = KafkaConnection("127.0.0.1:1", options).kafka_python()["ssl_context"]
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_NONE)


def test_a_connection_travels_to_spark_workers() -> None:
    connection = KafkaConnection("127.0.0.1:9092", _SECURE)
    assert pickle.loads(pickle.dumps(connection)) == connection


@pytest.mark.parametrize("name", ["transactional.id", "acks", "enable.idempotence", "bootstrap.servers"])
def test_settings_of_the_guarantee_are_no_options(name: str) -> None:
    with pytest.raises(SettingsError, match=name):
        KafkaConnection("127.0.0.1:9092", {name: "0"})


def test_wrong_address_is_an_error_in_bounded_time_without_log(capfd: pytest.CaptureFixture[str]) -> None:
    connection = KafkaConnection("127.0.0.1:9", timeout_seconds=0.3)
    calls = (
        connection.broker_count,
        CommitLog(connection, "changefeed.shop.commits", "shop").read,
        lambda: CommitLog(connection, "changefeed.shop.commits", "shop").note(PauseRecord()),
        lambda: Lease(connection, "changefeed.shop.commits", "shop", 1).__enter__(),
    )
    for call in calls:
        begun = time.monotonic()
        with pytest.raises(BrokerUnavailableError, match=r"127\.0\.0\.1:9"):
            call()
        assert time.monotonic() - begun < 60
    out, err = capfd.readouterr()
    assert "kafka" not in out + err


def test_transaction_seconds_are_below_the_brokers_timeout() -> None:
    with pytest.raises(SettingsError, match="transaction_timeout_seconds"):
        PublishSettings(transaction_seconds=60, transaction_timeout_seconds=60)
    with pytest.raises(SettingsError, match="transaction_rows"):
        PublishSettings(transaction_rows=0)


def test_unreachable_broker_error_lists_each_address() -> None:
    closed = free_port()
    connection = KafkaConnection(f"127.0.0.1:{closed},no-such-host.invalid", timeout_seconds=1)
    with pytest.raises(BrokerUnavailableError, match=f"127.0.0.1:{closed}: .*refused, no-such-host.invalid: "):
        connection.broker_count()


_CLOSE_NOTIFY, _HANDSHAKE_FAILURE = bytes([21, 3, 3, 0, 2, 1, 0]), bytes([21, 3, 3, 0, 2, 2, 40])
"""TLS alerts."""


@contextmanager
def _answering(answer: bytes) -> Iterator[str]:
    """The address of a server that reads the begin of each connection, sends ``answer`` and closes the connection."""

    def serve() -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            client.settimeout(5)
            with client, suppress(OSError):  # a client that has given up may send nothing, and be closed later
                client.recv(1 << 16)
                client.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("answer", [b"", _CLOSE_NOTIFY])
def test_connection_closed_during_the_tls_handshake_may_pass(answer: bytes) -> None:
    """As a proxy does, and a broker that is about to restart."""
    with _answering(answer) as address:
        connection = KafkaConnection(address, {"security.protocol": "SSL"}, timeout_seconds=0.5)
        with pytest.raises(BrokerUnavailableError, match=f"{address} closed the connection during the TLS handshake"):
            connection.broker_count()


@pytest.mark.parametrize("answer", [_HANDSHAKE_FAILURE, b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_tls_that_the_broker_refuses_is_a_wrong_setting(answer: bytes) -> None:
    with _answering(answer) as address:
        connection = KafkaConnection(address, {"security.protocol": "SSL"}, timeout_seconds=0.5)
        with pytest.raises(SettingsError, match="do not agree on TLS"):
            connection.broker_count()


@pytest.mark.parametrize(
    "error",
    [
        kafka.errors.KafkaConnectionError("Handshake failed: [SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred"),
        kafka.errors.KafkaConnectionError(ssl.SSLZeroReturnError(6, "TLS/SSL connection has been closed (EOF)")),
        kafka.errors.KafkaTimeoutError("SASL Authentication timed out"),
    ],
)
def test_connection_lost_during_a_login_is_not_a_refused_login(error: kafka.errors.KafkaError) -> None:
    assert isinstance(refusal_error(error, "127.0.0.1:9092", 1), BrokerUnavailableError)
    assert isinstance(write_error(error, "127.0.0.1:9092", "to publish"), BrokerUnavailableError)
