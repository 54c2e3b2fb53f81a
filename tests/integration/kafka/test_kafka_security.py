"""Logins and certificates against a broker that asks for both, with librdkafka's names of options."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import pickle
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import kafka.errors
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from integration.kafka_wire import record_batch
from kafka import TopicPartition
from kafka.admin import ScramMechanism, UserScramCredentialUpsertion

from changefeed.errors import BrokerUnavailableError, ChangefeedError, SettingsError
from changefeed.kafka.commit_log.log import CommitLog
from changefeed.kafka.commit_log.snapshots import PauseRecord
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.fencing import fence
from changefeed.kafka.lease import Lease
from changefeed.kafka.topics import TopicSettings, commit_log_settings, ensure_topics
from changefeed.kafka.transactions import Transactions
from changefeed.model.password_source import PasswordSource
from changefeed.model.publish_settings import PublishSettings
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.port import LOCALHOST, free_port
from devstack.process import run_server

PASSWORD = "p%4w 0r=d&/ü;'"
_SETTINGS = PublishSettings(transaction_seconds=5, transaction_timeout_seconds=20)


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate that signs itself, for 127.0.0.1; and the same with its key, as a broker wants them."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(LOCALHOST))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    ).public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    authority, own = folder / "ca.pem", folder / "broker.pem"
    authority.write_bytes(certificate)
    own.write_bytes(secret + certificate)
    return authority, own


class Guarded:
    """A broker with a listener that wants TLS and a login."""

    def __init__(self, folder: Path) -> None:
        self.broker = KafkaBroker(folder, owner=ProcessId.own(), quick=True)
        self.port = free_port()

    def guard(self) -> None:
        """Restart it with that listener: its other ports are known once it has run."""
        self.authority, own = self_signed(self.broker.directory)
        node = json.loads((self.broker.directory / "node.json").read_text())
        plain, guarded = f"PLAINTEXT://{LOCALHOST}:{node['port']}", f"SASL_SSL://{LOCALHOST}:{self.port}"
        module = "org.apache.kafka.common.security.{}.{}LoginModule required"
        password = PASSWORD.replace("ü", r"\u00fc")  # as a .properties file has it
        self.broker.restart(
            {
                "listeners": f"{plain},{guarded},CONTROLLER://{LOCALHOST}:{node['controller_port']}",
                "advertised.listeners": f"{plain},{guarded}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL",
                "inter.broker.listener.name": "PLAINTEXT",
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
                "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{module.format('plain', 'Plain')} "
                f'user_changefeed="{password}";',
                "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{module.format('scram', 'Scram')};",
                # The broker's own check of tokens without a signature.
                "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": module.format("oauthbearer", "OAuthBearer")
                + ";",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": own.as_posix(),
            }
        )
        self.set_password("changefeed", PASSWORD)

    def set_password(self, user: str, password: str) -> None:
        """Set the password of ``user`` for SCRAM-SHA-512."""
        with KafkaConnection(self.broker.bootstrap).admin() as admin:
            admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_512, password)]
            )

    def uri(self, user: str) -> str:
        """The URI for logins of ``user`` by SCRAM-SHA-512, without a password."""
        options = {**self.connection("SCRAM-SHA-512").options, "sasl.username": user}
        del options["sasl.password"]
        return f"kafka://{LOCALHOST}:{self.port}/?{urlencode(options)}"

    def connection(self, mechanism: str = "PLAIN", **changed: str) -> KafkaConnection:
        options = {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": mechanism,
            "sasl.username": "changefeed",
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(self.authority),
        }
        options |= {name.replace("_", "."): value for name, value in changed.items()}
        return KafkaConnection(f"{LOCALHOST}:{self.port}", options, timeout_seconds=4)


@pytest.fixture(scope="module")
def guarded(session_folder: Path) -> Iterator[Guarded]:
    ours = Guarded(session_folder / "sasl-kafka")
    with run_server(ours.broker):
        ours.guard()
        yield ours


def _publish(connection: KafkaConnection, name: str, size_bytes: int = 100) -> None:
    ours = Transactions(connection, f"changefeed.{name}.0", _SETTINGS, [name])
    try:
        ours.take_over()
        ours.open()
        ours.send_batch(name, 0, *record_batch(range(10), value=bytes(size_bytes)))
        ours.flush(lambda: None)
        ours.commit("it")
    finally:
        ours.close()


def test_authority_as_pem_text_is_trusted_like_its_file(guarded: Guarded) -> None:
    options = {**guarded.connection().options, "ssl.ca.pem": guarded.authority.read_text()}
    del options["ssl.ca.location"]
    connection = replace(guarded.connection(), options=options)
    assert connection.broker_count() == 1
    assert "BEGIN" not in repr(connection)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_all_clients_log_in_over_tls(guarded: Guarded, mechanism: str, unique_name: str) -> None:
    connection, log = guarded.connection(mechanism), f"{unique_name}.log"
    connection.check_options()
    topics = {unique_name: TopicSettings(1, 1, {"max.message.bytes": str(20 << 20)}), log: commit_log_settings(1)}
    ensure_topics(connection, topics)
    with Lease(connection, log, unique_name, 5) as lease:
        attempt = fence(lease, 2)
        _publish(connection, unique_name)
        begun = time.process_time()
        _publish(connection, unique_name, 1 << 20)  # in many TLS records
        assert time.process_time() - begun < 10
    assert CommitLog(connection, log, unique_name).read().attempt == attempt


def _reported(guarded: Guarded, name: str, **options: str) -> Iterator[str]:
    """What each client says of a wrong option."""
    connection = guarded.connection(**options)
    for call in _calls(connection, name):
        begun = time.monotonic()
        with pytest.raises(ChangefeedError) as raised:
            call()
        assert isinstance(raised.value, SettingsError), raised.value
        assert time.monotonic() - begun < 60
        yield str(raised.value)


def _calls(connection: KafkaConnection, name: str) -> list[Callable[[], object]]:
    return [
        connection.broker_count,
        CommitLog(connection, name, name).read,
        lambda: CommitLog(connection, name, name).note(PauseRecord()),
        lambda: Lease(connection, name, name, 5).__enter__(),
        lambda: _publish(connection, name),
    ]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_wrong_password_is_an_error_of_each_client_without_the_password(
    guarded: Guarded, mechanism: str, unique_name: str
) -> None:
    for said in _reported(guarded, unique_name, mechanism=mechanism, sasl_password="pl4nted"):
        assert "refuses the login" in said
        assert "pl4nted" not in said


def test_untrusted_broker_certificate_is_an_error(guarded: Guarded, unique_name: str) -> None:
    for said in _reported(guarded, unique_name, ssl_ca_location="probe"):
        assert "certificate verify failed" in said
        assert "ssl.ca.location" in said


def _token(subject: str, lives_seconds: float) -> str:
    """An unsecured JSON Web Token, as Kafka's OAuthBearerUnsecuredValidatorCallbackHandler accepts it."""
    claims = {"sub": subject, "iat": time.time() - 60, "exp": time.time() + lives_seconds}
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    return "".join(base64.urlsafe_b64encode(part).decode().rstrip("=") + "." for part in parts)


