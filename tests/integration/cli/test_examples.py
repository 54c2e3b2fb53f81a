"""The examples print what their READMEs show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from typing import Any

import orjson
import pytest
from long_form import long

from devstack.home import PROJECT

pytestmark = [pytest.mark.extended, pytest.mark.timeout(1200)]

_VARYING = re.compile(
    r'("(?:timestamp|offset|log_pos|event_size)":|binlog\.\d{6}:|127\.0\.0\.1:|, )\d[\d,]*(?= bytes of binlog)?'
)


_RATE = re.compile(r"published in [\d.]+ s: [\d,]+ events")


def _constant(text: str) -> str:
    """The parts of the output that are equal in each run."""
    return _RATE.sub("published in N s: N events", _VARYING.sub(r"\1N", text))


def output_of(example: str, *arguments: str) -> str:
    """The output of an example's script, which its README shows with other positions, ports and times."""
    folder = PROJECT / "examples" / example
    done = subprocess.run(
        [sys.executable, str(folder / "run.py"), *arguments],
        env={name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
        | {"PYTHONPATH": str(PROJECT / "include")},  # Spark Connect's client leaves settings in this process
        capture_output=True,
        text=True,
        timeout=1100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = (folder / "README.md").read_text().split("Output:\n\n```\n")[1].removesuffix("```\n")
    assert _constant(done.stdout) == _constant(shown)
    return done.stdout


@pytest.mark.long
def test_topic_per_table_in_the_servers_own_database() -> None:
    lines = output_of("topic-per-table").splitlines()
    events: dict[str, list[Any]] = {}
    for number, line in enumerate(lines):
        if match := re.fullmatch(r"={19}Event from kafka topic (\w+)={19}", line):
            assert lines[number + 1] == "key: None"
            header = orjson.loads(lines[number + 2].removeprefix("mysql_binlog_headers: "))
            event = orjson.loads(lines[number + 3].removeprefix("value: "))
            assert header == {name: event[name] for name in header}
            events.setdefault(match[1], []).append(event)
    names = {topic: [event["event"] for event in of_topic] for topic, of_topic in events.items()}
    assert names == {
        "mysql_paymentA": ["QueryEvent", "WriteRowsEvent", "DeleteRowsEvent"],
        "mysql_paymentB": ["QueryEvent", "WriteRowsEvent", "UpdateRowsEvent", "QueryEvent"],
        "mysql_paymentC": ["QueryEvent", "WriteRowsEvent", "QueryEvent"],
    }
    assert [len(event["rows"]) for event in events["mysql_paymentA"][1:]] == [2, 1]


def test_follower_equals_leader_and_records_are_numbered() -> None:
    output = output_of("leader-and-follower")
    records = [orjson.loads(line) for line in output.splitlines() if line.startswith('{"uri"')]
    assert [record["sequence"] for record in records] == list(range(9))
    kinds = [next(iter(record["operation"])) for record in records]
    assert kinds == ["Query", "Query", "Add", "Add", "Update", "Query", "Delete", "Add", "Update"]
    for record, kind in zip(records, kinds, strict=True):
        assert record["uri"] == "flv://mysql-srv1/flvDb" + ("" if kind == "Query" else "/pet")
        assert set(record["bn_file"]) == {"fileName", "offset"}
        if kind != "Query":
            assert len(record["columns"]) == (5 if record["sequence"] < 5 else 6)
            assert len(record["operation"][kind]["rows"]) == 1
    assert records[0]["operation"] == {"Query": "CREATE DATABASE flvDb"}
    cells = records[8]["operation"]["Update"]["rows"][0]["after_cols"]
    assert cells[0] == {"String": "Spot"}
    assert cells[5] == {"Date": {"year": 2020, "month": 6, "day": 10}}
    rows = Counter(line for line in output.splitlines() if " | " in line)
    assert rows == {
        "Jack | Peter | dog | m | 1989-08-31 | NULL": 2,
        "Spot | Jane | dog | m | 2010-11-02 | 2020-06-10": 2,
    }


@pytest.mark.long
def test_fast_reader_registers_keeps_its_limit_and_reads_every_event() -> None:
    lines = output_of("fast-reader").splitlines()
    (read,) = (line for line in lines if line.startswith("all types:"))
    listed, counted = re.findall(r"[\d,]{3,}", read)
    assert listed == counted
    assert int(counted.replace(",", "")) > 400_000
    assert _RATE.search(lines[-1])


@pytest.mark.parametrize("release", long("9.7", "8.0"))
def test_functions_lose_and_repeat_nothing_if_both_servers_are_killed(release: str) -> None:
    lines = output_of("transforms-at-run-time", release).splitlines()
    assert [line.partition(":")[0] for line in lines if "SIGKILL" in line] == ["Kafka", "MySQL"]
    counts = [line.rpartition(": ")[2] for line in lines if line.startswith(("consumer>", "mysql>"))]
    assert counts == ["960 rows, 8368 characters, 0 repeated", "960 rows, 8368 characters"] * 3


@pytest.mark.long
def test_killed_runs_lose_and_repeat_no_record() -> None:
    counts = [line for line in output_of("commit-log").splitlines() if line.startswith("orders: ")]
    assert counts[-1] == "orders: 12 records, 12 different ids; SELECT: 12 rows"
