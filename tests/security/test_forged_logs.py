"""Forged records in a pipeline's commit log or schema history, with `commit_log.key` set."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from integration.followed import Followed
from kafka import KafkaAdminClient

from changefeed.errors import ChangefeedError, CheckpointError, SettingsError
from changefeed.kafka.commit_log.all_logs import read_commit_logs
from changefeed.kafka.commit_log.records import ClaimRecord, FirstRecord, SealRecord
from changefeed.kafka.log_keys import OLDEST_SECONDS, SIGNATURE, LogKeys
from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.model.topic_name import commit_log_topic, schema_history_topic
from changefeed.operations.sign import sign
from changefeed.pipeline.windows import read_freshness
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer

KEY, OTHER = "k" * 32, "o" * 32
KEYED = {"commit_log": {"key": {"environment": "LOG_KEY"}}}


@pytest.fixture
def fed(
    mysql_server: MysqlServer,
    mysql_follower: MysqlServer,
    kafka_broker: KafkaBroker,
    unique_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Followed]:
    """A pipeline with a key, one published window, and changes for another one."""
    monkeypatch.setenv("LOG_KEY", KEY)
    monkeypatch.setenv("OTHER_KEY", OTHER)
    pipeline = Followed(unique_name, mysql_server, mysql_follower, kafka_broker, tmp_path, KEYED)
    table = f"{unique_name}_a.orders"
    pipeline.source.execute(f"CREATE DATABASE {unique_name}_a", f"CREATE TABLE {table} (id INT PRIMARY KEY)")
    pipeline.publish()
    pipeline.source.execute(f"INSERT INTO {table} VALUES (1)")
    yield pipeline
    pipeline.drop()
    # otherwise `check` of another pipeline would report it
    with KafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap) as admin:
        admin.delete_topics([commit_log_topic(pipeline.name)])


Headers = list[tuple[str, bytes]]


def write(fed: Followed, key: bytes | None, value: bytes | None, headers: Headers, topic: str = "") -> None:
    producer = Producer({"bootstrap.servers": fed.kafka.bootstrap})
    producer.produce(topic or commit_log_topic(fed.name), value, key, 0, headers=headers)
    producer.flush(20)


def forged_seal(fed: Followed) -> SealRecord:
    """A seal that declares the next, unpublished window complete, without rows."""
    seals = fed.connections.commit_log().read().seals
    last = seals[max(seals)]
    (file, position, *_) = fed.source.execute("SHOW BINARY LOG STATUS")[0]
    head = replace(last.window.head, file=file, position=int(position))
    window = replace(last.window, number=last.window.number + 1, start=last.window.head, head=head)
    return SealRecord(replace(last, window=window))


def records(fed: Followed) -> list[KafkaRecord]:
    return fed.connections.commit_log().latest_records()


def test_a_forged_seal_skips_no_window(fed: Followed) -> None:
    topic, seal = commit_log_topic(fed.name), forged_seal(fed)
    key, value = seal.key(fed.name), seal.value()
    (genuine,) = [record for record in records(fed) if b'"seal",1' in (record.key or b"")]
    copied = list(genuine.headers)
    hostile = {
        "unsigned": [],
        "signed by another key": LogKeys((OTHER,)).headers(topic, key, value),
        "with the signature of another record": copied,
        "copied from another pipeline's log": LogKeys((KEY,)).headers("changefeed.other.commits", key, value),
    }
    for what, headers in hostile.items():
        write(fed, key, value, headers)
        with pytest.raises(CheckpointError, match="was not written by pipeline") as refused:
            fed.publish()
        assert "look at its ACLs" in str(refused.value), what
    write(fed, genuine.key, None, [])
    with pytest.raises(CheckpointError, match="was not written by pipeline"):
        fed.publish()


@pytest.mark.extended
def test_replayed_signed_record_is_refused(fed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    (genuine,) = [record for record in records(fed) if b'"progress"' in (record.key or b"") and record.value][:1]
    write(fed, genuine.key, genuine.value, list(genuine.headers))  # soon enough, it is equal to the record of a retry
    assert fed.connections.commit_log().read().progress
    monkeypatch.setattr("changefeed.kafka.log_keys.OLDEST_SECONDS", 1)
    time.sleep(max(0.0, 2 - (time.time() - int.from_bytes(dict(genuine.headers)[SIGNATURE][:8], "big") / 1000)))
    write(fed, genuine.key, genuine.value, list(genuine.headers))
    with pytest.raises(CheckpointError, match="an old record was written again"):
        fed.publish()
    assert OLDEST_SECONDS == 900


@pytest.mark.extended
def test_a_forged_schema_history_is_refused(fed: Followed) -> None:
    write(fed, b'["%s","schemas"]' % fed.name.encode(), b"{}", [], schema_history_topic(fed.name))
    with pytest.raises(ChangefeedError, match="was not written by pipeline"):
        fed.publish()


def test_foreign_records_are_logged_and_ignored(fed: Followed, caplog: pytest.LogCaptureFixture) -> None:
    claim = ClaimRecord("forged", 0, "somebody who never ends")
    strangers = [
        (None, b"1"),
        (b"not json", b"\xff"),
        (b"not json either", None),
        (b'["%s"]' % fed.name.encode(), b"1"),
        (b'{"a": 1}', b"1"),
        (b'["another","seal",9]', b"what?"),
        (claim.key(fed.name), claim.value()),
        (claim.key(fed.name), b"\x00"),
        (b'["%s","verify","x"]' % fed.name.encode(), b"what?"),
    ]
    for key, value in strangers:
        write(fed, key, value, [])
    with caplog.at_level(logging.WARNING):
        fed.publish()
    named = [record.getMessage() for record in caplog.records if "not the pipeline's" in record.getMessage()]
    assert len(named) == 1
    assert "look at its ACLs" in named[0]
    assert len(fed.connections.commit_log().foreign()) == 7
    assert max(fed.connections.commit_log().read().seals) == 2


@pytest.mark.extended
def test_foreign_records_are_ignored_if_no_key_is_set(fed: Followed) -> None:
    fed.configure()
    for key, value in ((None, b"1"), (b"not json", b"\xff"), (b'["another","seal",9]', b"what?")):
        write(fed, key, value, [])
    claim = ClaimRecord("forged", 0, "")
    write(fed, claim.key(fed.name), b"\x00", [])
    fed.publish()
    assert max(fed.connections.commit_log().read().seals) == 2
    write(fed, b'["%s","progress","%s_a.orders",0]' % (fed.name.encode(), fed.name.encode()), b"\x00", [])
    fed.source.execute(f"INSERT INTO {fed.name}_a.orders VALUES (2)")
    with pytest.raises(CheckpointError, match="only changefeed may write"):
        fed.publish()
    assert fed.name not in read_commit_logs(
        fed.connections.kafka, but="another"
    )  # it does not stop the first run of another pipeline


@pytest.mark.extended
def test_key_can_be_added_and_rotated(fed: Followed, unique_name: str) -> None:
    fed.configure()
    with pytest.raises(SettingsError, match="nothing to sign with"):
        sign(fed.connections)
    fed.publish()  # unsigned
    fed.source.execute(f"INSERT INTO {unique_name}_a.orders VALUES (2)")
    fed.configure(**KEYED)
    with pytest.raises(CheckpointError, match=f"`changefeed sign {unique_name}`"):
        fed.publish()
    done = sign(fed.connections)
    assert done.records == done.untrusted > 0
    assert sign(fed.connections).records <= 2  # of runs that started since
    fed.publish()
    other = {"commit_log": {"key": {"environment": "OTHER_KEY"}, "previous_keys": [{"environment": "LOG_KEY"}]}}
    fed.configure(**other)
    fed.source.execute(f"INSERT INTO {unique_name}_a.orders VALUES (3)")
    fed.publish()  # both keys are accepted
    done = sign(fed.connections)
    assert (done.records > 0, done.untrusted, done.schemas) == (True, 0, True)
    fed.configure(commit_log={"key": {"environment": "OTHER_KEY"}})
    fed.source.execute(f"INSERT INTO {unique_name}_a.orders VALUES (4)")
    fed.publish()
    state = fed.connections.commit_log().read()
    assert max(state.seals) == 5
    assert state.of(FirstRecord)
    fed.configure(**KEYED)
    with pytest.raises(CheckpointError, match="not of this record under"):
        fed.publish()


@pytest.mark.extended
def test_sign_does_not_change_when_windows_were_sealed(fed: Followed) -> None:
    fed.configure()
    fed.publish()
    before = read_freshness(fed.connections)
    time.sleep(2)
    fed.configure(**KEYED)
    assert sign(fed.connections).records > 0
    after = read_freshness(fed.connections)
    assert before is not None
    assert after == before


@pytest.mark.extended
def test_a_short_key_is_refused(fed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOG_KEY", "secret")
    with pytest.raises(SettingsError, match="openssl rand") as refused:
        fed.publish()
    assert "secret'" not in str(refused.value)
