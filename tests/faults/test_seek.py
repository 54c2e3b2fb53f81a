"""Seeks while windows are unfinished, and seeks that die: what is repeated is counted, and no pipeline is stuck."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from both_settings import on_both_settings
from faults.feed import NOTHING_NEW, Feed, Runner

from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.process import run_server
from devstack.spark_connect import SparkConnectServer

pytestmark = pytest.mark.timeout(600)


def kill_run_at(feed: Feed, stage: str) -> None:
    run = feed.begin(stage)
    assert run.wait_until_held(), run.text()
    run.kill()


def seek(feed: Feed, to: str, *more: str) -> Any:
    done = feed.command("seek", feed.name, to, "--why", "a test", "--json", *more)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def checkpoint(feed: Feed) -> str:
    found = json.loads(feed.command("status", feed.name, "--json").stdout)
    return str((found[0] if isinstance(found, list) else found)["checkpoint"])


def bytes_of(start: str, end: str) -> int:
    """The bytes between two coordinates of one file."""
    assert start.partition(":")[0] == end.partition(":")[0]
    return int(end.partition(":")[2]) - int(start.partition(":")[2])


def count_repeats(feed: Feed) -> int:
    """How many messages are in Kafka more than once."""
    return sum(count - 1 for count in Counter(feed.ids()).values())


@pytest.mark.extended
def test_seek_counts_repeats_of_a_sealed_uncommitted_window(feed: Feed) -> None:
    feed.write(5)
    feed.run()
    start = checkpoint(feed)
    feed.write(10)
    kill_run_at(feed, "after_seal")
    published = len(feed.ids())
    planned = seek(feed, start, "--plan")
    (window,) = planned["unfinished"]
    assert (window["number"], window["sealed"], window["start"]) == (2, True, start)
    assert planned["repeated_bytes"] == bytes_of(start, window["head"])
    assert "sealed and not committed" in planned["effect"]
    done = seek(feed, start, "--yes")
    assert (done["discarded"], done["repeated_bytes"]) == ([2], planned["repeated_bytes"])
    feed.run()
    assert len(feed.ids()) == published + count_repeats(feed)
    messages = sum(len(feed.records(table)) for table in ("accounts", "journal"))
    feed.write(5)
    feed.run()
    assert sum(len(feed.records(table)) for table in ("accounts", "journal")) > messages, "it goes on"


@pytest.mark.extended
def test_a_seek_counts_the_messages_of_a_window_that_is_half_published(feed: Feed) -> None:
    feed.write(5)
    feed.run()
    start, before = checkpoint(feed), len(feed.ids())
    feed.write(60)
    kill_run_at(feed, "after_transaction_commit:2")
    given = sum(len(feed.records(table)) for table in ("accounts", "journal")) - before
    planned = seek(feed, start, "--plan")
    (window,) = planned["unfinished"]
    assert not window["sealed"]
    assert window["messages"] > 0
    assert 0 < planned["repeated_bytes"] <= bytes_of(start, window["head"])
    assert window["messages"] >= given
    seek(feed, start, "--yes")
    feed.run()
    assert 0 < count_repeats(feed) <= window["messages"], "no more than was said"


@on_both_settings
def test_unfinished_window_is_finished_before_a_seek_without_repeats(
    feed: Feed, spark_connect: SparkConnectServer
) -> None:
    feed.write(5)
    feed.run()
    feed.write(60)
    kill_run_at(feed, "after_transaction_commit:2")
    feed.write(5)
    feed.use_connect(spark_connect.url)
    given_up, finished = seek(feed, "latest", "--plan"), seek(feed, "latest", "--plan", "--finish")
    end = given_up["unfinished"][0]["head"]
    assert "given up" in given_up["effect"]
    assert "is published and committed first" in finished["effect"]
    assert "given up" not in finished["effect"]
    assert finished["skipped_bytes"] == bytes_of(end, finished["to"]) < given_up["skipped_bytes"]
    assert finished["undo"] == end
    done = seek(feed, end, "--yes", "--finish")
    assert (done["before"], done["to"], done["discarded"]) == (end, end, [])
    assert (done["skipped_bytes"], done["repeated_bytes"]) == (0, 0)
    feed.run_until_current()
    feed.check()


@pytest.mark.extended
@on_both_settings
@pytest.mark.parametrize("forwards", [True, False], ids=["forwards", "back"])
def test_a_seek_that_dies_before_it_moves_the_checkpoint_is_ended_by_the_next_run(feed: Feed, forwards: bool) -> None:
    start = feed.settings["start"]
    feed.write(5)
    feed.run()
    feed.write(5)
    target = seek(feed, "latest", "--plan")["to"] if forwards else start
    first = len(feed.ids())
    dying = feed.begin_command("in_checkpoint_write", "seek", feed.name, target, "--why", "a test", "--yes")
    assert dying.wait_until_held(), dying.text()
    dying.kill()
    if forwards:
        assert feed.begin().result() == NOTHING_NEW, "all was skipped"
        assert len(feed.ids()) == first
        assert checkpoint(feed) == target
    else:
        feed.run()
        assert count_repeats(feed) == first, "from the start again, and all of it"
    feed.write(5)
    feed.run()
    assert feed.begin().result() == NOTHING_NEW


@pytest.mark.long
@pytest.mark.extended
def test_store_restored_to_before_a_seek_continues_after_the_seek(feed: Feed) -> None:
    feed.write(5)
    feed.run()
    backup, start = feed.state.read_bytes(), feed.settings["start"]
    seek(feed, start, "--yes")
    feed.write(5)
    feed.run()
    ids = feed.ids()
    feed.state.write_bytes(backup)
    feed.run()
    assert feed.ids() == ids
    feed.write(5)
    feed.run()
    assert len(feed.ids()) > len(ids)
    assert count_repeats(feed) == len(ids) - len(set(ids))


@pytest.mark.long
@pytest.mark.extended
def test_seek_back_over_a_statement_that_changed_no_columns_reads_it_again(feed: Feed) -> None:
    """The schema history is not stored for TRUNCATE, and has a later ALTER."""
    feed.write(5)
    feed.run()
    start = checkpoint(feed)
    feed.mysql.execute(f"CREATE TABLE `{feed.name}`.later (id INT PRIMARY KEY)")
    feed.run()
    feed.mysql.execute(
        f"INSERT INTO `{feed.name}`.later VALUES (1)",
        f"TRUNCATE TABLE `{feed.name}`.later",
        f"INSERT INTO `{feed.name}`.later VALUES (2)",
    )
    feed.run()
    feed.mysql.execute(f"ALTER TABLE `{feed.name}`.later ADD n INT", f"INSERT INTO `{feed.name}`.later VALUES (3, 3)")
    feed.run()
    first = len(feed.records("later"))
    seek(feed, start, "--yes")
    feed.run_until_current()
    assert len(feed.records("later")) == 2 * first
    feed.write(5)
    feed.run()


@pytest.mark.extended
def test_a_window_of_an_old_run_is_refused_and_later_seals_stay(feed: Feed) -> None:
    """As when a failed task is cleared in Airflow's page after other runs."""
    feed.write(5)
    planned = json.loads(feed.command("plan", feed.name, "--json").stdout)["window"]
    feed.write(5)
    feed.run()
    feed.write(5)
    feed.run()
    seals = feed.command("windows", feed.name, "--json").stdout
    ids = feed.ids()
    run = feed.begin(windows=[planned])
    assert run.result() == 2
    assert "StaleCheckpointError" in run.text()
    assert feed.command("windows", feed.name, "--json").stdout == seals
    assert feed.ids() == ids


