"""A process that sleeps for longer than its lease fails when it continues; nothing is lost or repeated.

A process is stopped (SIGSTOP) before a write to the commit log, the schema history or the checkpoint store. Another
process takes over, and then the first continues.
"""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from typing import Any

import pytest
from airflow_database import create_database
from faults.feed import NOTHING_NEW, Feed, Run, in_order
from long_form import long

from changefeed.state.table_store import TableCheckpointStore

pytestmark = pytest.mark.timeout(600)

WRITE, CHECKPOINT = "before_log_write", "before_checkpoint_write"


def extended(*stages: str) -> list[Any]:
    """Parameters of stages that only the extended suite tests."""
    return [pytest.param(stage, marks=pytest.mark.extended) for stage in stages]


def put_to_sleep(run: Run) -> Run:
    """Stop ``run`` at its fault point, so that it no longer renews its lease; return it."""
    assert run.wait_until_held(), run.text()
    os.kill(run.process.pid, signal.SIGSTOP)
    return run


def require_failure_after_waking(run: Run) -> None:
    run.go_on()
    os.kill(run.process.pid, signal.SIGCONT)
    assert run.result() in (1, 2), run.text()
    assert re.search("FencedError|StaleCheckpointError", run.text()), run.text()


def checkpoint(feed: Feed) -> str:
    found = TableCheckpointStore(f"sqlite:///{feed.state}").load(feed.name)
    assert found is not None
    return str(found.coordinates)


def seek(feed: Feed, to: str) -> None:
    done = feed.fork_command("", "seek", feed.name, to, "--why", "a test", "--yes")
    assert done.result() == 0, done.text()


def repeats(feed: Feed) -> int:
    return sum(count - 1 for count in Counter(feed.ids()).values())


def require_progress(feed: Feed) -> None:
    feed.write(5)
    feed.run()
    assert feed.begin().result() == NOTHING_NEW


@pytest.mark.parametrize("stage", [f"{WRITE}:3", *extended(CHECKPOINT), *long(f"{WRITE}:1", f"{WRITE}:2")])
def test_run_that_slept_before_a_write_fails_after_another_run(feed: Feed, stage: str) -> None:
    feed.write(5)
    feed.run()
    feed.write(20)
    sleeper = put_to_sleep(feed.begin(stage))
    feed.write(20)
    feed.run()
    ids = feed.ids()
    require_failure_after_waking(sleeper)
    assert feed.ids() == ids
    require_progress(feed)
    feed.check()


@pytest.mark.extended
def test_begin_of_a_window_that_slept_leaves_the_window_that_was_begun_since(feed: Feed) -> None:
    feed.write(5)
    feed.run()
    feed.write(20)
    sleeper = put_to_sleep(feed.begin(f"{WRITE}:2"))
    feed.write(60)
    killed = feed.begin("after_transaction_commit:2")
    assert killed.wait_until_held(), killed.text()
    killed.kill()
    require_failure_after_waking(sleeper)
    require_progress(feed)
    feed.check()


@pytest.mark.extended
@pytest.mark.parametrize("stage", [f"{WRITE}:2", CHECKPOINT, *long(f"{WRITE}:1", f"{WRITE}:3")])
def test_run_that_slept_before_a_write_fails_after_a_seek(feed: Feed, stage: str) -> None:
    feed.write(5)
    feed.run()
    at, before = checkpoint(feed), len(feed.ids())
    feed.write(20)
    sleeper = put_to_sleep(feed.begin(stage))
    published = len(feed.ids()) - before
    seek(feed, at)
    require_failure_after_waking(sleeper)
    assert checkpoint(feed) == at
    require_progress(feed)
    assert repeats(feed) == published, "only the messages after the seek's target are repeated"


@pytest.mark.parametrize("stage", [f"{WRITE}:2", *extended(CHECKPOINT), *long(f"{WRITE}:1")])
def test_seek_that_slept_before_a_write_fails_after_a_run(feed: Feed, stage: str) -> None:
    start = feed.settings["start"]
    feed.write(5)
    feed.run()
    sleeper = put_to_sleep(feed.fork_command(stage, "seek", feed.name, start, "--why", "a test", "--yes"))
    feed.write(20)
    feed.run()
    ids, at = feed.ids(), checkpoint(feed)
    if stage == CHECKPOINT:  # the seek's record was written: the run began at its target
        sleeper.go_on()
        os.kill(sleeper.process.pid, signal.SIGCONT)
        assert sleeper.result() == 0, sleeper.text()
    else:
        require_failure_after_waking(sleeper)
    assert (feed.ids(), checkpoint(feed)) == (ids, at)
    require_progress(feed)
    if stage == CHECKPOINT:
        assert repeats(feed) > 0
    else:
        feed.check()


