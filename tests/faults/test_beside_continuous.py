"""Operations beside a continuous run: they go between two of its windows, and the run goes on rightly afterwards."""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from faults.conftest import run_for
from faults.existing_rows import reads, row_from_records
from faults.feed import NOTHING_NEW, TABLES, Feed, Run
from faults.test_continuous import (
    check_ended_by_handover,
    check_first_ones,
    checkpoint_window,
    handing_over,
    has_rows,
    is_committed,
    publish_rest,
    run_bounded,
    sealed,
    wait,
    write_until_held,
    writing,
)
from faults.test_parked import add_bad_table, check_once, parked, unpark
from faults.test_parked import write as write_bad
from faults.test_renamed import named
from faults.test_verify import connections_of
from integration.topic_rows import Rows, event_ids, select_rows, topic_rows
from long_form import long

from changefeed.kafka.commit_log.log import CommitLog
from changefeed.kafka.connection import KafkaConnection
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.topic_name import commit_log_topic
from changefeed.state.table_store import TableCheckpointStore

__all__ = ["handing_over"]  # fixtures

pytestmark = [pytest.mark.timeout(600), pytest.mark.extended]


def succeed(feed: Feed, *command: str, fault: str = "") -> str:
    done = feed.fork_command(fault, *command)
    assert done.result() == 0, done.text()
    return done.text()


@contextmanager
def beside_window(feed: Feed, run: Run, *command: str, stage: str = "") -> Iterator[Run]:
    """The command begins while ``run``, which is held there, publishes a window, and succeeds while it goes on. Rows
    are written until the end of the block. At a ``stage`` the command waits until the run has published further
    windows."""
    write_until_held(feed, run)
    begun = feed.fork_command(stage, *command)
    time.sleep(2)  # more than the time between two claims of the run, which is alive by the second one
    run.go_on()
    with writing(feed):
        if stage:
            assert begun.wait_until_held(), begun.text()
            check_goes_on(run)
            begun.go_on()
        assert begun.result() == 0, begun.text()
        yield begun


def check_goes_on(run: Run) -> None:
    """Wait until the run, for which rows are written, has published two windows that begin from now on."""
    number = sealed(run)[-1]
    wait(lambda: sealed(run)[-1] > number + 2, run)


@contextmanager
def killed_at(feed: Feed, stage: str, *command: str) -> Iterator[Run]:
    """The command is held at ``stage`` in the block, and killed after it."""
    held = feed.fork_command(stage, *command)
    assert held.wait_until_held(), held.text()
    try:
        yield held
    finally:
        held.kill()


def committed_head(feed: Feed) -> BinlogCoordinates:
    found = TableCheckpointStore(f"sqlite:///{feed.state}").load(feed.name)
    assert found is not None
    return found.coordinates


def has_bad_rows(feed: Feed) -> bool:
    return topic_rows(feed.records("bad")) == select_rows(feed.mysql, feed.name, "bad")


def begin_parked(feed: Feed, fault: str = "") -> Run:
    """A continuous run that leaves the table `bad` out, whose error is gone."""
    marker = add_bad_table(feed)
    run_for(feed, "10m")
    write_bad(feed)
    run = feed.begin(fault)
    wait(lambda: has_rows(feed) and parked(feed) != [], run)
    marker.unlink()
    return run


def begin_published(feed: Feed, fault: str = "") -> Run:
    """A continuous run that has published and committed what there was."""
    run_for(feed, "10m")
    feed.write(3)
    run = feed.begin(fault)
    wait(lambda: is_committed(feed, run), run)
    return run


def check_unparked(feed: Feed, run: Run) -> None:
    """Check that the run publishes the table again, and that all its changes are there once."""
    assert parked(feed) == []
    feed.mysql.execute(f"UPDATE `{feed.name}`.bad SET version = version + 1")
    wait(lambda: has_rows(feed) and has_bad_rows(feed), run)
    run.kill()
    run_bounded(feed)
    check_once(feed)


def test_an_unpark_goes_between_two_windows_which_publish_the_table_again(continuous: Feed) -> None:
    feed = continuous
    run = begin_parked(feed, "before_seal:4")
    with beside_window(feed, run, "unpark", feed.name):
        feed.mysql.execute(f"UPDATE `{feed.name}`.bad SET version = version + 1")
    check_unparked(feed, run)


@pytest.mark.long
def test_an_unpark_that_skips_changes_goes_between_two_windows(continuous: Feed) -> None:
    feed = continuous
    run = begin_parked(feed, "before_seal:4")
    with beside_window(feed, run, "unpark", feed.name, "--skip-changes"):
        pass
    feed.mysql.execute(f"INSERT INTO `{feed.name}`.bad VALUES (500, 1, 'new')")
    wait(lambda: len(feed.records("bad")) == 1, run)
    run.kill()
    run_bounded(feed)


