"""Records of Avro whose schemas somebody else registered: what they hold is bounded by their bytes."""

from __future__ import annotations

import time
from typing import Any

import orjson
import pytest

from changefeed.formats.avro_reader import AvroReader

NULLS = {"type": "array", "items": "null"}


def reader(schema: Any) -> AvroReader:
    return AvroReader(orjson.dumps(schema).decode())


def of_nothing(depth: int) -> Any:
    """A record of ten records of ten records ... of nothing: 10 ** depth values in no byte."""
    schema: Any = {"type": "record", "name": "r0", "fields": []}
    for level in range(1, depth + 1):
        first = {"name": "f0", "type": schema}
        others = [{"name": f"f{number}", "type": f"r{level - 1}"} for number in range(1, 10)]
        schema = {"type": "record", "name": f"r{level}", "fields": [first, *others]}
    return schema


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        (NULLS, b"\xfe\xff\x7f" * 200_000 + b"\0"),
        ({"type": "array", "items": NULLS}, b"\xc0\x9a\x0c" + b"\xc0\x9a\x0c\0" * 100_000 + b"\0"),
        (of_nothing(9), b""),
        ({"type": "array", "items": {"type": "fixed", "name": "f", "size": -1}}, b"\x02\0"),
        ("long", b"\xff" * 1_000_000 + b"\x01"),
        ({"type": "bytes", "logicalType": "decimal", "scale": 900_000}, b"\x02\x01"),
        ({"type": "bytes", "logicalType": "decimal"}, b"\xc0\x84\x3d" + b"\x7f" * 500_000),
        ({"type": "record", "name": "r", "fields": [{"name": "f", "type": "r"}]}, b""),
        ({"type": "fixed", "name": "f", "size": "x"}, b""),
    ],
)
def test_a_record_of_more_than_its_bytes_is_none(schema: Any, data: bytes) -> None:
    begin = time.process_time()
    with pytest.raises(ValueError, match="no record of its schema"):
        reader(schema).read(data)
    assert time.process_time() - begin < 10


@pytest.mark.parametrize("schema", ['{"type": "record", "fields": 1}', '{"name": 1}', '{"fields": [{}]}'])
def test_a_schema_that_is_none_is_said_to_be_none(schema: str) -> None:
    with pytest.raises(ValueError, match="no schema of Avro"):
        AvroReader(schema)


def test_a_decimal_has_all_of_its_digits() -> None:
    unscaled = -(10**64 + 1)
    text = reader({"type": "bytes", "logicalType": "decimal", "scale": 30}).read(
        bytes([2 * 28]) + unscaled.to_bytes(28, "big", signed=True)
    )
    assert text == f"-1{'0' * 34}.{'0' * 29}1"


def test_nulls_are_read_as_they_are() -> None:
    assert reader(NULLS).read(b"\x06\0") == [None, None, None]
    assert reader({"type": "map", "values": ["null", "long"]}).read(b"\x02\x02a\x02\x04\0") == {"a": 2}
