"""Each of the kernel's numbers has one meaning."""

from __future__ import annotations

from collections import Counter
from types import ModuleType

import pytest

from changefeed.binlog.kernel import faults, layout


def numbers(module: ModuleType, prefix: str) -> dict[str, int]:
    """The module's numbers whose names begin so."""
    return {name: value for name, value in vars(module).items() if name.startswith(prefix) and isinstance(value, int)}


def kinds() -> dict[str, int]:
    """The kinds of columns: a group, and a number within it."""
    found = numbers(layout, "")
    return {name: value for name, value in found.items() if layout.NUMBERS <= value < layout.SIZED}


@pytest.mark.parametrize(
    "given",
    [numbers(faults, ""), numbers(layout, "OP_"), numbers(layout, "TABLE_"), numbers(layout, "MASK_"), kinds()],
    ids=["faults", "ops", "fields of a table", "masks", "kinds"],
)
def test_no_two_names_have_one_number(given: dict[str, int]) -> None:
    of_values = {name: value for name, value in given.items() if name != "NEW_TABLE_MAP"}  # the kernel's answer
    twice = [value for value, count in Counter(of_values.values()).items() if count > 1]
    assert {name: value for name, value in given.items() if value in twice} == {}
    assert len(given) > 3
