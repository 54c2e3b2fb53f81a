"""Pages of the documentation, for tests that compare them with the code."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

PROJECT = Path(__file__).resolve().parents[1]
DOCS = PROJECT / "docs"
_BLOCK = re.compile(r"^(?P<indent> *)```(?P<language>\w+)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)


def code_blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of ``language`` in the text of a page, without the indentation that they have in lists."""
    return [dedent(block["text"]) for block in _BLOCK.finditer(page) if block["language"] == language]