@pytest.mark.parametrize(
    "stage", ["after_transaction_commit:2", "after_unpark_window", "before_seal", *long("in_decode", "after_unpark")]
)
def test_a_run_goes_on_after_an_unpark_that_is_killed(continuous: Feed, stage: str) -> None:
    feed = continuous
    run = begin_parked(feed)
    with writing(feed):
        with killed_at(feed, stage, "unpark", feed.name):
            feed.mysql.execute(f"UPDATE `{feed.name}`.bad SET version = version + 1")
        number = sealed(run)[-1]
        wait(lambda: sealed(run)[-1] > number + 1, run)
        assert len(parked(feed)) == (stage != "after_unpark")
        if stage != "after_unpark":
            moved = unpark(feed, fault="after_unpark_move")  # windows left the table out meanwhile
            assert moved.wait_until_held(), moved.text()
            moved.kill()
            succeed(feed, "unpark", feed.name)
    check_unparked(feed, run)


SNAPSHOT = ("--run-id", "first", "--chunk-rows", "5")
"""Options of a snapshot in several rounds."""


def begin_after_rows(feed: Feed, fault: str = "") -> tuple[Run, dict[str, Rows]]:
    """A continuous run that begins after the existing rows of the tables; the run and these rows."""
    feed.write(60)
    feed.settings["start"] = feed.mysql.head()
    existing = {table: select_rows(feed.mysql, feed.name, table) for table in TABLES}
    run_for(feed, "10m")
    run = feed.begin(fault)
    return run, existing


def is_read(record: Any) -> bool:
    """Whether the record is of a snapshot."""
    return record.value is not None and json.loads(record.value)["op"] == "r"


def check_read_once(feed: Feed, run: Run, existing: dict[str, Rows]) -> None:
    """Let the run publish everything and end it. Check that each change is there once, in order with the rows of the
    snapshot, and that the topics have all rows of the tables."""

    def is_published(table: str) -> bool:
        changes = [record for record in feed.records(table) if not is_read(record)]
        return topic_rows(changes, existing[table]) == select_rows(feed.mysql, feed.name, table)

    wait(lambda: all(map(is_published, TABLES)), run)
    run.kill()
    publish_rest(feed)
    for table in TABLES:
        records = feed.records(table)
        assert max(Counter(event_ids(records)).values()) == 1, f"{table}: published twice"
        assert is_published(table)
        rows = row_from_records(records).values()
        assert sorted(map(str, rows)) == sorted(map(str, select_rows(feed.mysql, feed.name, table).values())), table
    inserted_before = {row["id"] for row in existing["journal"].values()}  # which no change publishes
    assert inserted_before <= {row["id"] for row in reads(feed, "journal")}


def test_a_snapshot_goes_between_windows_which_publish_changes_of_its_rows(continuous: Feed) -> None:
    """Windows are published also between the read of its second round of rows and their publication."""
    feed = continuous
    run, existing = begin_after_rows(feed, "before_seal:4")
    with beside_window(feed, run, "snapshot", feed.name, *SNAPSHOT, stage="after_decode:2"):
        check_goes_on(run)
    check_read_once(feed, run, existing)


@pytest.mark.long
@pytest.mark.parametrize("stage", ["in_open_transaction", "after_transaction_commit:2", "after_decode:2"])
def test_a_run_goes_on_after_a_snapshot_that_is_killed(continuous: Feed, stage: str) -> None:
    feed = continuous
    run, existing = begin_after_rows(feed)
    with writing(feed):
        with killed_at(feed, stage, "snapshot", feed.name, *SNAPSHOT):
            time.sleep(1)
        check_goes_on(run)
        succeed(feed, "snapshot", feed.name, *SNAPSHOT)
        check_goes_on(run)
    check_read_once(feed, run, existing)


def backfill_of_all(feed: Feed, suffix: str) -> tuple[str, ...]:
    """A backfill of the binlog from the pipeline's start to the head."""
    ends = ("--from", str(feed.settings["start"]), "--to", feed.mysql.head())
    return ("backfill", feed.name, *ends, "--suffix", suffix, "--run-id", "again")


def end_transactions_soon(feed: Feed) -> None:
    """Let the broker abort the transaction of a process that hangs after five seconds, and processes commit earlier."""
    times = {"transaction_seconds": 2, "transaction_timeout_seconds": 5}
    feed.settings["kafka"] = {"connection": "kafka_faults", "transaction_rows": 40, "lease_seconds": 2, **times}
    feed.configure()