@pytest.mark.parametrize("stage", [f"{WRITE}:2", *long(f"{WRITE}:1")])
def test_prune_that_slept_before_a_write_forgets_nothing_that_was_published_since(feed: Feed, stage: str) -> None:
    table = f"`{feed.name}`.gone"
    feed.mysql.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY)", f"INSERT INTO {table} VALUES (1), (2), (3)")
    feed.run()
    feed.mysql.execute(f"DROP TABLE {table}")
    feed.run()
    sleeper = put_to_sleep(feed.fork_command(stage, "prune", feed.name))
    rows = ", ".join(f"({number})" for number in range(60))
    feed.mysql.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY)", f"INSERT INTO {table} VALUES {rows}")
    killed = feed.begin("before_seal")
    assert killed.wait_until_held(), killed.text()
    killed.kill()
    published = len(feed.records("gone"))
    require_failure_after_waking(sleeper)
    feed.run()
    assert len(feed.records("gone")) == published
    require_progress(feed)


@pytest.mark.extended
@pytest.mark.parametrize("options", [("--relearn", "{0}.accounts"), ("--unknown", "begin")], ids=["relearn", "unknown"])
def test_schema_command_that_slept_before_its_write_keeps_nothing_older(feed: Feed, options: tuple[str, ...]) -> None:
    feed.write(5)
    feed.run()
    arguments = [option.format(feed.name) for option in options]
    sleeper = put_to_sleep(feed.fork_command(WRITE, "schema", feed.name, *arguments))
    feed.mysql.execute(f"ALTER TABLE `{feed.name}`.accounts ADD COLUMN more INT")
    feed.write(0)
    feed.run()
    known = schema_history(feed)
    require_failure_after_waking(sleeper)
    assert schema_history(feed) == known


def schema_history(feed: Feed) -> Any:
    from changefeed.kafka.connection import KafkaConnection
    from changefeed.kafka.schema_log import SchemaLog
    from changefeed.model.topic_name import schema_history_topic

    return SchemaLog(KafkaConnection(feed.kafka.bootstrap), schema_history_topic(feed.name), feed.name).load()


@pytest.mark.extended
@pytest.mark.parametrize("stage", [f"{WRITE}:1", *long(f"{WRITE}:2", CHECKPOINT)])
def test_first_run_that_slept_does_not_begin_the_pipeline_again(feed: Feed, stage: str) -> None:
    feed.settings["start"] = "latest"
    feed.configure()
    sleeper = put_to_sleep(feed.begin(stage))
    feed.write(10)
    feed.run_until_current()
    feed.write(10)
    feed.run()
    ids = feed.ids()
    require_failure_after_waking(sleeper)
    assert feed.ids() == ids
    require_progress(feed)
    assert repeats(feed) == 0


@pytest.fixture
def with_variables(feed: Feed) -> Feed:
    """The feed with its checkpoint in an Airflow Variable, which has no compare-and-set."""
    create_database(feed.folder / "airflow")
    feed.settings["checkpoint"] = {"store": "variable"}
    feed.configure()
    return feed


@pytest.mark.extended
@pytest.mark.parametrize("is_first", [True, False], ids=["first checkpoint", "next checkpoint"])
def test_variable_that_is_written_too_late_moves_no_pipeline_back(with_variables: Feed, is_first: bool) -> None:
    feed = with_variables
    if is_first:
        feed.settings["start"] = "latest"
        feed.configure()
    feed.write(5)
    if not is_first:
        assert feed.fork_command("", "run", feed.name).result() == 0
        feed.write(5)
    sleeper = put_to_sleep(feed.fork_command(CHECKPOINT, "run", feed.name))
    for _ in range(2):
        feed.write(5)
        if is_first:
            feed.fork_command("", "run", feed.name).result()
            feed.write(5)
        done = feed.fork_command("", "run", feed.name)
        assert done.result() == 0, done.text()
    sleeper.go_on()
    os.kill(sleeper.process.pid, signal.SIGCONT)
    sleeper.result()
    feed.write(5)
    done = feed.fork_command("", "run", feed.name)
    assert done.result() == 0, done.text()
    if is_first:
        assert repeats(feed) == 0
        assert in_order(feed.records("accounts"))
    else:
        feed.check()


def test_run_asleep_before_first_message_publishes_nothing_after_schema_command(feed: Feed) -> None:
    """The command found no window that is published in part; the rows of one would have old and new columns."""
    feed.write(5)
    feed.run()
    feed.write(20)
    ids = feed.ids()
    sleeper = put_to_sleep(feed.begin("after_take_over"))
    done = feed.fork_command("", "schema", feed.name, "--relearn", f"{feed.name}.accounts")
    assert done.result() == 0, done.text()
    require_failure_after_waking(sleeper)
    assert feed.ids() == ids
    require_progress(feed)
    feed.check()
