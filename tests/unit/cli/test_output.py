"""Output of the command: JSON with any name is valid, and tables fit the terminal or are complete."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from changefeed.cli import app
from changefeed.cli.text_table import text_table

_NAMES = "t\x9b1A\x7f\u202e\ud800\U000e0001 漢字 äöü \x1b\n\t\\x9b"
_COLUMNS = ("pipeline", "window", "checkpoint", "state")
_ROWS = (
    ("shop", "12", "binlog.000012:12345", "12,345 bytes of binlog since 2026-01-31T12:00:00Z; 1 table is parked"),
    ("漢字" * 10, "3", "", "x" * 90),
)


def test_json_with_control_characters_in_names_is_valid_and_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(app.out, "file", shown)
    app.print_json({"table": _NAMES})
    assert json.loads(shown.getvalue()) == {"table": _NAMES}
    assert "漢字 äöü" in shown.getvalue()
    assert all(line.isprintable() for line in shown.getvalue().splitlines())


@pytest.mark.parametrize("width", [1, 20, 40, 60, 80, 120, 200])
def test_table_fits_the_terminal_and_cuts_no_value(width: int) -> None:
    shown = text_table(_COLUMNS, _ROWS, width)
    if width >= 20:
        assert max(map(cell_len, shown.splitlines())) <= width
    characters = "".join(shown.split())
    assert characters.count("x") == 90
    assert characters.count("漢") == 10
    assert "table" in shown
    assert "binlog" in characters


def test_table_without_a_terminal_has_a_line_for_each_row() -> None:
    lines = text_table(("name", "value"), [("a\nb", "1"), ("c", "2" * 300)]).splitlines()
    assert lines == ["name  value", "a b   1", "c     " + "2" * 300]


def test_table_without_rows_has_its_heading() -> None:
    assert text_table(("name", "value"), [], 60) == "name  value"
    assert text_table(("name" * 9, "value" * 9), [], 60).splitlines() == ["name" * 9, "value" * 9]


def test_terminal_of_60_columns_gets_lines_of_60_and_a_pipe_gets_complete_ones() -> None:
    code = f"from changefeed.cli.app import print_table; print_table({_COLUMNS}, {_ROWS})"
    include = Path(app.__file__).parents[2]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(include), "TERM": "xterm", "COLUMNS": "60"}
    command = [sys.executable, "-c", code]
    piped = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert piped == text_table(_COLUMNS, _ROWS) + "\n"
    assert "\x1b" not in piped

    reader, terminal = pty.openpty()
    subprocess.run(command, env=environment, stdin=terminal, stdout=terminal, check=True)
    os.close(terminal)
    shown = os.read(reader, 100_000).decode().replace("\r\n", "\n")
    os.close(reader)
    assert shown == text_table(_COLUMNS, _ROWS, 60) + "\n"