def check_published_again(feed: Feed, run: Run, again: set[str], suffix: str) -> None:
    """End the run and publish the rest. Check that the events ``again`` are there twice, all others once, and that no
    change is missing."""
    run.kill()
    publish_rest(feed)
    topics = {f"{table}{ending}" for table in TABLES for ending in ("", suffix)}
    counts = Counter(event for topic in topics for event in event_ids(feed.records(topic)))
    assert max(counts.values()) == 2
    assert {event for event, count in counts.items() if count == 2} == again
    check_first_ones(feed)
    if suffix:
        feed.check()


@pytest.mark.parametrize("suffix", [".replay", *long("")])
def test_a_backfill_publishes_a_range_again_beside_windows(continuous: Feed, suffix: str) -> None:
    feed = continuous
    run = begin_published(feed, "before_seal:4")
    again, command = set(feed.ids()), backfill_of_all(feed, suffix)
    with beside_window(feed, run, *command, stage="before_seal"):
        check_goes_on(run)
    check_published_again(feed, run, again, suffix)


@pytest.mark.long
def test_a_backfill_does_not_wait_for_a_window_that_is_published_meanwhile(continuous: Feed) -> None:
    feed = continuous
    run = begin_published(feed, "before_seal:4")
    again, command = set(feed.ids()), backfill_of_all(feed, suffix="")
    write_until_held(feed, run)
    succeed(feed, *command)
    run.go_on()
    with writing(feed):
        check_goes_on(run)
    check_published_again(feed, run, again, suffix="")


@pytest.mark.long
@pytest.mark.parametrize("stage", ["in_open_transaction", "after_transaction_commit", "before_seal"])
def test_a_run_goes_on_beside_a_backfill_that_is_killed(continuous: Feed, stage: str) -> None:
    feed = continuous
    end_transactions_soon(feed)
    run = begin_published(feed)
    again, command = set(feed.ids()), backfill_of_all(feed, suffix="")
    with writing(feed):
        with killed_at(feed, stage, *command):
            check_goes_on(run)
        check_goes_on(run)
        succeed(feed, *command)
        check_goes_on(run)
    check_published_again(feed, run, again, suffix="")


def run_renamed(feed: Feed, new: str) -> None:
    """Publish for some seconds with a continuous run under the new name, and then the rest; check that each change is
    there once."""
    with writing(feed):
        succeed(feed, "run", new, "--max-seconds", "4")
    named(feed, new, beside=True, windows=None)
    while (done := feed.fork_command("", "run", new)).result() == 0:
        pass
    assert done.result() == 3, done.text()
    feed.check()


def check_ended_by_rename(run: Run, new: str) -> None:
    assert run.result() == 0, run.text()
    assert f"was renamed to '{new}'" in run.text()


def rename_in_yaml(feed: Feed) -> tuple[str, str]:
    return feed.name, named(feed, f"{feed.name}-new")


def test_a_rename_goes_between_two_windows_and_ends_the_run_in_order(continuous: Feed) -> None:
    feed = continuous
    run = begin_published(feed, "before_seal:4")
    old, new = rename_in_yaml(feed)
    with beside_window(feed, run, "rename", old, new):
        check_ended_by_rename(run, new)
    log = CommitLog(KafkaConnection(feed.kafka.bootstrap), commit_log_topic(old), old)
    assert {entry.kind for entry in log.entries()} <= {"renamed", "attempt", "takeover", "lease"}
    run_renamed(feed, new)


@pytest.mark.long
def test_a_rename_of_an_idle_pipeline_ends_its_run_in_order(continuous: Feed) -> None:
    feed = continuous
    run = begin_published(feed)
    old, new = rename_in_yaml(feed)
    succeed(feed, "rename", old, new)
    feed.write(1)  # otherwise the run would notice it within a minute
    check_ended_by_rename(run, new)
    run_renamed(feed, new)


def run_until_renamed(feed: Feed) -> str:
    """Rename the pipeline beside a run in a terminal, which ends with success; return the new name."""
    run_for(feed, "60s")
    run = feed.fork_command("", "run", feed.name)
    with writing(feed):
        wait(lambda: "committed window" in run.text(), run)
    old, new = rename_in_yaml(feed)
    succeed(feed, "rename", old, new)
    feed.write(1)  # otherwise the run would notice it within a minute
    check_ended_by_rename(run, new)
    return new


def test_a_rename_ends_a_run_in_a_terminal_with_success(continuous: Feed) -> None:
    run_renamed(continuous, run_until_renamed(continuous))


