"""The contract of `changefeed.model.checkpoint.CheckpointStore`, held by each store that there is.

Airflow's Variables are real ones, in Airflow's own database, reached through a process that has Airflow in it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from airflow_database import migrated

from changefeed.errors import CheckpointError, RetryableError, SettingsError, StaleCheckpointError
from changefeed.model.checkpoint import Checkpoint, CheckpointStore
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.state.table_store import TableCheckpointStore
from changefeed.state.variable_store import VariableCheckpointStore

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
        self._process.wait(30)
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
    return migrated(session_folder / "contract-airflow")


@pytest.fixture(scope="session")
def variables(airflow_env: dict[str, str]) -> Iterator[VariableProcess]:
    process = VariableProcess(airflow_env)
    yield process
    process.close()


@pytest.fixture(params=["table", "variable"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    if request.param == "table":
        return _table_kind(tmp_path / "state.db")
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


def test_what_was_stored_is_loaded(store: CheckpointStore, first: Checkpoint) -> None:
    store.advance(None, first)
    assert store.load(first.pipeline) == first
    store.advance(first, after(first))
    assert store.load(first.pipeline) == after(first)


def test_a_first_checkpoint_is_stored_only_where_there_is_none(store: CheckpointStore, first: Checkpoint) -> None:
    store.advance(None, first)
    with pytest.raises(StaleCheckpointError, match=r"from no checkpoint, found window 1 at binlog\.000007:157"):
        store.advance(None, after(first))
    assert store.load(first.pipeline) == first


def test_a_checkpoint_moves_only_from_what_is_stored(store: CheckpointStore, first: Checkpoint) -> None:
    second, third = after(first), after(first, 2, 200)
    store.advance(None, first)
    store.advance(first, second)
    with pytest.raises(StaleCheckpointError, match=r"from window 1 .*found window 2"):
        store.advance(first, third)
    assert store.load(first.pipeline) == second


def test_a_checkpoint_does_not_move_from_one_that_is_not_there(store: CheckpointStore, first: Checkpoint) -> None:
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


def test_another_process_loads_what_was_stored_and_goes_on_from_it(kind: Kind, first: Checkpoint) -> None:
    kind.store.advance(None, first)
    with kind.fresh() as other:
        assert other.load(first.pipeline) == first
        other.advance(first, after(first))
    assert kind.store.load(first.pipeline) == after(first)
    with pytest.raises(StaleCheckpointError):
        kind.store.advance(first, after(first))


def test_a_large_gtid_set_is_stored_whole(store: CheckpointStore, first: Checkpoint) -> None:
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
def test_what_cannot_be_read_is_an_error_and_never_a_beginning(kind: Kind, first: Checkpoint, text: str) -> None:
    kind.write(first.pipeline, text)
    with pytest.raises(CheckpointError, match="wanted a checkpoint as JSON"):
        kind.store.load(first.pipeline)
    with pytest.raises(CheckpointError):
        kind.store.advance(None, first)
    with pytest.raises(CheckpointError):
        kind.store.advance(first, after(first))
    with pytest.raises(CheckpointError, match="wanted a checkpoint as JSON"):
        kind.store.load(first.pipeline)


# --- the state table only: Airflow's Variables have no compare-and-set


def _advance(url: str, expected: Checkpoint | None, new: Checkpoint, ready: Any, won: Any) -> None:
    store = TableCheckpointStore(url)
    ready.wait()
    try:
        store.advance(expected, new)
    except StaleCheckpointError:
        won.put(0)
    else:
        won.put(new.coordinates.position)


@pytest.mark.parametrize("is_first", [True, False], ids=["first checkpoint", "next checkpoint"])
def test_of_processes_that_commit_at_once_exactly_one_wins(tmp_path: Path, first: Checkpoint, is_first: bool) -> None:
    url, writers = f"sqlite:///{tmp_path / 'state.db'}", 4
    expected = None if is_first else first
    if expected:
        TableCheckpointStore(url).advance(None, expected)
    processes = multiprocessing.get_context("spawn")
    ready, won = processes.Barrier(writers), processes.Queue()
    news = [after(first, position=100 + number) for number in range(writers)]
    workers = [processes.Process(target=_advance, args=(url, expected, new, ready, won)) for new in news]
    for worker in workers:
        worker.start()
    winners = [position for _ in workers if (position := won.get(timeout=60))]
    for worker in workers:
        worker.join()
    stored = TableCheckpointStore(url).load(first.pipeline)
    assert stored is not None
    assert winners == [stored.coordinates.position]


def test_of_threads_that_commit_at_once_exactly_one_wins_each_time(tmp_path: Path, first: Checkpoint) -> None:
    store = TableCheckpointStore(f"sqlite:///{tmp_path / 'state.db'}")
    store.advance(None, first)
    current = first
    for _ in range(20):
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
