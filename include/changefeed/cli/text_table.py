"""Formats rows of text as a table that fits the terminal, and is complete where there is none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from changefeed.printable import printable

_GAP = "  "
_MIN_WRAPPED = 24
"""Cells. A column that is wrapped to less than that is hard to read."""
_MIN_WIDTH = 20
"""Cells. A narrower terminal wraps the lines itself."""

Row = Sequence[str]


def text_table(columns: Row, rows: Sequence[Row], width: int | None = None) -> str:
    """A table of ``rows`` with a heading, of lines of at most ``width`` cells (at least 20). No value is cut.

    Without ``width`` each row is one line. If the rows are wider than ``width``, the values of the widest column are
    wrapped; if that does not suffice, each row becomes a block with a line for each column.
    """
    shown = [tuple(map(_one_line, row)) for row in (columns, *rows)]
    widths = [max(map(cell_len, column)) for column in zip(*shown, strict=True)]
    excess = 0 if width is None else sum(widths) + len(_GAP) * (len(widths) - 1) - max(width, _MIN_WIDTH)
    if width is not None and excess > 0:
        width = max(width, _MIN_WIDTH)
        if not rows:
            return "\n".join(_wrap(_GAP.join(columns), width))
        widest = widths.index(max(widths))
        widths[widest] -= excess
        if widths[widest] < _MIN_WRAPPED:
            return "\n\n".join("\n".join(_block(shown[0], row, width)) for row in shown[1:])
    return "\n".join(line for row in shown for line in _lines(row, widths))


def _one_line(value: str) -> str:
    return printable(" ".join(value.split("\n"))).expandtabs(1)


def _lines(row: Row, widths: Sequence[int]) -> Iterator[str]:
    """The lines of a row whose values are wrapped to ``widths``."""
    cells = [_wrap(value, width) for value, width in zip(row, widths, strict=True)]
    for number in range(max(map(len, cells))):
        parts = [cell[number] if number < len(cell) else "" for cell in cells]
        padded = (part + " " * (width - cell_len(part)) for part, width in zip(parts, widths, strict=True))
        yield _GAP.join(padded).rstrip()


def _block(columns: Row, row: Row, width: int) -> Iterator[str]:
    """A row with a line for each column, or with two if name and value do not fit in one."""
    names = max(map(cell_len, columns))
    beside = width - names - len(_GAP)
    for name, value in zip(columns, row, strict=True):
        if not value:
            continue
        if beside >= _MIN_WRAPPED or cell_len(value) <= beside:
            yield from _lines((name, value), (names, beside))
        else:
            yield name
            yield from (_GAP + line for line in _wrap(value, max(1, width - len(_GAP))))


def _wrap(value: str, width: int) -> list[str]:
    if cell_len(value) <= width:
        return [value]
    lines = Text(value).wrap(Console(width=width), width, overflow="fold")
    return [line.plain.rstrip() for line in lines]
