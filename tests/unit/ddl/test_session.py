from __future__ import annotations

import pytest

from changefeed.ddl import SessionContext

NAMES = {8: "latin1_swedish_ci", 9: "latin2_general_ci", 45: "utf8mb4_general_ci", 255: "utf8mb4_0900_ai_ci"}
MODE = (1 << 20 | 4 | 1).to_bytes(8, "little")


def read(variables: bytes) -> SessionContext:
    return SessionContext.from_status_variables("shop", variables, NAMES.get)


def test_status_variables_of_mysql() -> None:
    variables = (
        b"\0\0\0\0\0\x01"
        + MODE
        + b"\x06\x03std\x04\xff\0\xff\0\x09\0\x05\x06SYSTEM\x0c\x01shop\0\x10\x01\x12\x2d\0\x13\0"
    )
    assert read(variables) == SessionContext(
        "shop",
        ansi_quotes=True,
        no_backslash_escapes=True,
        real_as_float=True,
        collation_server="latin2_general_ci",
        default_collations=(("utf8mb4", "utf8mb4_general_ci"),),
    )


def test_the_usual_default_of_utf8mb4_is_no_deviation() -> None:
    assert read(b"\x12\xff\0").default_collations == ()


def test_status_variables_of_mariadb() -> None:
    variables = b"\x01" + (512).to_bytes(8, "little") + b"\x06\x03std\x83\x01\x08\0\x08\0\x04\x2d\0\x2d\0\x08\0"
    session = read(variables)
    assert (session.oracle, session.collation_server) == (True, "latin1_swedish_ci")
    assert session.default_collations == (("latin1", "latin1_swedish_ci"),)


@pytest.mark.parametrize(
    ("variables", "explicit"),
    [
        (b"\0\0\0\0\0\x10\x01", True),  # MySQL 8.0+ says it in a variable of its own
        (b"\0\0\0\0\0\x10\0", False),
        (b"\0\0\0\0\x01", True),  # MariaDB 10.8+ in a bit of its flags
        (b"\0\0\0\0\0", False),
        (b"", True),
    ],
)
def test_whether_timestamps_have_defaults_of_their_own_is_read(variables: bytes, explicit: bool) -> None:
    assert read(variables).explicit_defaults_for_timestamp is explicit


def test_what_comes_after_an_unknown_variable_is_left_unread() -> None:
    assert read(b"\x04\xff\0\xff\0\x08\0\xfe\x01\x02").collation_server == "latin1_swedish_ci"


def test_variables_that_are_cut_short_are_an_error() -> None:
    with pytest.raises(ValueError, match="variable 4 ends at 7 of 3 bytes"):
        read(b"\x04\xff\0")
