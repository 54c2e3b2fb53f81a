"""The contract of `changefeed.model.checkpoint.CheckpointStore`, held by each store that there is.

Airflow's Variables are real ones, in Airflow's own database, reached through a process that has Airflow in it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import kafka
import pytest
from airflow_database import create_database
from kafka.admin import ConfigResource, ConfigResourceType

from changefeed.errors import (
    BrokerUnavailableError,
    CheckpointError,
    RetryableError,
    SettingsError,
    StaleCheckpointError,
    TopicError,
)
from changefeed.kafka.checkpoint_log import CHECKPOINT, CheckpointLog, checkpoint_settings, record_key
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.log_keys import LogKeys
from changefeed.kafka.record_writer import RecordWriter
from changefeed.kafka.topics import ensure_topics
from changefeed.model.checkpoint import Checkpoint, CheckpointStore
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.topic_name import checkpoint_topic
from changefeed.state.kafka_store import KafkaCheckpointStore
from changefeed.state.table_store import TableCheckpointStore
from changefeed.state.variable_store import VariableCheckpointStore
from devstack.kafka import KafkaBroker

UUID, OTHER_UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4f22fb58-82db-22f2-af44-d91bba53a673"


class VariableProcess:
    """`Variables` of an Airflow, by a process of their own."""

    def __init__(self, env: dict[str, str]) -> None:
        reading, writing = os.pipe()
        script = Path(__file__).with_name("variable_process.py")
        self._process = subprocess.Popen(
            [sys.executable, str(script), str(writing)],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[writing],
            text=True,
        )
        os.close(writing)
        self._answers = os.fdopen(reading)

    def get(self, key: str) -> str | None:
        found: str | None = self._ask(["get", key])
        return found

    def set(self, key: str, value: str, description: str) -> None:
        self._ask(["set", key, value, description])

    def keys(self, prefix: str) -> list[str]:
        found: list[str] = self._ask(["keys", prefix])
        return found

    def delete(self, key: str) -> None:
        self._ask(["delete", key])

    def _ask(self, question: list[str]) -> Any:
        assert self._process.stdin is not None
        print(json.dumps(question), file=self._process.stdin, flush=True)
        return json.loads(self._answers.readline())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(120)
        self._answers.close()


@dataclass(frozen=True)
class Kind:
    """One kind of store over one place: ``fresh`` is a store as another process would open it."""

    store: CheckpointStore
    fresh: Callable[[], AbstractContextManager[CheckpointStore]]
    write: Callable[[str, str], None]
    """Puts a text where a pipeline's checkpoint is kept, past the store."""


@pytest.fixture(scope="session")
def airflow_env(session_folder: Path) -> dict[str, str]:
    return create_database(session_folder / "contract-airflow")


@pytest.fixture(scope="session")
def variables(airflow_env: dict[str, str]) -> Iterator[VariableProcess]:
    process = VariableProcess(airflow_env)
    yield process
    process.close()


