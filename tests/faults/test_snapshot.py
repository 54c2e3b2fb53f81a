"""A snapshot beside a writer and the pipeline's own runs: topics end as the source is, each row once and in order."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import time
from collections import Counter
from typing import Any

import pytest
from both_settings import on_both_settings
from faults.conftest import LONG
from faults.existing_rows import (
    ROWS,
    Writer,
    begin,
    check_equal,
    finish,
    prepare,
    reads,
    row_from_records,
    snapshot_beside_runs,
    wait_for,
)
from faults.feed import Feed, Run, processes_of
from integration.topic_rows import event_ids, select_rows
from long_form import long
from seeds import choose_seed

from devstack.spark_connect import SparkConnectServer

KILLS = LONG // 4 or 3
"""50 in the long form."""

pytestmark = pytest.mark.timeout(900 + 120 * KILLS)


@on_both_settings
@pytest.mark.usefixtures("server_settings")
@pytest.mark.parametrize(
    "server",
    [pytest.param("feed", id="mysql"), pytest.param("mariadb_feed", id="mariadb", marks=pytest.mark.extended)],
)
def test_existing_rows_and_all_changes_end_as_the_source_is(
    server: str, request: pytest.FixtureRequest, spark_connect: SparkConnectServer
) -> None:
    feed = prepare(request.getfixturevalue(server))
    if server != "feed":
        feed.use_connect(spark_connect.url)
    with Writer(feed.mysql, feed.name, ROWS) as writer, snapshot_beside_runs(feed):
        text = finish(feed, spark=server == "feed")
    assert writer.statements > 100
    feed.run_until_current()
    check_equal(feed)
    assert text.count("rows/s") >= 2, "rounds"
    print(text)


@pytest.mark.extended
@on_both_settings
def test_snapshot_killed_at_random_repeats_and_loses_nothing(feed: Feed, spark_connect: SparkConnectServer) -> None:
    """The driver is killed; its tasks continue in the Connect server."""
    prepare(feed).use_connect(spark_connect.url)
    seed = choose_seed()
    chance = random.Random(seed)
    killed = 0
    slowly = ("--rows-per-second", "30" if LONG else "1500")
    with Writer(feed.mysql, feed.name, ROWS, pause_seconds=0.01), snapshot_beside_runs(feed):
        while killed < KILLS:
            run = begin(feed, *slowly)
            time.sleep(chance.uniform(1, 8))
            if run.process.poll() is not None:
                break
            run.kill()
            killed += 1
        finish(feed)
    print(f"{killed} kills", flush=True)
    feed.run_until_current()
    check_equal(feed)


@pytest.mark.extended
@pytest.mark.parametrize(
    "stage", ["in_open_transaction", *(f"before_log_write:{number}" for number in (3, 5, 7)),
              *long("before_log_write:4", "before_log_write:6")]
)  # fmt: skip
def test_run_that_takes_over_fences_a_frozen_snapshot(feed: Feed, stage: str) -> None:
    """It is frozen in an open transaction, or before it writes its progress, when its claim expires; a window publishes
    changes of the same rows."""
    prepare(feed, "numbers")
    run = begin(feed, fault=stage)
    assert run.wait_until_held(400), run.text()
    for pid in processes_of(run.process.pid):
        os.kill(pid, signal.SIGSTOP)
    feed.mysql.execute(f"UPDATE `{feed.name}`.numbers SET version = version + 1")
    feed.run_until_current()
    run.file.unlink()
    for pid in processes_of(run.process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    assert run.result() == 1, run.text()[-3000:]
    assert "Fenced" in run.text()
    assert len(reads(feed, "numbers")) in (0, ROWS), "all were there already before its last write"
    finish(feed)
    records = feed.records("numbers")
    assert len(row_from_records(records)) == len(reads(feed, "numbers")) == ROWS


@pytest.mark.long
@pytest.mark.extended
def test_table_created_later_is_published_alone_and_again_only_on_request(
    feed: Feed,
) -> None:
    prepare(feed, "numbers")
    feed.run_until_current()
    feed.settings["tables"] = {"include": [f"{feed.name}.numbers", f"{feed.name}.names"]}
    feed.configure()
    arguments = ("--tables", f"{feed.name}.names", "--where", "text < 'row 5' AND version = 1")
    finish(feed, *arguments)
    assert "0 of 1 tables" not in finish(feed, *arguments), "it was done already"
    (count,) = feed.mysql.execute(f"SELECT COUNT(*) FROM `{feed.name}`.names WHERE text < 'row 5'")[0]
    assert 0 < len(reads(feed, "names")) == count < ROWS
    assert reads(feed, "numbers") == []
    finish(feed, "--tables", f"{feed.name}.names", "--where", "text < 'row 5'")
    assert len(reads(feed, "names")) == 2 * count
    assert max(Counter(event_ids(feed.records("names"))).values()) == 1


@pytest.mark.long
@pytest.mark.extended
def test_keyless_table_without_consistent_view_is_refused_and_dotted_name_is_read(
    feed: Feed,
) -> None:
    dotted = f"{feed.name}.x"
    feed.mysql.execute(
        f"CREATE TABLE `{feed.name}`.heap (n INT) ENGINE = MyISAM",
        f"CREATE DATABASE `{dotted}`",
        f"CREATE TABLE `{dotted}`.t (id INT PRIMARY KEY)",
        f"INSERT INTO `{dotted}`.t VALUES (1), (2)",
    )
    try:
        feed.settings |= {"tables": {"include": [f"{feed.name}.heap"]}}
        feed.configure()
        feed.run_until_current()
        refused = begin(feed)
        assert refused.result(400) not in (0, 2)
        assert "its engine MyISAM has no consistent reads" in " ".join(refused.text().split())
        feed.settings |= {"tables": {"include": ["/" + re.escape(dotted) + "[.]t/"]}}
        feed.configure()
        finish(feed)
        assert len(reads(feed, "x.t")) == 2
    finally:
        feed.mysql.execute(f"DROP DATABASE `{dotted}`")


@pytest.mark.long
@pytest.mark.extended
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("ENUM('a', 'b', 'c', 'd')", "ENUM('d', 'c', 'b', 'a')", id="labels"),
        *long(("DECIMAL(10, 2)", "DECIMAL(10, 0)")),
    ],
)
def test_changed_order_of_key_of_half_read_table_stops_the_snapshot(feed: Feed, before: str, after: str) -> None:
    """Its boundaries would skip unpublished rows."""
    feed.mysql.execute(
        f"CREATE TABLE `{feed.name}`.kinds (kind {before}, id INT, PRIMARY KEY (kind, id))",
        f"INSERT INTO `{feed.name}`.kinds "
        "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 399) "
        f"SELECT {'i % 4 + 1' if 'ENUM' in before else 'i % 4 + 0.25'}, i FROM n",
    )
    feed.settings |= {"tables": {"include": [f"{feed.name}.kinds"]}, "start": "latest"}
    feed.settings["kafka"] = {"connection": "kafka_faults", "transaction_rows": 20}
    feed.configure()
    feed.run_until_current()
    small = ("--chunk-rows", "20")
    run = begin(feed, *small, fault="before_log_write:8")
    assert run.wait_until_held(400), run.text()
    run.kill()
    assert 0 < len(reads(feed, "kinds")) < 400
    feed.mysql.execute(f"ALTER TABLE `{feed.name}`.kinds MODIFY kind {after}")
    feed.run_until_current()
    again = begin(feed, *small)
    assert again.result(400) not in (0, 2), again.text()[-3000:]
    assert "Start a new snapshot of it." in " ".join(again.text().split())


@pytest.mark.extended
def test_table_altered_or_emptied_before_its_rows_are_published_is_read_again(
    feed: Feed,
) -> None:
    prepare(feed, "numbers", "pairs", "names")
    run = begin(feed, fault="after_decode")
    assert run.wait_until_held(), run.text()
    feed.mysql.execute(
        f"ALTER TABLE `{feed.name}`.numbers ADD COLUMN more INT NOT NULL DEFAULT 7",
        f"TRUNCATE TABLE `{feed.name}`.pairs",
        f"INSERT INTO `{feed.name}`.pairs VALUES (1, 'new', 1, 'new')",
    )
    run.go_on()
    wait_for(feed, run)
    feed.run_until_current()
    assert {row["more"] for row in reads(feed, "numbers")} == {7}
    assert len(reads(feed, "numbers")) == len(reads(feed, "names")) == ROWS
    assert len(reads(feed, "pairs")) <= 1
    assert len(row_from_records(feed.records("pairs"))) == len(select_rows(feed.mysql, feed.name, "pairs")) == 1


@pytest.mark.extended
def test_first_change_of_a_table_during_its_read_has_it_read_again_without_that_row(
    feed: Feed,
) -> None:
    """Keys of rows are stored only for tables that change; without them, changed rows cannot be left out."""
    prepare(feed, "numbers", "names")
    run = begin(feed, fault="after_decode")
    assert run.wait_until_held(), run.text()
    feed.mysql.execute(
        f"UPDATE `{feed.name}`.numbers SET version = 2 WHERE id = -400",
        f"UPDATE `{feed.name}`.names SET version = 2 WHERE text = 'row 7'",
    )
    run.go_on()
    assert run.result() == 0, run.text()[-3000:]
    for table in ("numbers", "names"):
        assert {row["version"] for row in reads(feed, table)} == {1}
        assert len(reads(feed, table)) == ROWS - 1
    feed.run_until_current()
    for table in ("numbers", "names"):
        assert len(row_from_records(feed.records(table))) == ROWS


@pytest.mark.extended
def test_changed_settings_are_refused_by_snapshot_and_by_windows_it_depends_on(
    feed: Feed,
) -> None:
    prepare(feed, "numbers")
    feed.run_until_current()
    feed.mysql.execute(f"UPDATE `{feed.name}`.numbers SET version = 2 WHERE id < -400")
    run = begin(feed, "--connections", "1", "--chunk-rows", "100", fault="after_decode:2")
    assert run.wait_until_held(), run.text()
    run.kill()
    assert 0 < len(reads(feed, "numbers")) < ROWS
    before = dict(feed.settings)
    feed.settings["format"] = "maxwell"
    del feed.settings["values"]  # which Maxwell's format does not support
    feed.configure()
    assert (refused := feed.begin()).result() == 2
    assert "left out rows whose keys changed before" in refused.text()
    assert (again := begin(feed)).result() == 1
    assert "begun with other settings" in again.text()
    feed.settings = before
    feed.configure()
    finish(feed)
    feed.run_until_current()
    assert len(row_from_records(feed.records("numbers"))) == ROWS


@pytest.mark.extended
def test_a_snapshot_far_ahead_of_the_pipeline_waits_until_its_changes_are_published(feed: Feed) -> None:
    prepare(feed, "numbers")
    feed.mysql.execute(f"UPDATE `{feed.name}`.numbers SET version = 2 WHERE id < -400")
    run = begin(feed, "--changed-keys", "90")
    deadline = time.monotonic() + 240
    while "the snapshot waits: expected at most 90 changed keys" not in run.text():
        assert run.process.poll() is None, run.text()
        assert time.monotonic() < deadline, run.text()
        time.sleep(0.05)
    assert reads(feed, "numbers") == []
    feed.run_until_current()
    assert run.result() == 0, run.text()
    assert len(row_from_records(feed.records("numbers"))) == ROWS


@pytest.mark.extended
def test_paused_snapshot_publishes_nothing_until_resumed_even_when_run_again(feed: Feed) -> None:
    def run_command(what: str) -> Run:
        return feed.fork_command("", "snapshot", feed.name, what)

    def wait_until_paused(run: Run) -> None:
        deadline = time.monotonic() + 240
        while "is paused" not in run.text():
            assert run.process.poll() is None, run.text()
            assert time.monotonic() < deadline, run.text()
            time.sleep(0.05)

    prepare(feed, "numbers")
    assert (early := run_command("--pause")).result() == 1
    assert "no unfinished snapshot" in early.text()
    slowly = ("--connections", "1", "--chunk-rows", "50")
    run = begin(feed, *slowly, fault="after_decode:2")
    assert run.wait_until_held(), run.text()
    assert run_command("--pause").result() == 0
    run.go_on()
    wait_until_paused(run)
    there = len(reads(feed, "numbers"))
    assert there == ROWS // 2, "two rounds of six chunks, of one task"
    run.kill()
    run = begin(feed, *slowly)
    wait_until_paused(run)
    assert run_command("--resume").result() == 0
    assert run.result() == 0, run.text()
    assert len(reads(feed, "numbers")) == len(row_from_records(feed.records("numbers"))) == ROWS


LEFT_OUT = {
    "unchanged": {
        "columns": {"exclude": ["*.*.version"]},
        "format": {"name": "debezium", "skip.messages.without.change": True},
    },
    "a condition": {"rows": {"*.*": "before.id IS NULL"}},
    "an op": {"format": {"name": "debezium", "skipped.operations": "u"}},
}
"""Settings with which windows do not publish updates of a row's version."""


@pytest.mark.parametrize(
    "settings", [pytest.param(LEFT_OUT[name], id=name, marks=[pytest.mark.extended] * (name != "unchanged"))
                 for name in LEFT_OUT]
)  # fmt: skip
def test_rows_whose_changes_are_skipped_are_published_as_they_are(feed: Feed, settings: dict[str, Any]) -> None:
    prepare(feed, "numbers", rows=300)
    feed.settings |= settings
    feed.configure()
    if settings is LEFT_OUT["an op"]:
        run = begin(feed)
        assert run.result() == 1, run.text()
        assert "skipped.operations" in run.text()
        return
    numbers = f"`{feed.name}`.numbers"
    feed.mysql.execute(f"UPDATE {numbers} SET version = version + 1 WHERE id < -300")
    feed.mysql.execute(f"INSERT INTO {numbers} VALUES (10000, 1, 'new')", f"DELETE FROM {numbers} WHERE id = -250")
    finish(feed)
    feed.run_until_current()
    rows = {json.loads(record.key)["id"] for record in feed.records("numbers") if record.value is not None}
    (there,) = zip(*feed.mysql.execute(f"SELECT id FROM {numbers}"), strict=True)
    assert set(there) <= rows
