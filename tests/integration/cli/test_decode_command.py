"""`changefeed decode`: the lines of files and of standard input, between two positions, and the counts of --stats."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from integration.binlog_of import Binlog, binlog_of
from typer.testing import CliRunner

from changefeed.cli import files
from changefeed.cli.app import app
from changefeed.errors import BinlogFormatError, SettingsError
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer

assert files.decode.__name__ == "decode", "the command is registered"

STATEMENTS = (
    "CREATE TABLE t (id INT PRIMARY KEY, note VARCHAR(20))",
    "CREATE TABLE other (id INT PRIMARY KEY)",
    "INSERT INTO t VALUES (1, 'ä'), (2, NULL)",
    "INSERT INTO other VALUES (9)",
    "UPDATE t SET note = 'b', id = 3 WHERE id = 2",
    "DELETE FROM t WHERE id = 1",
)
ROWS = [("c", "t", 1), ("c", "t", 2), ("c", "other", 9), ("u", "t", 3), ("d", "t", 1)]


@dataclass(frozen=True)
class Printed:
    """The output of the command, and its error."""

    lines: list[dict[str, Any]]
    stats: list[dict[str, Any]]
    error: BaseException | None

    @property
    def rows(self) -> list[tuple[str, str, int]]:
        changes = [line for line in self.lines if line["op"] != "q"]
        return [(line["op"], line["source"]["table"], (line["after"] or line["before"])["id"]) for line in changes]

    @property
    def positions(self) -> list[int]:
        return [line["source"]["pos"] for line in self.lines]


def decode(*arguments: str, stdin: bytes = b"") -> Printed:
    done = CliRunner().invoke(app, ["decode", *arguments], input=stdin)
    error = None if isinstance(done.exception, SystemExit) else done.exception
    lines, stats = (
        [json.loads(line) for line in text.splitlines() if line.startswith("{")] for text in (done.stdout, done.stderr)
    )
    return Printed(lines, stats, error)


@pytest.fixture
def binlog(full_mysql_server: MysqlServer, unique_name: str) -> Binlog:
    return binlog_of(full_mysql_server, unique_name, *STATEMENTS)


@pytest.fixture
def path(binlog: Binlog, tmp_path: Path) -> Path:
    path = tmp_path / binlog.name
    path.write_bytes(binlog.data)
    return path


def test_each_row_change_and_each_statement_is_a_line_in_binlog_order(path: Path, binlog: Binlog) -> None:
    printed = decode(str(path))
    assert printed.rows == ROWS
    assert [line["sql"] for line in printed.lines if line["op"] == "q"] == list(STATEMENTS[:2])
    assert printed.positions == sorted(printed.positions)
    assert {line["source"]["file"] for line in printed.lines} == {binlog.name}
    assert printed.lines[2]["after"] == {"id": 1, "note": "ä"}
    assert (printed.stats, printed.error) == ([], None)


def test_minus_reads_standard_input(path: Path) -> None:
    from_file, from_input = decode(str(path)), decode("-", stdin=path.read_bytes())
    for line in from_file.lines:
        line["source"]["file"] = "-"
    assert [{**line, "ts_ms": 0} for line in from_input.lines] == [{**line, "ts_ms": 0} for line in from_file.lines]


def test_tables_option_filters_rows_but_not_statements(path: Path, binlog: Binlog) -> None:
    printed = decode(str(path), "--tables", f"{binlog.database}.oth*")
    assert printed.rows == [("c", "other", 9)]
    assert len(printed.lines) == 3
    assert isinstance(decode(str(path), "--tables", "other").error, SettingsError), "it names no database"


def test_from_and_to_limit_decode_to_transactions(full_mysql_server: MysqlServer, path: Path, binlog: Binlog) -> None:
    shown = full_mysql_server.execute(f"SHOW BINLOG EVENTS IN '{binlog.name}'")
    ends = [int(end) for _, _, kind, _, end, _ in shown if kind == "Xid"]
    begins = [int(at) for _, at, kind, *_ in shown if kind == "Gtid"][-len(ends) :]
    assert decode(str(path), "--from", str(begins[1])).rows == ROWS[2:]
    assert decode(str(path), "--to", str(ends[0])).rows == ROWS[:2]
    assert decode(str(path), "--from", str(begins[1]), "--to", str(ends[2])).rows == ROWS[2:4]
    assert decode("-", "--from", str(begins[3]), stdin=path.read_bytes()).rows == ROWS[4:]
    inside = decode(str(path), "--to", str(ends[1] - 31))
    assert inside.rows == ROWS[:2], "the transaction that ends after it is not shown"
    assert "ends inside" in str(inside.error)
    assert "outside of the file" in str(decode(str(path), "--from", str(len(binlog.data) + 1)).error)


@pytest.mark.parametrize("kind", ["full_mysql_server", "full_mariadb_server"])
def test_stats_prints_the_counts_of_each_file(
    kind: str, request: pytest.FixtureRequest, unique_name: str, tmp_path: Path
) -> None:
    server: MysqlServer | MariadbServer = request.getfixturevalue(kind)
    binlog = binlog_of(server, unique_name, *STATEMENTS)
    path, cut = tmp_path / binlog.name, tmp_path / "cut"
    path.write_bytes(binlog.data)
    printed = decode(str(path), "-", "--stats", stdin=path.read_bytes())
    assert printed.rows == ROWS * 2
    first, second = printed.stats
    assert {**first, "file": "-"} == second
    assert first["file"] == binlog.name
    assert first["size_bytes"] == len(binlog.data) - 4
    assert first["rows"] == {f"{unique_name}.t": {"c": 2, "u": 1, "d": 1}, f"{unique_name}.other": {"c": 1}}
    assert first["transactions"] == len(STATEMENTS)
    assert first["statements"] == 2
    cut.write_bytes(binlog.data[:-100])
    broken = decode(str(cut), "--stats")
    assert isinstance(broken.error, BinlogFormatError)
    assert broken.rows == ROWS[:4]
    assert [stats["transactions"] for stats in broken.stats] == [len(STATEMENTS) - 1], "of complete transactions"


def test_missing_file_and_file_that_is_no_binlog_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"no binlog at all")
    assert "found no file" in str(decode(str(tmp_path / "none")).error)
    assert isinstance(decode(str(other)).error, BinlogFormatError)
    assert isinstance(decode("-").error, BinlogFormatError)