@pytest.mark.extended
def test_seek_without_checkpoint_compares_with_commit_log(feed: Feed, spark_connect: SparkConnectServer) -> None:
    feed.use_connect(spark_connect.url)
    feed.write(5)
    feed.run()
    end = checkpoint(feed)
    feed.state.unlink()
    assert "nothing is skipped or repeated" in seek(feed, end, "--plan")["effect"]
    feed.write(5)
    planned = seek(feed, "latest", "--plan")
    assert planned["skipped_bytes"] == bytes_of(end, planned["to"])
    assert f"by the seal of window 1 all up to {end} is published" in planned["effect"]
    assert "will never be published" in planned["effect"]
    assert planned["undo"] == end


@pytest.mark.extended
def test_seek_over_purged_reset_or_other_binlog_says_what_is_known_without_undo(
    kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner
) -> None:
    with run_server(MysqlServer(tmp_path / "own", owner=ProcessId.own(), quick=True)) as server:
        feed = Feed(unique_name, server, kafka_broker, tmp_path, runner)
        feed.write(20)
        feed.run()
        position_before = checkpoint(feed)
        for _ in range(2):
            feed.write(5)
            server.execute("FLUSH BINARY LOGS")
        (oldest, *_) = server.execute("SHOW BINARY LOG STATUS")[0]
        server.execute(f"PURGE BINARY LOGS TO '{oldest}'")
        feed.write(1)
        planned = seek(feed, "latest", "--plan")
        assert (planned["repeated_bytes"], planned["undo"]) == (0, None)
        file, _, position = position_before.partition(":")
        assert f"at least {planned['skipped_bytes']:,} bytes of binlog in {oldest}, among them" in planned["effect"]
        assert f"what was in {file} from {position} to the end of file" in planned["effect"]
        refused = feed.begin()
        assert refused.result() == 2
        done = feed.command("seek", feed.name, "latest", "--why", "purged", "--yes")
        assert "undo" not in done.stdout, done.stdout
        server.execute("RESET BINARY LOGS AND GTIDS")
        feed.write(1)
        planned = seek(feed, "latest", "--plan")
        assert (planned["skipped_bytes"], planned["repeated_bytes"], planned["undo"]) == (0, 0, None)
        assert "is not known: the server's binlog" in planned["effect"]
        seek(feed, "latest", "--yes")
        server.stop()
        (server.data / "auto.cnf").unlink()  # the server makes itself a new server_uuid
        server.start()
        done = feed.command("seek", feed.name, "latest", "--why", "another server", "--yes")
        assert "the checkpoint moves to another server" in done.stdout
        assert "undo" not in done.stdout, done.stdout
