"""What events before a statement say that it took from its session."""

from __future__ import annotations

import struct

import pytest

from changefeed.model.statement_inputs import InputEvent, inputs_of, inputs_text


def variable(name: str, kind: int, value: bytes, tail: bytes = b"\0", collation: int = 255) -> tuple[int, bytes]:
    body = struct.pack("<I", len(name)) + name.encode() + b"\0" + struct.pack("<BII", kind, collation, len(value))
    return InputEvent.USER_VAR, body + value + tail


def test_numbers_seeds_and_variables() -> None:
    events = [
        (InputEvent.INTVAR, b"\x01" + struct.pack("<Q", 7)),
        (InputEvent.INTVAR, b"\x02" + struct.pack("<Q", 1 << 63)),
        (InputEvent.RAND, struct.pack("<QQ", 3, 4)),
        (InputEvent.USER_VAR, struct.pack("<I", 1) + b"n" + b"\1"),
        variable("text", 0, "é ".encode()),
        variable("r", 1, struct.pack("<d", 1.5e-7)),
        variable("i", 2, struct.pack("<q", -5)),
        variable("u", 2, struct.pack("<Q", 2**64 - 1), b"\1"),
    ]
    assert inputs_of(inputs_text(events)) == {
        "last_insert_id": 7,
        "insert_id": 1 << 63,
        "rand_seed1": 3,
        "rand_seed2": 4,
        "user_variables": [
            {"name": "n", "type": "null"},
            {"name": "text", "type": "string", "collation": 255, "value": "c3a920"},
            {"name": "r", "type": "real", "value": "1.5e-07"},
            {"name": "i", "type": "integer", "value": "-5"},
            {"name": "u", "type": "integer", "value": "18446744073709551615"},
        ],
    }
    assert inputs_of("") == {}


@pytest.mark.parametrize(
    ("data", "number"),
    [
        ("0e04 810dfb38d204d2", "1234567890.1234"),  # the example of decimal2bin's comment
        ("0e04 7ef204c72dfb2d", "-1234567890.1234"),
        ("0101 85", ".5"),
        ("0200 8c", "12"),
    ],
)
def test_decimals_are_those_of_the_servers_own_notation(data: str, number: str) -> None:
    (read,) = inputs_of(inputs_text([variable("d", 4, bytes.fromhex(data.replace(" ", "")))]))["user_variables"]  # type: ignore[misc]
    assert read["value"] in (number, f"0{number}")  # type: ignore[index]


@pytest.mark.parametrize(
    "event",
    [
        (InputEvent.INTVAR, b"\x03" + bytes(8)),
        (InputEvent.INTVAR, b"\x01\x00"),
        (InputEvent.RAND, bytes(15)),
        (InputEvent.USER_VAR, struct.pack("<I", 9) + b"short"),
        (InputEvent.USER_VAR, variable("s", 0, b"abc", b"")[1][:-1]),
        variable("x", 3, b""),
    ],
)
def test_what_cannot_be_read_is_refused(event: tuple[int, bytes]) -> None:
    with pytest.raises(ValueError, match=r"cannot be read|has 2 of 3 bytes|is not a valid"):
        inputs_of(inputs_text([event]))
