"""What docs/reference/python.md says that people may import."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "python.md"
IMPORTS = re.findall(r"`from (changefeed[\w.]*) import ([\w, ]+)`", PAGE.read_text())


@pytest.mark.parametrize(("module", "names"), IMPORTS, ids=[module for module, _ in IMPORTS])
def test_names_of_the_python_api_can_be_imported(module: str, names: str) -> None:
    found = import_module(module)
    public = getattr(found, "__all__", None)
    for name in names.split(", "):
        assert hasattr(found, name)
        assert public is None or name in public
