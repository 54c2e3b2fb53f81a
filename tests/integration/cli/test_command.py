"""The `changefeed` command as a process: exit codes, one message for each error, no secrets."""

from __future__ import annotations

import json
import os
import re
import subprocess
from datetime import datetime

import pytest
from airflow_database import PROGRAMS
from integration.command import NOTHING_NEW, WRONG_PASSWORD, Command
from integration.topic_rows import event_ids, select_rows, topic_rows

from devstack.port import free_port

pytestmark = pytest.mark.timeout(900)


def test_check_plan_run_status_and_tail_report_the_run(changefeed: Command) -> None:
    changefeed.forks = None  # this test starts all as people do: the program, and with it Spark
    changefeed.mask = ""
    changefeed.write(spark="{master: 'local[2]'}")
    name, server, database = changefeed.name, changefeed.server, changefeed.database

    new = changefeed("status", name, "--json")
    assert (new.exit_code, json.loads(new.out)[0]["state"]) == (0, "new")
    first = changefeed.begin()

    checked = changefeed("check", name)
    assert checked.exit_code == 0, checked
    assert f"1 tables: {database}.t" in checked.out
    assert "reachable" in checked.out

    planned = changefeed("plan", name, "--json")
    assert planned.exit_code == 0, planned
    window = json.loads(planned.out)["window"]
    assert window["start"] == str(first.coordinates)
    assert changefeed.checkpoint() == first, "plan stores nothing"
    shown = changefeed("status").out
    assert (
        f"{window['start']}  {window['head']}  {json.loads(planned.out)['lag_bytes']:,} bytes of binlog since" in shown
    )
    (state,) = json.loads(changefeed("status", name, "--json").out)
    assert (state["state"], state["lag_bytes"] > 0, state["window"]) == ("behind", True, 0)

    ran = changefeed("run", name)
    assert ran.exit_code == 0, ran
    assert "committed window 1 " in ran.out
    assert "3 rows in 4 messages" in ran.out, "and the CREATE TABLE"
    committed = changefeed.checkpoint()
    assert committed is not None
    assert (committed.window, str(committed.coordinates)) == (1, window["head"])
    assert topic_rows(changefeed.records("t")) == select_rows(server, database, "t")

    assert changefeed("run", name).exit_code == NOTHING_NEW
    assert changefeed("plan", name).exit_code == NOTHING_NEW
    assert changefeed.checkpoint() == committed

    heading, listed = changefeed("windows", name).out.splitlines()
    assert heading.endswith("seconds  sealed (UTC)")
    sealed_at = datetime.strptime(f"{listed[-19:]}+0000", "%Y-%m-%d %H:%M:%S%z").timestamp()
    (manifest,) = json.loads(changefeed("windows", name, "--json").out)
    assert manifest["window"]["frozen_at_ms"] // 1000 <= sealed_at <= committed.committed_at_ms / 1000

    (current,) = json.loads(changefeed("status", name, "--json").out)
    assert {
        "pipeline": name,
        "state": "current",
        "window": 1,
        "checkpoint": window["head"],
        "head": window["head"],
        "lag_bytes": 0,
        "error": None,
    }.items() <= current.items()

    lag = json.loads(changefeed("lag", name, "--json").out)
    assert (lag["pipeline"], lag["state"], lag["lag_bytes"], lag["lag_seconds"]) == (name, "current", 0, 0)
    assert lag["retention_headroom_seconds"] > 0
    changefeed.server.execute(f"CREATE DATABASE {database}_x", f"DROP DATABASE {database}_x")
    beside = changefeed("lag", name).out
    assert "since the last run; no change of its tables in them" in beside
    assert re.search(r"lag_seconds +0$", beside, re.MULTILINE)

    tailed = changefeed("tail", name, "--from-beginning", "--no-follow")
    assert tailed.exit_code == 0, tailed
    lines = [json.loads(line) for line in tailed.out.splitlines()]
    rows = [line["headers"]["changefeed.id"] for line in lines if line["topic"] == f"{database}.t"]
    assert sorted(rows) == sorted(event_ids(changefeed.records("t")))
    assert len(lines) == len(rows) + 1, "and the CREATE TABLE"
    two = changefeed("tail", name, "--from-beginning", "-n", "2", "--table", f"{database}.t")
    assert (two.exit_code, len(two.out.splitlines())) == (0, 2)
    server.execute(f"DROP TABLE `{database}`.t")
    assert changefeed("seek", name, "latest", "--why", "a test", "--yes").exit_code == 0
    again = changefeed("tail", name, "--from-beginning", "--no-follow")
    assert sorted(again.out.splitlines()) == sorted(tailed.out.splitlines()), "also those of a dropped table"
    dropped = changefeed("tail", name, "--from-beginning", "--no-follow", "--table", f"{database}.t")
    assert (dropped.exit_code, len(dropped.out.splitlines())) == (0, len(rows)), dropped
    unknown = changefeed("tail", name, "--no-follow", "--table", f"{database}.never")
    assert unknown.exit_code != 0
    assert f"captures no table '{database}.never'" in unknown.err

    hostile = "n\x9b1A"
    server.execute(f"CREATE TABLE `{database}`.`{hostile}` (id INT PRIMARY KEY)")
    changefeed.on_terminal = True
    on_terminal = changefeed("run", name, "--json")
    changefeed.on_terminal = False
    assert on_terminal.exit_code == 0, on_terminal
    published = json.loads(on_terminal.out)
    assert [window["window"]["head"] for window in published["windows"]] == [published["head"]]
    assert published["checkpoint"] == published["head"]
    relearned = changefeed("schema", name, "--relearn", f"{database}.{hostile}", "--json")
    assert relearned.exit_code == 0, relearned
    assert hostile in [each["table"] for each in json.loads(relearned.out)]
    assert json.loads(changefeed("prune", name, "--json").out).keys() == {"pipeline", "topics", "records"}
    idle = changefeed("run", name, "--json")
    assert (idle.exit_code, json.loads(idle.out)["windows"]) == (NOTHING_NEW, [])
    created = changefeed(
        *("init", f"{name}2", "--source", "mysql_x", "--kafka", "kafka_x", "--tables", f"{database}.*"),
        *("--checkpoint", "state_x", "--start", "latest", "--json"),
    )
    assert created.exit_code == 0, created
    assert json.loads(created.out)["check"]["wrong"] == []
    assert changefeed("plan", f"{name}2").exit_code == NOTHING_NEW
    refused = changefeed("recover", name, "--json")
    assert (refused.exit_code, list(json.loads(refused.out))) == (1, ["error"])


