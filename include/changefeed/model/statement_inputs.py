"""Inputs from the session of a change in statement format. The binlog has them in events before the statement.

- INTVAR: the value of LAST_INSERT_ID(), or the first number of AUTO_INCREMENT
- RAND: the seeds of RAND()
- USER_VAR: a user variable that the statement reads

Sources: https://dev.mysql.com/doc/dev/mysql-server/latest/classmysql_1_1binlog_1_1event_1_1Intvar__event.html and the
pages of Rand_event and User_var_event beside it; `decimal2bin` in strings/decimal.cc for a decimal's bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum

InputValue = int | str | list[dict[str, int | str]]

_INTVARS = {1: "last_insert_id", 2: "insert_id"}
_UNSIGNED = 1
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4)
"""The number of bytes for 0 to 8 decimal digits. Nine digits take four bytes."""


class InputEvent(IntEnum):
    """The types of these events."""

    INTVAR = 5
    RAND = 13
    USER_VAR = 14


class _Type(IntEnum):
    """Types of a user variable's value."""

    STRING = 0
    REAL = 1
    INTEGER = 2
    DECIMAL = 4


def inputs_text(events: Iterable[tuple[int, bytes]]) -> str:
    """The text of ``events`` that `inputs_of` reads. An event is its type and its bytes between header and checksum."""
    return " ".join(f"{kind}:{body.hex()}" for kind, body in events)


def inputs_of(text: str) -> dict[str, InputValue]:
    """The session variables to set before the statement is executed again, by name.

    `user_variables` is a list. Each user variable has a ``name``, a ``type`` (string, real, integer, decimal or null)
    and, unless it is null, a ``value``. The value of a string is in hexadecimal, and ``collation`` is the number of its
    collation. Raises ValueError for an event that cannot be read.
    """
    values: dict[str, InputValue] = {}
    variables = []
    for kind, body in _events(text):
        try:
            match kind:
                case InputEvent.INTVAR:
                    values[_INTVARS[body[0]]] = struct.unpack_from("<Q", body, 1)[0]
                case InputEvent.RAND:
                    values["rand_seed1"], values["rand_seed2"] = struct.unpack_from("<QQ", body)
                case InputEvent.USER_VAR:
                    variables.append(_variable(body))
        except (struct.error, KeyError, IndexError) as error:
            raise ValueError(f"an event of type {kind} cannot be read: {error!r}") from error
    if variables:
        values["user_variables"] = variables
    return values


def _events(text: str) -> Iterator[tuple[int, bytes]]:
    for event in text.split():
        kind, _, body = event.partition(":")
        yield int(kind), bytes.fromhex(body)


def _variable(body: bytes) -> dict[str, int | str]:
    (size,) = struct.unpack_from("<I", body)
    at = 4 + size
    name = body[4:at].decode("utf-8")
    if body[at]:
        return {"name": name, "type": "null"}
    kind, collation, size = struct.unpack_from("<BII", body, at + 1)
    at += 10
    value = body[at : at + size]
    if len(value) != size:
        raise ValueError(f"the value of the user variable {name!r} has {len(value)} of {size} bytes")
    match _Type(kind):
        case _Type.STRING:
            return {"name": name, "type": "string", "collation": collation, "value": value.hex()}
        case _Type.REAL:
            return {"name": name, "type": "real", "value": repr(struct.unpack("<d", value)[0])}
        case _Type.INTEGER:
            is_unsigned = len(body) > at + size and body[at + size] & _UNSIGNED
            (number,) = struct.unpack("<Q" if is_unsigned else "<q", value)
            return {"name": name, "type": "integer", "value": str(number)}
        case _Type.DECIMAL:
            return {"name": name, "type": "decimal", "value": _decimal(value[0], value[1], value[2:])}


def _decimal(precision: int, scale: int, data: bytes) -> str:
    """The text of a decimal in the format of `decimal2bin`.

    The bytes have groups of nine digits on both sides of the decimal point. The first bit is inverted. In a negative
    number all other bits are inverted, too.
    """
    integer_digits = precision - scale
    sizes = [integer_digits % 9, *[9] * (integer_digits // 9), *[9] * (scale // 9), scale % 9]
    is_negative = not data[0] & 0x80
    data = bytes([data[0] ^ 0x80, *data[1:]])
    if is_negative:
        data = bytes(byte ^ 0xFF for byte in data)
    digits, at = "", 0
    for size in sizes:
        count = 4 if size == 9 else _DIGIT_BYTES[size]
        digits += str(int.from_bytes(data[at : at + count], "big")).zfill(size) if size else ""
        at += count
    number = f"{digits[:integer_digits] or '0'}.{digits[integer_digits:]}" if scale else digits
    return f"-{number}" if is_negative else number