@pytest.fixture(params=["table", "variable", "kafka"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    if request.param == "table":
        return _table_kind(tmp_path / "state.db")
    if request.param == "kafka":
        return _kafka_kind(request.getfixturevalue("kafka_broker").bootstrap)
    return _variable_kind(request.getfixturevalue("variables"), request.getfixturevalue("airflow_env"))


def _table_kind(path: Path) -> Kind:
    url = f"sqlite:///{path}"

    def write(pipeline: str, text: str) -> None:
        with sqlite3.connect(path) as database:
            database.execute("REPLACE INTO changefeed_checkpoint VALUES (?, 1, ?)", [pipeline, text])

    @contextmanager
    def fresh() -> Iterator[CheckpointStore]:
        yield TableCheckpointStore(url)

    return Kind(TableCheckpointStore(url), fresh, write)


def _variable_kind(variables: VariableProcess, env: dict[str, str]) -> Kind:
    @contextmanager
    def fresh() -> Iterator[CheckpointStore]:
        other = VariableProcess(env)
        try:
            yield VariableCheckpointStore(other)
        finally:
            other.close()

    def write(pipeline: str, text: str) -> None:
        variables.set(f"changefeed_checkpoint__{pipeline}", text, "")

    return Kind(VariableCheckpointStore(variables), fresh, write)


def _kafka_kind(bootstrap: str) -> Kind:
    def write(pipeline: str, text: str) -> None:
        topic = checkpoint_topic(pipeline)
        ensure_topics(KafkaConnection(bootstrap), {topic: checkpoint_settings()})
        with RecordWriter(KafkaConnection(bootstrap), topic) as writer:
            writer.write({record_key(pipeline, CHECKPOINT): text.encode()}, "to write past the store")

    @contextmanager
    def fresh() -> Iterator[CheckpointStore]:
        yield kafka_store(bootstrap)

    return Kind(kafka_store(bootstrap), fresh, write)


def kafka_store(bootstrap: str) -> CheckpointStore:
    return KafkaCheckpointStore(KafkaConnection(bootstrap))


@pytest.fixture
def store(kind: Kind) -> CheckpointStore:
    return kind.store


@pytest.fixture
def first(unique_name: str) -> Checkpoint:
    return Checkpoint(unique_name, 1, UUID, BinlogCoordinates("binlog.000007", 157), f"{UUID}:1-5", 1_700_000_000_000)


def after(checkpoint: Checkpoint, windows: int = 1, position: int = 100, file: str = "") -> Checkpoint:
    coordinates = BinlogCoordinates(file or checkpoint.coordinates.file, checkpoint.coordinates.position + position)
    return replace(checkpoint, window=checkpoint.window + windows, coordinates=coordinates)


def test_a_pipeline_that_never_ran_has_no_checkpoint(store: CheckpointStore, unique_name: str) -> None:
    assert store.load(unique_name) is None


def test_stored_checkpoint_is_loaded(store: CheckpointStore, first: Checkpoint) -> None:
    store.advance(None, first)
    assert store.load(first.pipeline) == first
    store.advance(first, after(first))
    assert store.load(first.pipeline) == after(first)


def test_a_first_checkpoint_is_stored_only_where_there_is_none(store: CheckpointStore, first: Checkpoint) -> None:
    store.advance(None, first)
    with pytest.raises(StaleCheckpointError, match=r"from no checkpoint, found window 1 at binlog\.000007:157"):
        store.advance(None, after(first))
    assert store.load(first.pipeline) == first


def test_checkpoint_advances_only_from_the_stored_checkpoint(store: CheckpointStore, first: Checkpoint) -> None:
    second, third = after(first), after(first, 2, 200)
    store.advance(None, first)
    store.advance(first, second)
    with pytest.raises(StaleCheckpointError, match=r"from window 1 .*found window 2"):
        store.advance(first, third)
    assert store.load(first.pipeline) == second


def test_advance_from_a_missing_checkpoint_is_refused(store: CheckpointStore, first: Checkpoint) -> None:
    with pytest.raises(StaleCheckpointError, match="found no checkpoint"):
        store.advance(first, after(first))
    assert store.load(first.pipeline) is None


@pytest.mark.parametrize(
    "changed", [{"gtids": ""}, {"committed_at_ms": 1}, {"server_uuid": OTHER_UUID}, {"window": 0}], ids=str
)
def test_any_difference_makes_the_expected_checkpoint_stale(
    store: CheckpointStore, first: Checkpoint, changed: dict[str, Any]
) -> None:
    store.advance(None, first)
    with pytest.raises(StaleCheckpointError):
        store.advance(replace(first, **changed), after(first))
    assert store.load(first.pipeline) == first


def test_a_second_commit_of_the_same_window_is_refused(store: CheckpointStore, first: Checkpoint) -> None:
    second = after(first)
    store.advance(None, first)
    store.advance(first, second)
    with pytest.raises(CheckpointError):
        store.advance(first, second)
    assert store.load(first.pipeline) == second


@pytest.mark.parametrize(
    ("window", "coordinates"),
    [(2, "binlog.000007:156"), (2, "binlog.000006:9999"), (1, "binlog.000007:200"), (0, "binlog.000008:4")],
)
def test_a_checkpoint_only_moves_forward(
    store: CheckpointStore, first: Checkpoint, window: int, coordinates: str
) -> None:
    store.advance(None, first)
    back = replace(first, window=window, coordinates=BinlogCoordinates.parse(coordinates))
    with pytest.raises(CheckpointError) as caught:
        store.advance(first, back)
    assert not isinstance(caught.value, StaleCheckpointError)
    assert store.load(first.pipeline) == first


def test_a_checkpoint_moves_on_into_a_file_whose_number_has_a_digit_more(
    store: CheckpointStore, first: Checkpoint
) -> None:
    last = replace(first, coordinates=BinlogCoordinates("binlog.999999", 900))
    next_one = replace(last, window=2, coordinates=BinlogCoordinates("binlog.1000000", 4))
    store.advance(None, last)
    store.advance(last, next_one)
    assert store.load(first.pipeline) == next_one


def test_a_window_without_an_event_may_end_where_it_began(store: CheckpointStore, first: Checkpoint) -> None:
    store.advance(None, first)
    store.advance(first, after(first, position=0))
    assert store.load(first.pipeline) == after(first, position=0)


def test_other_pipelines_are_not_touched(store: CheckpointStore, first: Checkpoint) -> None:
    others = [replace(first, pipeline=f"{first.pipeline}{end}", window=7) for end in ("0", "_", "-eu")]
    for other in others:
        store.advance(None, other)
    store.advance(None, first)
    store.advance(first, after(first))
    with pytest.raises(StaleCheckpointError):
        store.advance(first, after(first))
    assert [store.load(other.pipeline) for other in others] == others


def test_another_process_loads_the_stored_checkpoint_and_advances_it(kind: Kind, first: Checkpoint) -> None:
    kind.store.advance(None, first)
    with kind.fresh() as other:
        assert other.load(first.pipeline) == first
        other.advance(first, after(first))
    assert kind.store.load(first.pipeline) == after(first)
    with pytest.raises(StaleCheckpointError):
        kind.store.advance(first, after(first))


def test_large_gtid_set_is_stored_completely(store: CheckpointStore, first: Checkpoint) -> None:
    gtids = ",".join(f"{number:08x}-71ca-11e1-9e33-c80aa9429562:1-{number}" for number in range(1, 2000))
    store.advance(None, replace(first, gtids=gtids))
    found = store.load(first.pipeline)
    assert found is not None
    assert found.gtids == gtids


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", '"binlog.000007:157"', "{}", '{"pipeline": "p"}',
     '{"pipeline":"p","window":"x","server_uuid":"","coordinates":"b.000001:4","gtids":"","committed_at_ms":1}',
     '{"pipeline":"p","window":1,"server_uuid":"","coordinates":"b.1","gtids":"","committed_at_ms":1}'],
)  # fmt: skip
def test_unreadable_checkpoint_is_an_error_and_no_first_run(kind: Kind, first: Checkpoint, text: str) -> None:
    kind.write(first.pipeline, text)
    with pytest.raises(CheckpointError, match="expected a checkpoint as JSON"):
        kind.store.load(first.pipeline)
    with pytest.raises(CheckpointError):
        kind.store.advance(None, first)
    with pytest.raises(CheckpointError):
        kind.store.advance(first, after(first))
    with pytest.raises(CheckpointError, match="expected a checkpoint as JSON"):
        kind.store.load(first.pipeline)