@pytest.mark.extended
def test_seek_shows_the_effect_asks_and_stores_a_record(changefeed: Command) -> None:
    name, first = changefeed.name, changefeed.begin()
    shown = changefeed("seek", name, "latest", "--plan", "--json")
    assert shown.exit_code == 0, shown
    plan = json.loads(shown.out)
    assert (plan["from"], plan["skipped_bytes"] > 0, plan["repeated_bytes"]) == (str(first.coordinates), True, 0)
    changefeed("seek", name, "latest").is_refused("SettingsError", "needs a reason")
    changefeed("seek", name, "latest", "--why", "a test").is_refused("SettingsError", "add --yes")
    elsewhere = ("seek", name, "latest", "--why", "a test", "--yes", "--expected", "binlog.000999:4")
    changefeed(*elsewhere).is_refused("CheckpointError", str(first.coordinates), "look again")
    assert changefeed.checkpoint() == first, "nothing moved so far"

    assert changefeed("seek", name, "latest", "--why", "a test", "--yes").exit_code == 0
    back = changefeed("seek", name, str(first.coordinates), "--why", "undo", "--yes", "--json")
    assert json.loads(back.out)["repeated_bytes"] == plan["skipped_bytes"]
    moved = changefeed.checkpoint()
    assert moved is not None
    assert (moved.window, moved.coordinates) == (2, first.coordinates)