@pytest.mark.long
def test_a_run_in_a_terminal_that_a_rename_ended_takes_no_snapshot(continuous: Feed) -> None:
    continuous.settings["start"] = "snapshot"
    run_until_renamed(continuous)


@pytest.mark.parametrize(
    "stage",
    [
        "before_log_write",
        "after_rename_mark",
        *long("after_rename_log", "after_rename_checkpoint", "before_checkpoint_removal"),
    ],
)
def test_a_rename_that_is_killed_beside_a_run_loses_nothing(continuous: Feed, stage: str) -> None:
    feed = continuous
    run = begin_published(feed)
    old, new = rename_in_yaml(feed)
    with writing(feed):
        with killed_at(feed, stage, "rename", old, new):
            time.sleep(1)
        if stage == "before_log_write":  # nothing was changed, so the run goes on
            number = sealed(run)[-1]
            wait(lambda: sealed(run)[-1] > number, run)
        else:
            check_ended_by_rename(run, new)
        succeed(feed, "rename", old, new)
        check_ended_by_rename(run, new)
    run_renamed(feed, new)


def test_a_checkpoint_that_is_lost_is_recovered_beside_a_run(continuous: Feed) -> None:
    feed = continuous
    run = begin_published(feed, "before_seal:4")
    store = TableCheckpointStore(f"sqlite:///{feed.state}")
    store.remove(feed.name, store.load(feed.name))
    with beside_window(feed, run, "recover", feed.name) as recover:
        assert "the checkpoint was none" in recover.text()
        number = checkpoint_window(feed)
        wait(lambda: checkpoint_window(feed) > number, run)
    run.kill()
    run_bounded(feed)


KEYS = {name: {"environment": f"CHANGEFEED_KEY_{name}"} for name in ("OLD", "NEW")}


