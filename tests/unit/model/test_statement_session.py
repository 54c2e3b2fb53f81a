"""What records of statements say of the session that ran them."""

from __future__ import annotations

import pytest

from changefeed.model.statement import session_of, takes_effect


def test_each_variable_that_an_event_has_is_said_and_no_other() -> None:
    variables = (
        "00" + "00000004"  # FLAGS2: foreign keys are not checked
        "01" + "2000a05500000000"  # SQL_MODE
        "03" + "02000100"  # steps of AUTO_INCREMENT
        "04" + "ff00ff002d00"  # charsets
        "05" + "06" + b"+02:00".hex() +  # time zone
        "0d" + "40e201"  # microseconds
        "10" + "01"  # explicit_defaults_for_timestamp
        "12" + "ff00"  # default collation of utf8mb4
    )  # fmt: skip
    assert session_of(1_790_000_000, variables) == {
        "timestamp": "1790000000.123456",
        "sql_mode": 0x55A00020,
        "default_collation_for_utf8mb4": 255,
        "character_set_client": 255,
        "collation_connection": 255,
        "collation_server": 45,
        "foreign_key_checks": False,
        "unique_checks": True,
        "time_zone": "+02:00",
        "auto_increment_increment": 2,
        "auto_increment_offset": 1,
        "explicit_defaults_for_timestamp": True,
    }
    assert session_of(5, "") == {"timestamp": "5"}


def test_default_collations_of_mariadb_come_in_pairs() -> None:
    assert session_of(5, "83" + "02" + "2100c000" + "2d000809")["character_set_collations"] == [[33, 192], [45, 2312]]


def test_variables_that_are_cut_short_are_refused() -> None:
    with pytest.raises(ValueError, match="ends at"):
        session_of(5, "0120")


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ("", True),
        ("00" + "00000000", True),
        ("82" + "02", False),  # ALTER begins
        ("82" + "04" + "0500000000000000", True),  # ALTER 5 is committed
        ("82" + "08" + "0500000000000000", False),  # ALTER 5 is rolled back
        ("82" + "01", True),  # a flag of something else
    ],
)
def test_alter_in_two_phases_takes_effect_where_it_is_committed(variables: str, expected: bool) -> None:
    """The number of the ALTER that ends is no status variable of its own."""
    charset = "04" + "2d002d000800"
    assert takes_effect(bytes.fromhex(variables + charset)) == expected
    assert session_of(5, variables + charset)["character_set_client"] == 45