@pytest.mark.extended
def test_backfill_publishes_to_suffixed_topics_and_its_retry_repeats_nothing(changefeed: Command) -> None:
    name, first = changefeed.name, changefeed.begin()
    head = json.loads(changefeed("plan", name, "--json").out)["window"]["head"]
    spelled = ("backfill", name, "--from", str(first.coordinates), "--to", head, "--run-id", "again")
    done = changefeed(*spelled)
    assert done.exit_code == 0, done
    assert f"{changefeed.database}.t.replay" in done.out
    assert "bytes in 1 file of the server" in done.out
    assert "published 3 rows in 4 messages" in done.out
    replayed = changefeed.records("t.replay")
    assert topic_rows(replayed) == select_rows(changefeed.server, changefeed.database, "t")

    retried = changefeed(*spelled)
    assert "published 3 rows in 4 messages" in retried.out, retried
    assert event_ids(changefeed.records("t.replay")) == event_ids(replayed)
    assert changefeed.checkpoint() == first
    kinds = changefeed.logged(f"{name}.backfill.")
    assert sorted(kinds) == ["attempt", "seal"], "its progress is removed, its attempt and seal are not"

    changefeed("backfill", name).is_refused("SettingsError", "expected one range")
    changefeed("backfill", name, "--from-file", "binlog.000999").is_refused("BinlogGoneError", "binlog.000999")


@pytest.mark.extended
def test_unavailable_broker_loses_nothing_and_backlog_becomes_windows(changefeed: Command) -> None:
    first = changefeed.begin()
    changefeed.connect(kafka=f"kafka://127.0.0.1:{free_port()}")
    changefeed("check", changefeed.name).is_refused("BrokerUnavailableError", "127.0.0.1")
    changefeed("run", changefeed.name).is_refused("BrokerUnavailableError", "127.0.0.1")
    assert changefeed.checkpoint() == first
    changefeed.connect(kafka=f"kafka://{changefeed.broker.bootstrap}")

    # The backlog is larger than window_bytes by now, and is taken in a window for each file.
    changefeed.server.execute("FLUSH BINARY LOGS", "INSERT INTO t VALUES (3, 'three')", database=changefeed.database)
    changefeed.write("window_bytes: 1\n")
    until = ("run", changefeed.name, "--until", str(first.coordinates))
    changefeed(*until).is_refused("SettingsError", "expected `until` between the checkpoint at")
    ran = changefeed("run", changefeed.name)
    assert ran.exit_code == 0, ran
    committed = changefeed.checkpoint()
    assert committed is not None
    assert committed.window >= 2
    assert all(f"committed window {number} " in ran.out for number in range(1, committed.window + 1)), ran.out
    assert changefeed("plan", changefeed.name).exit_code == NOTHING_NEW
    assert topic_rows(changefeed.records("t")) == select_rows(changefeed.server, changefeed.database, "t")


def test_wrong_password_is_reported_with_host_and_user(changefeed: Command) -> None:
    first = changefeed.begin()
    changefeed.connect(mysql=f"mysql://changefeed:{WRONG_PASSWORD}@127.0.0.1:{changefeed.server.port}")
    for command in ("check", "plan", "run"):
        outcome = changefeed(command, changefeed.name)
        outcome.is_refused(
            "SourceLoginError", f"127.0.0.1:{changefeed.server.port}", "refuses user 'changefeed'", "password"
        )
    status = changefeed("status", changefeed.name, "--json")
    (shown,) = json.loads(status.out)
    assert (status.exit_code, shown["state"], shown["checkpoint"]) == (1, "error", str(first.coordinates))
    assert "refuses user 'changefeed'" in shown["error"]
    assert changefeed.checkpoint() == first