@pytest.fixture
def signing(handing_over: Feed, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Feed:
    """A feed with a store of checkpoints, whose commit log may be signed with either of two keys."""
    feed = handing_over
    for secret in KEYS.values():
        key = secrets.token_hex(32)
        monkeypatch.setenv(secret["environment"], key)
        feed.environment[secret["environment"]] = key
    if request.param == "kafka":
        feed.settings["checkpoint"] = {"store": "kafka"}
    return feed


def set_keys(feed: Feed, key: str = "", *previous: str) -> None:
    feed.settings["commit_log"] = {"key": KEYS[key], "previous_keys": [KEYS[each] for each in previous]} if key else {}
    feed.configure()


def begin_signed(feed: Feed, key: str, fault: str = "") -> Run:
    """A continuous run that has published what there was, and signs with ``key``, or not at all."""
    set_keys(feed, key)
    feed.write(3)
    run = feed.begin(fault)
    wait(lambda: has_rows(feed), run)
    return run


def check_signed(feed: Feed, key: str) -> None:
    """Check that ``key`` alone has signed all, and that each change is published once under it."""
    set_keys(feed, key)
    state = connections_of(feed).commit_log().read()  # raises an error for a record that is not signed with the key
    assert state.seals
    feed.write(3)
    publish_rest(feed)
    feed.check()


@pytest.mark.parametrize("signing", ["table", *long("kafka")], indirect=True)
@pytest.mark.parametrize("before", ["OLD", *long("")])
def test_a_sign_with_a_new_key_ends_the_run_in_order(signing: Feed, before: str) -> None:
    """The run has the keys that it began with. It may write no record that the next run would refuse."""
    feed = signing
    run = begin_signed(feed, before, "before_seal:4")
    set_keys(feed, "NEW", *([before] if before else []))
    with beside_window(feed, run, "sign", feed.name):
        assert run.result() == 0, run.text()
    assert "has taken over" in run.text()
    check_signed(feed, "NEW")


@pytest.mark.parametrize("signing", ["table"], indirect=True)
def test_a_run_goes_on_after_a_sign_with_its_own_key(signing: Feed) -> None:
    feed = signing
    set_keys(feed, "OLD")
    feed.write(3)
    publish_rest(feed)
    run_for(feed, "10m")
    set_keys(feed, "NEW", "OLD")
    feed.write(3)
    run = feed.begin("before_seal:3")
    with beside_window(feed, run, "sign", feed.name):
        number = sealed(run)[-1]
        wait(lambda: sealed(run)[-1] > number + 2, run)
    wait(lambda: has_rows(feed), run)
    run.kill()
    check_signed(feed, "NEW")


@pytest.mark.parametrize("signing", ["table"], indirect=True)
@pytest.mark.parametrize("before", ["", *long("OLD")])
@pytest.mark.parametrize("stage", ["after_sign_takeover", *long("before_log_write:1", "before_log_write:2")])
def test_a_sign_that_is_killed_beside_a_run_is_ended_by_another_one(signing: Feed, before: str, stage: str) -> None:
    feed = signing
    run = begin_signed(feed, before)
    set_keys(feed, "NEW", *([before] if before else []))
    with writing(feed):
        with killed_at(feed, stage, "sign", feed.name):
            pass
        time.sleep(3)
        succeed(feed, "sign", feed.name)
        assert run.result() == 0, run.text()
    check_signed(feed, "NEW")


@pytest.mark.parametrize("signing", ["table"], indirect=True)
@pytest.mark.parametrize("before", ["OLD", *long("")])
def test_a_sign_of_an_idle_pipeline_ends_its_run_in_order(signing: Feed, before: str) -> None:
    feed = signing
    run = begin_signed(feed, before)
    time.sleep(1)
    set_keys(feed, "NEW", *([before] if before else []))
    succeed(feed, "sign", feed.name)
    feed.write(1)  # otherwise the run would notice it within a minute
    assert run.result() == 0, run.text()
    check_signed(feed, "NEW")


@pytest.mark.parametrize("bound", ["--until", *long("--max-bytes")])
def test_a_run_in_a_terminal_that_ends_at_a_position_takes_over(handing_over: Feed, bound: str) -> None:
    """As a run of the DAG with these parameters does."""
    feed = handing_over
    older = begin_published(feed, "after_plan:12")
    write_until_held(feed, older)  # otherwise it publishes before the other run is planned
    before, begin = set(feed.ids()), feed.mysql.head()
    feed.write(5)
    until = feed.mysql.head()
    feed.write(5)
    position = {
        "--until": until,
        "--max-bytes": str(int(until.partition(":")[2]) - int(begin.partition(":")[2])),
    }
    succeed(feed, "run", feed.name, bound, position[bound])
    older.go_on()
    check_ended_by_handover(older)
    seals = connections_of(feed).commit_log().read().seals
    head = str(seals[max(seals)].window.head)
    assert head == until or bound == "--max-bytes"
    assert head != feed.mysql.head()
    assert checkpoint_window(feed) == max(seals)
    assert before < set(feed.ids())
    run_bounded(feed)


def test_a_position_that_a_continuous_run_passes_meanwhile_leaves_that_run_alone(handing_over: Feed) -> None:
    feed = handing_over
    older = begin_published(feed, "after_plan:12")
    write_until_held(feed, older)
    feed.write(5)
    until = feed.mysql.head()
    bounded = feed.fork_command("after_plan", "run", feed.name, "--until", until)
    assert bounded.wait_until_held(), bounded.text()
    older.go_on()
    wait(lambda: committed_head(feed) >= BinlogCoordinates.parse(until), older)  # else the bounded run commits it
    bounded.go_on()
    assert bounded.result() == NOTHING_NEW, bounded.text()
    assert "nothing new before" in bounded.text()
    feed.write(5)
    wait(lambda: has_rows(feed), older)
    older.kill()
    run_bounded(feed)


def test_a_run_in_a_terminal_that_is_bounded_beside_a_busy_one_commits_what_it_seals(handing_over: Feed) -> None:
    feed = handing_over
    older, log = begin_published(feed), connections_of(feed).commit_log()
    before = log.last_takeover()
    with writing(feed):
        while log.last_takeover() == before:  # it takes over only if there are new changes when it is planned
            bounded = feed.fork_command("", "run", feed.name, "--max-bytes", "1")
            assert bounded.result() in (0, NOTHING_NEW), bounded.text()
        assert bounded.result() == 0, bounded.text()
        check_ended_by_handover(older)
    seals = connections_of(feed).commit_log().read().seals
    assert checkpoint_window(feed) == max(seals)
    assert f"committed window {max(seals)}" in bounded.text()
    run_bounded(feed)


@pytest.mark.long
def test_an_early_position_of_a_run_in_a_terminal_leaves_the_continuous_run_alone(handing_over: Feed) -> None:
    feed = handing_over
    older, start = begin_published(feed), str(feed.settings["start"])
    with writing(feed):
        while (refused := feed.fork_command("", "run", feed.name, "--until", start)).result() == NOTHING_NEW:
            pass
        assert refused.result() in (0, 1), refused.text()  # 0 if windows were sealed and not committed
        number = sealed(older)[-1]
        wait(lambda: sealed(older)[-1] > number + 1, older)
    older.kill()
    run_bounded(feed)
