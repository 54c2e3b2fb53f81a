"""Primary keys that the pipeline hides in its messages are not readable in the commit log or a task's XCom."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from faults.inline_spark import InlineSpark
from integration.followed import Followed

from changefeed.errors import SettingsError
from changefeed.kafka.commit_log.snapshots import SnapshotRecord
from changefeed.kafka.partition_reader import partition_reader
from changefeed.model.run_identity import snapshot_identity
from changefeed.model.topic_name import commit_log_topic
from changefeed.operations.check import check
from changefeed.operations.neighbours import Neighbours
from changefeed.pipeline.checkpoint_store import checkpoint_store
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.file import parse_pipeline
from changefeed.settings.requests.snapshot import SnapshotRequest
from changefeed.snapshot.planning import SnapshotPlan, plan_snapshot
from changefeed.snapshot.run import run_snapshot
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer

ROWS = 150


@pytest.fixture
def people(
    mysql_server: MysqlServer,
    mysql_follower: MysqlServer,
    kafka_broker: KafkaBroker,
    unique_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Followed]:
    monkeypatch.setenv("LONG", "s" * 32)
    monkeypatch.setenv("SHORT", "salt")
    pipeline = Followed(unique_name, mysql_server, mysql_follower, kafka_broker, tmp_path)
    table = f"{unique_name}_a.people"
    rows = ", ".join(f"('person{number:03d}@example.org', {number})" for number in range(ROWS))
    pipeline.source.execute(
        f"CREATE DATABASE {unique_name}_a",
        f"CREATE TABLE {table} (email VARCHAR(60) PRIMARY KEY, id INT NOT NULL UNIQUE)",
        f"INSERT INTO {table} VALUES {rows}",
    )
    yield pipeline
    pipeline.drop()


def configure(people: Followed, columns: dict[str, Any], **settings: Any) -> None:
    table = f"{people.name}_a.people"
    people.configure(start="snapshot", keys={table: ["id"]}, columns=columns, **settings)


def email(people: Followed) -> str:
    return f"{people.name}_a.people.email"


def make_plan(people: Followed) -> SnapshotPlan:
    store = checkpoint_store(PipelineConnections(people.pipeline, people.uris.__getitem__), cast(Any, None))
    request = SnapshotRequest.of({"pipeline": people.name, "chunk_rows": 20})
    return plan_snapshot(people.connections, store, request, snapshot_identity(people.name, "1"))


def snapshot(people: Followed) -> Iterator[SnapshotRecord]:
    plan = make_plan(people)
    xcom = json.dumps(plan.to_json())
    assert "@example.org" not in xcom
    yield from run_snapshot(InlineSpark(), people.connections, plan)


def read_commit_log_bytes(people: Followed) -> bytes:
    """All record values of the commit log, decompressed."""
    with partition_reader(people.connections.kafka, [(commit_log_topic(people.name), 0)], "to look") as reader:
        values = [record.value or b"" for record in reader.to_end(timeout_seconds=30)]
    return b"\n".join(zlib.decompress(value) if value.startswith(b"x") else value for value in values)


@pytest.mark.parametrize("hidden", ["masked", pytest.param("excluded", marks=pytest.mark.extended)])
def test_boundaries_of_a_hidden_primary_key_are_encrypted(people: Followed, hidden: str) -> None:
    if hidden == "masked":
        configure(people, {"mask": {email(people): {"hmac_sha256": {"environment": "LONG"}}}})
    else:
        configure(people, {"exclude": [email(people)]}, commit_log={"key": {"environment": "LONG"}})
    people.publish()
    next(snapshot(people))  # then it is killed
    ended = list(snapshot(people))
    assert ended[-1].finished
    assert sum(table.rows for table in ended[-1].tables) == ROWS
    assert ended[-1].tables[0].chunks > 2
    assert b'"bounds"' in read_commit_log_bytes(people)
    assert b"person" not in read_commit_log_bytes(people).replace(b"people", b"")


@pytest.mark.extended
@pytest.mark.parametrize("mask", [{"text": "***"}, {"hmac_sha256": {"environment": "SHORT"}}, None])
def test_snapshot_with_a_hidden_key_and_no_secret_is_refused(people: Followed, mask: dict[str, Any] | None) -> None:
    configure(people, {"mask": {email(people): mask}} if mask else {"exclude": [email(people)]})
    people.publish()
    with pytest.raises(SettingsError, match="readers of that topic would see them") as refused:
        make_plan(people)
    assert email(people) in str(refused.value)
    store = checkpoint_store(PipelineConnections(people.pipeline, people.uris.__getitem__), cast(Any, None))
    findings = map(str, check(people.connections, Neighbours({}, people.uris.__getitem__), lambda: store))
    assert any("WARN a snapshot would be refused" in line and email(people) in line for line in findings)
    assert b"person" not in read_commit_log_bytes(people).replace(b"people", b"")


def test_a_function_that_names_a_column_hides_it() -> None:
    transforms = [{"tables": "shop.*", "function": "drop_fields", "arguments": {"columns": ["Email"]}}]
    values = {"name": "shop", "source": {"connection": "m"}, "kafka": {"connection": "k"}, "transforms": transforms}
    pipeline = parse_pipeline(yaml.safe_dump(values), "pipeline.yaml")
    assert pipeline.hides("shop", "people", "email")
    assert not pipeline.hides("shop", "people", "id")
    assert not pipeline.hides("crm", "people", "email")


@pytest.mark.extended
def test_snapshot_with_a_changed_secret_is_refused(people: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(people, {"mask": {email(people): {"hmac_sha256": {"environment": "LONG"}}}})
    people.publish()
    next(snapshot(people))
    monkeypatch.setenv("LONG", "t" * 32)
    with pytest.raises(SettingsError, match="no secret of the pipeline decrypts it"):
        next(snapshot(people))