_given: list[tuple[str, int, str]] = []


def _token_of(*, host: str, port: int, user: str) -> str:
    _given.append((host, port, user))
    return _token("changefeed", 600)


def _short_token_of(**_server: object) -> str:
    _given.append(("", 0, ""))
    return _token("changefeed", 3)


def _renewing(connection: KafkaConnection, file: Path) -> KafkaConnection:
    """``connection`` with the password in ``file``, as it arrives in a Spark worker."""
    source = PasswordSource("kafka_shop", ("cat", str(file)), timeout_seconds=60)
    options = {name: value for name, value in connection.options.items() if name != "sasl.password"}
    renewing = replace(connection, options=options, password_source=source, timeout_seconds=64)
    arrived: KafkaConnection = pickle.loads(pickle.dumps(renewing))
    return arrived


@pytest.mark.parametrize(
    "mechanism",
    ["OAUTHBEARER", *(pytest.param(name, marks=pytest.mark.extended) for name in ("PLAIN", "SCRAM-SHA-512"))],
)
def test_refused_login_with_a_renewed_password_can_be_retried_and_then_publishes(
    guarded: Guarded, mechanism: str, unique_name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "changefeed")
    file, is_token = tmp_path / "password", mechanism == "OAUTHBEARER"
    old, right = (_token("pl4nted", -20), _token("changefeed", 600)) if is_token else ("pl4nted", PASSWORD)
    connection = _renewing(guarded.connection(mechanism), file)
    ensure_topics(guarded.connection(), {unique_name: TopicSettings(1, 1, {})})
    file.write_text(old)
    for call in _calls(connection, unique_name):
        refused = r"refuses the login.*`passwords` of the site's file.*Run again"
        with pytest.raises(BrokerUnavailableError, match=refused) as raised:
            call()
        shown = "".join(traceback.format_exception(raised.value))
        assert old not in shown + caplog.text
    file.write_text(right)
    _publish(connection, unique_name)
    with connection.consumer() as consumer:
        assert consumer.end_offsets([TopicPartition(unique_name, 0)])[TopicPartition(unique_name, 0)] >= 10
    assert right not in caplog.text + repr(connection)


