"""What servers say is shown with escapes for what would move a cursor or change the direction of the text."""

from __future__ import annotations

import io
import logging

import pytest

from changefeed.cli import app
from changefeed.errors import SourceError
from changefeed.printable import printable

_HOSTILE = "exe.\u202egnp\x1b[2J\x9b1A\u2066\u200b\x00\ud800"
_SHOWN = r"exe.\u202egnp\x1b[2J\x9b1A\u2066\u200b\x00\ud800"


def test_characters_that_print_nothing_are_escaped_and_lines_stay() -> None:
    assert printable(f"{_HOSTILE}\n\tZeile: äöü 漢字 🙂") == f"{_SHOWN}\n\tZeile: äöü 漢字 🙂"


def test_error_of_a_server_is_shown_with_escapes() -> None:
    assert str(SourceError(f"the server says {_HOSTILE}")) == f"the server says {_SHOWN}"


def test_terminal_and_log_show_names_with_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(app.out, "file", shown)
    app.print_table([_HOSTILE], [[_HOSTILE]])
    app.out.print(f"shop: {_HOSTILE}")
    assert shown.getvalue().count(_SHOWN) == 3
    assert all(line.isprintable() for line in shown.getvalue().splitlines())
    record = logging.LogRecord("changefeed", logging.INFO, "", 1, "table %r of %s", ("a", _HOSTILE), None)
    assert app.PrintableLog("%(message)s").format(record) == f"table 'a' of {_SHOWN}"