# --- not of Airflow's Variables, which have no compare-and-set


Opened = tuple[Callable[[str], CheckpointStore], str]
"""A store as another process opens it, by its address."""


@pytest.fixture(params=["table", "kafka"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    if request.param == "table":
        return TableCheckpointStore, f"sqlite:///{tmp_path / 'state.db'}"
    return kafka_store, request.getfixturevalue("kafka_broker").bootstrap


def _advance(opened: Opened, expected: Checkpoint | None, new: Checkpoint, ready: Any, won: Any) -> None:
    store = opened[0](opened[1])
    ready.wait()
    try:
        store.advance(expected, new)
    except StaleCheckpointError:
        won.put(0)
    except BrokerUnavailableError:  # a broker rarely answers so to a commit that others fence: the outcome is not known
        won.put(new.coordinates.position if store.load(new.pipeline) == new else 0)
    else:
        won.put(new.coordinates.position)


@pytest.mark.parametrize("is_first", [True, False], ids=["first checkpoint", "next checkpoint"])
def test_of_processes_that_commit_at_once_exactly_one_wins(opened: Opened, first: Checkpoint, is_first: bool) -> None:
    store, writers = opened[0](opened[1]), 4
    expected = None if is_first else first
    if expected:
        store.advance(None, expected)
    processes = multiprocessing.get_context("spawn")
    ready, won = processes.Barrier(writers), processes.Queue()
    news = [after(first, position=100 + number) for number in range(writers)]
    workers = [processes.Process(target=_advance, args=(opened, expected, new, ready, won)) for new in news]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    winners = [position for _ in workers if (position := won.get(timeout=60))]
    stored = store.load(first.pipeline)
    assert stored is not None
    assert winners == [stored.coordinates.position]


def test_of_threads_that_commit_at_once_exactly_one_wins_each_time(opened: Opened, first: Checkpoint) -> None:
    store, rounds = opened[0](opened[1]), 20 if opened[0] is TableCheckpointStore else 3
    store.advance(None, first)
    current = first
    for _ in range(rounds):
        winners: list[Checkpoint] = []
        barrier = threading.Barrier(3)

        def commit(new: Checkpoint, barrier: threading.Barrier, winners: list[Checkpoint], old: Checkpoint) -> None:
            barrier.wait()
            try:
                store.advance(old, new)
            except StaleCheckpointError:
                return
            winners.append(new)

        news = [after(current, position=number) for number in (1, 2, 3)]
        threads = [threading.Thread(target=commit, args=(new, barrier, winners, current)) for new in news]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert winners == [store.load(first.pipeline)]
        current = winners[0]


def test_a_url_that_sqlalchemy_does_not_know_is_refused_without_its_password() -> None:
    with pytest.raises(SettingsError) as caught:
        TableCheckpointStore("nodialect://me:hush@host/database")
    assert "hush" not in str(caught.value)
    with pytest.raises(SettingsError) as caught:
        TableCheckpointStore("me:hush")
    assert "hush" not in str(caught.value)


def test_a_database_that_cannot_be_reached_may_be_tried_again(tmp_path: Path) -> None:
    with pytest.raises(RetryableError, match="Nothing was stored"):
        TableCheckpointStore(f"sqlite:///{tmp_path / 'missing' / 'state.db'}")


def test_schemas_are_kept_by_pipeline_and_the_last_copy_counts(kind: Kind, unique_name: str) -> None:
    other = f"{unique_name}_other"
    assert kind.store.load_schemas(unique_name) is None
    kind.store.save_schemas(unique_name, '{"tables": ["é"]}')
    kind.store.save_schemas(other, "{}")
    kind.store.save_schemas(unique_name, '{"tables": ["ü"]}')
    with kind.fresh() as fresh:
        assert fresh.load_schemas(unique_name) == '{"tables": ["ü"]}'
        assert fresh.load_schemas(other) == "{}"
    assert kind.store.load(unique_name) is None, "schemas are no checkpoint"


def test_pipelines_are_listed_and_a_removed_one_has_neither_checkpoint_nor_schemas(
    store: CheckpointStore, first: Checkpoint
) -> None:
    other = replace(first, pipeline=f"{first.pipeline}-other")
    for checkpoint in (other, first):
        store.advance(None, checkpoint)
        store.save_schemas(checkpoint.pipeline, "{}")
    ours = [name for name in store.pipelines() if name.startswith(first.pipeline)]
    assert ours == [first.pipeline, other.pipeline]
    for _ in range(2):  # a rename that was killed removes once more
        store.remove(first.pipeline, first)
    assert (store.load(first.pipeline), store.load_schemas(first.pipeline)) == (None, None)
    assert (store.load(other.pipeline), store.load_schemas(other.pipeline)) == (other, "{}")


def test_schemas_of_many_megabytes_and_checkpoint_are_stored_completely(kind: Kind, first: Checkpoint) -> None:
    text = random.Random(1).randbytes(3 << 20).hex()
    kind.store.advance(None, first)
    kind.store.save_schemas(first.pipeline, text)
    kind.store.advance(first, after(first))
    with kind.fresh() as fresh:
        assert fresh.load_schemas(first.pipeline) == text
        assert fresh.load(first.pipeline) == after(first)


# --- Kafka only


def test_kafka_that_does_not_answer_is_an_error_that_may_be_tried_again(first: Checkpoint) -> None:
    store = KafkaCheckpointStore(KafkaConnection("127.0.0.1:1", timeout_seconds=2))
    with pytest.raises(RetryableError):
        store.load(first.pipeline)
    with pytest.raises(RetryableError):
        store.advance(None, first)
    with pytest.raises(RetryableError):
        store.pipelines()


def test_topic_that_may_not_be_made_is_named_with_its_settings(kafka_broker: KafkaBroker, first: Checkpoint) -> None:
    store = KafkaCheckpointStore(KafkaConnection(kafka_broker.bootstrap), create_topics=False)
    assert store.load(first.pipeline) is None
    with pytest.raises(TopicError, match=r"\.checkpoint' \(1 partitions, cleanup.policy=compact"):
        store.advance(None, first)


def test_checkpoint_whose_earlier_records_kafka_deleted_is_an_error(
    kafka_broker: KafkaBroker, first: Checkpoint
) -> None:
    store = kafka_store(kafka_broker.bootstrap)
    store.advance(None, first)
    with KafkaConnection(kafka_broker.bootstrap).admin() as admin:
        topic = checkpoint_topic(first.pipeline)
        for policy in ("delete", "compact"):  # of a compacted topic Kafka deletes no records by request
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"cleanup.policy": policy})])
            if policy == "delete":
                admin.delete_records({kafka.TopicPartition(topic, 0): -1})
    with pytest.raises(CheckpointError, match="expected 0: Kafka has deleted"):
        store.load(first.pipeline)
    with pytest.raises(CheckpointError, match="expected 0: Kafka has deleted"):
        store.advance(None, first)


def test_checkpoint_that_another_principal_wrote_is_an_error_until_it_is_signed(
    kafka_broker: KafkaBroker, first: Checkpoint
) -> None:
    connection = KafkaConnection(kafka_broker.bootstrap)
    signing = replace(connection, log_keys=LogKeys(("a secret of the pipeline",)))
    KafkaCheckpointStore(connection).advance(None, first)
    store = KafkaCheckpointStore(signing)
    with pytest.raises(CheckpointError, match="it is not signed"):
        store.load(first.pipeline)
    CheckpointLog(signing, first.pipeline).sign(signing.log_keys)
    assert store.load(first.pipeline) == first
    store.advance(first, after(first))
    assert store.load(first.pipeline) == after(first)
