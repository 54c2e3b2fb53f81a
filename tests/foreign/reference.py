"""The output of `mysqlbinlog -v` for a range of a binlog: if it is equal to our records, a difference is the server's.

Source: https://dev.mysql.com/doc/refman/9.7/en/mysqlbinlog-row-events.html
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

from foreign import values

from changefeed.model.table_schema import Column

Image = dict[int, str]
"""A row image: the text of each column's value, by its number from 1."""

_CELL = re.compile(r"###   @(\d+)=(.*)$", re.DOTALL)
_CODECS = {"utf8mb3": "utf-8", "utf8mb4": "utf-8", "ascii": "ascii", "latin1": "cp1252", "latin2": "latin2"}


class Reference:
    """A program that reads binlogs: `mysqlbinlog`, or MariaDB's."""

    def __init__(self, program: Sequence[str]) -> None:
        self._program = program

    def images(self, path: Path, start: int, end: int, database: str, table: str) -> list[Image]:
        """The row images of a table between two positions, alternately before and after."""
        arguments = ("--no-defaults", "-v", "--base64-output=DECODE-ROWS", f"--start-position={start}")
        done = subprocess.run(
            [*self._program, *arguments, f"--stop-position={end}", str(path)], capture_output=True, check=False
        )
        images: list[Image] = []
        is_wanted = False
        quoted = f"`{database}`.`{table}`".encode()
        for line in done.stdout.split(b"\n"):
            if re.match(rb"### (INSERT INTO|UPDATE|DELETE FROM) ", line):
                is_wanted = line.endswith(quoted)
            elif is_wanted and line in (b"### SET", b"### WHERE"):
                images.append({})
            elif is_wanted and images and (cell := _CELL.match(line.decode("latin-1"))):
                images[-1][int(cell[1])] = cell[2]
        return images


def agrees(columns: Sequence[Column], image: Image, row: dict[str, Any]) -> bool:
    """Whether our ``row`` has the values of the ``image``, as far as its text has them."""
    return all(
        _agree(column, image[number], row[column.name])
        for number, column in enumerate(columns, 1)
        if number in image and column.name in row
    )


def _agree(column: Column, text: str, value: Any) -> bool:
    if text.startswith("NULL") or value is None:
        return text.startswith("NULL") and value is None
    with suppress(ValueError, ArithmeticError, IndexError, KeyError, LookupError):
        return _same(column, text, value)
    return True  # the text does not have the value


def _same(column: Column, text: str, value: Any) -> bool:
    data_type = column.data_type
    if data_type in values.INTEGERS:
        return str(int(value)) in re.findall(r"-?\d+", text)
    if data_type == "decimal":
        return Decimal(text.split()[0]) == Decimal(value)
    if data_type in ("float", "double"):
        return abs(float(text.split()[0]) - float(value)) <= 1e-4 * abs(float(value))
    if data_type == "bit":
        return int(text[2:].split("'")[0], 2) == int(value)
    if data_type == "enum":
        return ("", *column.labels)[int(text)] == value
    if data_type == "timestamp":
        return True  # seconds here, a text in UTC there
    if data_type in ("date", "time", "datetime"):
        return re.findall(r"\d+", text) == re.findall(r"\d+", str(value).replace("T", " "))
    held = _unescape(text)
    if data_type in values.BYTES:
        return held.rstrip(b"\0") == base64.b64decode(value).rstrip(b"\0")
    if data_type in values.TEXTS and data_type != "set":
        return held.decode(_CODECS[(column.collation or "").split("_")[0]]) == value
    return json.loads(held) == json.loads(value) if data_type == "json" else True


def _unescape(text: str) -> bytes:
    inside = text[text.index("'") + 1 : text.rindex("'")]
    return re.sub(
        rb"\\x([0-9a-fA-F]{2})|\\(.)",
        lambda match: bytes.fromhex(match[1].decode()) if match[1] else match[2],
        inside.encode("latin-1"),
    )
