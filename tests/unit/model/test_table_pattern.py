"""Patterns of tables: shell patterns, and regular expressions between slashes."""

from __future__ import annotations

import pytest

from changefeed.model.table_pattern import names_database
from changefeed.settings.pipeline_settings import TableSettings


@pytest.mark.parametrize(
    ("pattern", "taken", "left"),
    [
        ("shop.*", "shop.orders", "shops.orders"),
        ("*.order?", "crm.orders", "crm.order"),
        (r"/shop\.orders_\d+/", "shop.orders_12", "shop.orders_12_old"),
        (r"/shop\.a|shop\.b/", "shop.b", "shop.ab"),
        (r"/(s)\w*\.s.*/", "shop.salts", "shop.orders"),
    ],
)
def test_pattern_must_match_the_full_name(pattern: str, taken: str, left: str) -> None:
    tables = TableSettings(include=["none.*", r"/(n)\.one/", pattern])
    assert tables.matches(*taken.split("."))
    assert not tables.matches(*left.split("."))
    assert not TableSettings(exclude=[pattern]).matches(*taken.split("."))
    assert TableSettings(exclude=[pattern]).matches(*left.split("."))


@pytest.mark.parametrize(
    ("pattern", "taken"),
    [
        ("shop.*", True),
        ("crm.*", False),
        (r"/sh\w+\.orders/", True),
        (r"/crm\.shop/", False),
        (r"/(crm\.a|shop\.b)/", True),
        ("/shop.*/", True),
    ],
)
def test_a_statement_about_a_database_is_about_patterns_that_may_take_its_tables(pattern: str, taken: bool) -> None:
    assert names_database(pattern, "shop") is taken