@pytest.mark.extended
def test_unavailable_server_is_reported_with_its_address(changefeed: Command) -> None:
    first = changefeed.begin()
    port = free_port()
    changefeed.connect(mysql=f"mysql://changefeed:{WRONG_PASSWORD}@127.0.0.1:{port}")
    for command in ("check", "plan", "run"):
        changefeed(command, changefeed.name).is_refused(
            "SourceUnavailableError", f"127.0.0.1:{port} cannot be reached", "Run again"
        )
    assert changefeed.checkpoint() == first


@pytest.mark.extended
def test_unknown_key_is_reported_with_file_line_and_nearest_key(changefeed: Command) -> None:
    changefeed.write("tombstone: false\n")
    for command in ("check", "plan", "run", "status", "tail"):
        changefeed(command, changefeed.name).is_refused(
            "SettingsError", f"{changefeed.name}.yaml, line 9: unknown key 'tombstone' (did you mean 'tombstones'?)"
        )


@pytest.mark.extended
def test_copied_file_with_the_same_name_is_refused(changefeed: Command) -> None:
    text = (changefeed.pipelines / f"{changefeed.name}.yaml").read_text()
    (changefeed.pipelines / "copy.yaml").write_text(text)
    assert changefeed("run", changefeed.name).exit_code == NOTHING_NEW
    for command in ("check", "status"):
        outcome = changefeed(command)
        assert outcome.exit_code == 1
        assert re.search(rf"^ *{changefeed.name}[: ]", outcome.out, re.MULTILINE)
        assert "copy.yaml" in outcome.err + outcome.out


@pytest.mark.extended
def test_unknown_pipeline_name_is_reported_with_the_nearest(changefeed: Command) -> None:
    changefeed("run", f"{changefeed.name}x").is_refused("SettingsError", f"did you mean {changefeed.name!r}")


@pytest.mark.extended
def test_missing_connection_is_reported_with_its_variable(changefeed: Command) -> None:
    changefeed.mysql_uri = ""
    changefeed("plan", changefeed.name).is_refused("SettingsError", "AIRFLOW_CONN_MYSQL_X")


@pytest.mark.extended
def test_checkpoint_with_purged_binlog_does_not_move(spare: Command) -> None:
    first = spare.begin()
    spare.server.execute("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    newest = spare.server.execute("SHOW BINARY LOGS")[-1][0]
    spare.server.execute(f"PURGE BINARY LOGS TO '{newest}'")
    for command in ("plan", "run"):
        spare(command, spare.name).is_refused(
            "BinlogGoneError",
            repr(first.coordinates.file),
            str(first.coordinates),
            newest,
            "binlog_expire_logs_seconds",
        )
    (shown,) = json.loads(spare("status", spare.name, "--json").out)
    assert shown["state"] == "error"
    assert spare.checkpoint() == first


@pytest.mark.extended
def test_statements_in_the_binlog_are_refused_and_the_setting_is_named(spare: Command) -> None:
    first = spare.begin()
    spare.server.execute("SET GLOBAL binlog_format = 'STATEMENT'")
    try:
        for command in ("check", "plan", "run"):
            spare(command, spare.name).is_refused("SourceError", "binlog_format is 'STATEMENT', expected 'ROW'")
    finally:
        spare.server.execute("SET GLOBAL binlog_format = 'ROW'")
    assert spare.checkpoint() == first
    assert spare("plan", spare.name).exit_code == 0, "nothing was lost"


@pytest.mark.extended
def test_server_without_a_binlog_is_refused_and_the_setting_is_named(spare: Command) -> None:
    first = spare.begin()
    spare.server.restart({"skip-log-bin": 1})
    try:
        for command in ("check", "plan", "run"):
            spare(command, spare.name).is_refused("SourceError", "log_bin is OFF", "--log-bin")
    finally:
        del spare.server.options["skip-log-bin"]
        spare.server.restart()
    assert spare.checkpoint() == first
    assert spare("plan", spare.name).exit_code == 0, "nothing was lost"


def test_help_needs_no_server() -> None:
    done = subprocess.run(
        [str(PROGRAMS / "changefeed"), "--help"], env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert all(command in done.stdout for command in ("check", "plan", "run", "status", "tail"))