def test_each_connection_gets_a_password_of_its_own(guarded: Guarded) -> None:
    source = PasswordSource("kafka_shop", function=f"{__name__}._token_of")
    connection = guarded.connection("OAUTHBEARER", sasl_oauthbearer_extensions="logicalCluster=lkc-1,pool=p")
    connection = replace(connection, password_source=source)
    _given.clear()
    assert connection.broker_count() == 1
    once = len(_given)
    assert connection.broker_count() == 1
    assert once >= 1
    assert len(_given) == 2 * once
    assert set(_given) == {(LOCALHOST, guarded.port, "changefeed")}


@pytest.mark.parametrize(
    ("command", "error", "words"),
    [
        (("/no/such/program",), SettingsError, "cannot be started"),
        (("sh", "-c", "echo pl4nted; exit 3"), BrokerUnavailableError, "exit code 3"),
    ],
)
def test_failed_command_is_the_error_of_each_client(
    guarded: Guarded, command: tuple[str, ...], error: type[ChangefeedError], words: str, unique_name: str
) -> None:
    connection = replace(guarded.connection(), password_source=PasswordSource("kafka_shop", command))
    for call in _calls(connection, unique_name):
        with pytest.raises(error, match=f"'kafka_shop', .*{words}") as raised:
            call()
        assert "pl4nted" not in str(raised.value)


@pytest.mark.extended
def test_client_tries_again_after_a_refused_login(guarded: Guarded, tmp_path: Path) -> None:
    """kafka-python itself would raise the refusal at each later use of the broker."""
    file = tmp_path / "password"
    file.write_text(PASSWORD)
    connection = _renewing(guarded.connection("PLAIN"), file)
    with connection.consumer() as consumer:
        consumer.topics()
        file.write_text("pl4nted")
        manager = consumer._client._manager
        for open_connection in list(manager._conns.values()):  # as after a restart of the broker
            manager._net.call_soon_threadsafe(open_connection.close)
        with pytest.raises(kafka.errors.KafkaError):
            consumer.topics()
        file.write_text(PASSWORD)
        until = time.monotonic() + 240
        while True:
            try:
                consumer.topics()
            except kafka.errors.KafkaError:
                assert time.monotonic() < until
                time.sleep(0.2)
            else:
                break


@pytest.mark.extended
def test_open_connection_logs_in_again_with_a_new_token_before_its_token_expires(guarded: Guarded) -> None:
    source = PasswordSource("kafka_shop", function=f"{__name__}._short_token_of")
    connection = replace(guarded.connection("OAUTHBEARER"), password_source=source)
    _given.clear()
    with connection.consumer() as consumer:
        consumer.topics()
        once, until = len(_given), time.monotonic() + 240
        while len(_given) == once:
            assert time.monotonic() < until
            time.sleep(0.2)
        consumer.topics()
