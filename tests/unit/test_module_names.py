"""Modules that are named in texts: what is imported later, patched by a test, or run with `python -m`."""

from __future__ import annotations

import ast
import re
from importlib.util import find_spec
from pathlib import Path

PROJECT = Path(__file__).parents[2]
PACKAGE = PROJECT / "include" / "changefeed"
FOLDERS = ("include", "dags", "jobs", "plugins", "tests")
LOGGERS = {"changefeed.kafka.client"}
NAME = re.compile(r"changefeed(\.\w+)+")


def named() -> dict[str, str]:
    """Where a text is a name below a room of the package."""
    found = {}
    for path in (path for folder in FOLDERS for path in (PROJECT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and NAME.fullmatch(node.value):
                parts = node.value.split(".")
                if len(parts) > 2 or (PACKAGE / parts[1]).is_dir():
                    found[node.value] = f"{path.relative_to(PROJECT)}:{node.lineno}"
    return found


def is_there(name: str) -> bool:
    """Whether a module has that name, or one has an attribute of its last part."""
    parts = name.split(".")
    while parts:
        path = PACKAGE.parent.joinpath(*parts)
        if path.is_dir():
            return len(parts) == len(name.split("."))
        if path.with_suffix(".py").exists():
            return find_spec(".".join(parts)) is not None
        parts.pop()
    return False


def test_modules_that_texts_name_are_there() -> None:
    topics = re.compile(r"changefeed\.\w+\.(commits|schema-history|schema-changes|dead-letters)")
    missing = {
        name: where
        for name, where in named().items()
        if not is_there(name) and not topics.fullmatch(name) and name not in LOGGERS
    }
    assert not missing
