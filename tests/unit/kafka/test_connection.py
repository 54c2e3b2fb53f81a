"""One set of options for two client libraries, and no secret shown."""

from __future__ import annotations

import pickle
import time

import pytest

from changefeed.errors import BrokerUnavailableError, SettingsError
from changefeed.kafka.commit_log import CommitLog
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.fencing import fence
from changefeed.kafka.log_record import AttemptRecord
from changefeed.publish_settings import PublishSettings
from devstack.port import free_port

_SECURE = {
    "security.protocol": "sasl_ssl",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "changefeed",
    "sasl.password": "hunter2",
    "ssl.ca.location": "ca.pem",
    "ssl.key.password": "hunter3",
    "ssl.endpoint.identification.algorithm": "none",
    "socket.keepalive.enable": "true",
}


def test_secrets_are_not_in_the_repr() -> None:
    shown = repr(KafkaConnection("127.0.0.1:9092", _SECURE)) + str(KafkaConnection("127.0.0.1:9092", _SECURE))
    assert "hunter" not in shown
    assert "SCRAM-SHA-512" in shown


def test_both_libraries_are_told_the_same() -> None:
    connection = KafkaConnection("one:9092, two:9092", _SECURE, timeout_seconds=3)
    ours = connection.librdkafka(linger_ms=5)
    assert (ours["bootstrap.servers"], ours["sasl.password"], ours["linger.ms"]) == ("one:9092, two:9092", "hunter2", 5)
    theirs = connection.kafka_python()
    assert theirs == {
        "bootstrap_servers": ["one:9092", "two:9092"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "changefeed",
        "sasl_plain_password": "hunter2",
        "ssl_cafile": "ca.pem",
        "ssl_password": "hunter3",
        "ssl_check_hostname": False,
        "bootstrap_timeout_ms": 3000,
        "request_timeout_ms": 3000,
    }


def test_a_connection_travels_to_spark_workers() -> None:
    connection = KafkaConnection("127.0.0.1:9092", _SECURE)
    assert pickle.loads(pickle.dumps(connection)) == connection


@pytest.mark.parametrize("name", ["transactional.id", "acks", "enable.idempotence", "bootstrap.servers"])
def test_what_the_guarantee_rests_on_is_no_option(name: str) -> None:
    with pytest.raises(SettingsError, match=name):
        KafkaConnection("127.0.0.1:9092", {name: "0"})


def test_an_option_that_librdkafka_does_not_know_is_named() -> None:
    with pytest.raises(SettingsError, match=r"no\.such\.option"):
        KafkaConnection("127.0.0.1:9092", {"no.such.option": "1"}).producer()


def test_a_security_option_that_one_library_cannot_follow_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"sasl\.oauthbearer\.method"):
        KafkaConnection("127.0.0.1:9092", {"sasl.oauthbearer.method": "oidc"}).kafka_python()


def test_a_wrong_address_is_told_in_bounded_time_and_quietly(capfd: pytest.CaptureFixture[str]) -> None:
    connection = KafkaConnection("127.0.0.1:9", timeout_seconds=0.3)
    calls = (
        connection.broker_count,
        CommitLog(connection, "changefeed.shop.commits", "shop").read,
        lambda: CommitLog(connection, "changefeed.shop.commits", "shop").keep(AttemptRecord("a")),
        lambda: fence(connection, "shop", 2, "changefeed.shop.commits"),
    )
    for call in calls:
        begun = time.monotonic()
        with pytest.raises(BrokerUnavailableError, match=r"127\.0\.0\.1:9"):
            call()
        assert time.monotonic() - begun < 4
    out, err = capfd.readouterr()
    assert "rdkafka" not in out + err


def test_a_transaction_is_shorter_than_the_brokers_patience() -> None:
    with pytest.raises(SettingsError, match="transaction_timeout_seconds"):
        PublishSettings(transaction_seconds=60, transaction_timeout_seconds=60)
    with pytest.raises(SettingsError, match="transaction_rows"):
        PublishSettings(transaction_rows=0)


def test_a_broker_that_is_not_there_is_told_with_what_each_address_met() -> None:
    closed = free_port()
    connection = KafkaConnection(f"127.0.0.1:{closed},no-such-host.invalid", timeout_seconds=1)
    with pytest.raises(BrokerUnavailableError, match=f"127.0.0.1:{closed}: .*refused, no-such-host.invalid: "):
        connection.broker_count()


def test_an_unknown_option_is_refused_without_a_broker() -> None:
    with pytest.raises(SettingsError, match=r"securty.protocol.*did you mean 'security.protocol'"):
        KafkaConnection("127.0.0.1:1", {"securty.protocol": "SSL"}).check_options()
