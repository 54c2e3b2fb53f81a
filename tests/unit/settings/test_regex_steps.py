"""Regular expressions that could hold up a process are told from those that cannot."""

from __future__ import annotations

import re
import time

import pytest

from changefeed.errors import SettingsError
from changefeed.settings.regex_steps import check_steps
from changefeed.settings.requests.snapshot import SnapshotForm

NAME = "shop.customer_addresses_history_of_all_the_years_that_were_x"

SLOW = (
    r"(?:[a-z_.]+)+[0-9]",
    r"(s|h|o|p|.|[a-z])*!",
    r".*.*.*.*!",
    "a?" * 40 + "!",
    r"(.{0,9}){0,9}!",
    r"((.?){9}){9}!",
    r"(?>.*)*!",
    r"(?=(.+)+!).*",
    "(" * 300 + "." + ")*" * 300,
)
QUICK = (
    r"shop\.orders_\d+",
    r"(shop|crm)\.(orders|items)_\d{4}_\d\d?",
    r"(?P<db>[a-z]+)_\d+\..*",
    r"(?!tmp_).*\.(eu|us|apac)_.*",
    r"shop\.(?:[a-z]_)?orders",
    r"shop\.(\d\d){3}",
    r"(shop)?\.(?(1)a|b)",
)


@pytest.mark.parametrize("expression", SLOW)
def test_an_expression_with_too_many_ways_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match="too many ways"):
        check_steps(expression)
    with pytest.raises(SettingsError, match="snapshot: tables"):
        SnapshotForm.of({"tables": [f"/{expression}/"]})


@pytest.mark.parametrize("expression", QUICK)
def test_others_are_quick_for_any_name(expression: str) -> None:
    check_steps(expression)
    began = time.monotonic()
    for name in (NAME, "a" * 64 + "." + "a" * 64, "1" * 64 + "._" + "1" * 63):
        re.compile(expression + r"\Z").match(name)
    assert time.monotonic() - began < 5
