"""A format that a package of somebody else brings: a wheel, whose text a test installs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

MODULE = '''
"""Rows as `["LABEL","OP","TABLE",{...}]`."""

from dataclasses import dataclass

from changefeed.formats.format import FormatSettings
from changefeed.formats.notation import JSON
from changefeed.formats.options import Options, text
from changefeed.formats.reader import ReadChange, RecordReader
from changefeed.formats.style import Style
from changefeed.formats.template import ONE_MESSAGE_EACH, Slot

LABEL = text("label", "row")


@dataclass(frozen=True)
class ArraysFormat:
    label: bytes
    style: Style
    notation = JSON
    needs_definitions = False

    @classmethod
    def of(cls, settings: FormatSettings) -> "ArraysFormat":
        options = Options("arrays", (LABEL,), settings.options)
        return cls(options[LABEL].encode(), settings.style)

    def key(self, table):
        return (Slot.KEY,) if table.primary_key else None

    def messages(self, table):
        return ONE_MESSAGE_EACH

    def value(self, table, op):
        image = Slot.BEFORE if op == "d" else Slot.AFTER
        return (b'["%b","%b","%b",' % (self.label, op.encode(), table.table.encode()), image, b"]")

    def reader(self, schemas=None):
        return RecordReader(self._read, says_before=False)

    def _read(self, value):
        label, op, table, row = value
        return ReadChange(op, "", row, None) if op == "d" else ReadChange(op, "", None, row)

    def schema_change(self, statement, kind, changes):
        return kind.encode()

    def truncate(self, statement, table):
        return None

    def statement(self, statement, tables, *, hide_sql):
        return b"statement"

    def statement_headers(self, statement):
        return ()
'''
"""What the package is."""


def installed(folder: Path, package: str, modules: Mapping[str, str], formats: Mapping[str, str]) -> Path:
    """Make a wheel of ``modules``, whose entry points are ``formats``, and install it; where it is, for PYTHONPATH."""
    wheel, target = folder / f"{package}-1.0-py3-none-any.whl", folder / "site"
    points = "".join(f"{name} = {value}\n" for name, value in formats.items())
    information = {
        "METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": f"[changefeed.formats]\n{points}",
    }
    files = {f"{package}/{name}.py": text for name, text in {"__init__": "", **modules}.items()}
    files |= {f"{package}-1.0.dist-info/{name}": text for name, text in information.items()}
    files[f"{package}-1.0.dist-info/RECORD"] = "".join(f"{name},,\n" for name in files)
    with ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    install = [sys.executable, "-m", "uv", "--quiet", "pip", "install", "--no-deps", "--no-index", "--offline"]
    subprocess.run([*install, "--target", target, wheel], check=True)
    return target
