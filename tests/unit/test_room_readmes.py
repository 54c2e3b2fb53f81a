"""Each room has a README that fits on a screen, and names files that are there."""

from __future__ import annotations

import re

import pytest
from unit.test_import_directions import PACKAGE, PROJECT, rooms

LINES = 40


@pytest.mark.parametrize("room", sorted(rooms()))
def test_a_room_has_a_readme_of_one_screen_that_names_files_that_are_there(room: str) -> None:
    text = (PACKAGE / room / "README.md").read_text()
    assert len(text.splitlines()) <= LINES
    assert all(part in text for part in ("**Promises.**", "**Imports**", "**Tests:**"))
    names = re.findall(r"`((?:\w+/)*\w+\.py|(?:\w+/)+)`", text)
    places = (PACKAGE / room, PACKAGE, PROJECT, *(path.parent for path in (PROJECT / "tests").rglob("test_*.py")))
    places += tuple(path for path in (PACKAGE / room).iterdir() if path.is_dir())
    missing = [name for name in names if not any((place / name).exists() for place in places)]
    assert not missing
