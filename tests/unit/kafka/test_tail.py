"""Lines of records: what is not JSON is shown as far as it can be read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from changefeed.cli.tail import RecordLines
from changefeed.formats.avro_reader import AvroReader
from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.operations.record_values import RecordValues
from changefeed.records.varint import encode_bytes, encode_varint


class OneSchema:
    """A registry with one schema, whose id is 7."""

    def __init__(self, schema: Any) -> None:
        self._text, self.asked = json.dumps(schema), 0

    def schema(self, number: int) -> str | None:
        self.asked += 1
        return self._text if number == 7 else None


def line_of(value: bytes | None, registry: OneSchema | None = None) -> Any:
    shown = RecordLines(RecordValues(registry.schema if registry else None))
    record = KafkaRecord("t", 0, 5, None, value, (("h", b"\xff"),), 0, stamped_by_broker=False)
    line = [json.loads(shown.line(record)) for _ in range(2)][-1]
    assert line["headers"] == {"h": "0xff"}
    return line["value"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b'{"a": 1}', {"a": 1}),
        (b'{"schema": {"type": "struct"}, "payload": {"a": 1}}', {"a": 1}),
        (b'{"schema": 1, "payload": 2, "more": 3}', {"schema": 1, "payload": 2, "more": 3}),
        ("größe".encode(), "größe"),
        (b"\x00\x01\xfe", "0x0001fe"),
        (None, None),
    ],
)
def test_each_record_has_a_line(value: bytes | None, shown: Any) -> None:
    assert line_of(value) == shown


NESTED = {
    "type": "record",
    "name": "Row",
    "namespace": "shop",
    "fields": [
        {
            "name": "before",
            "type": ["null", {"type": "record", "name": "Value", "fields": [{"name": "n", "type": "long"}]}],
        },
        {"name": "after", "type": ["null", "Value"]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}},
        {"name": "tags", "type": {"type": "array", "items": {"type": "enum", "name": "Tag", "symbols": ["x", "y"]}}},
        {"name": "more", "type": {"type": "map", "values": "boolean"}},
        {"name": "id", "type": {"type": "fixed", "name": "Id", "size": 2}},
    ],
}
RECORD = (
    b"\x00\x02" + encode_varint(-3) + encode_bytes(b"\xff\x38")
    + encode_varint(-2) + encode_varint(2) + b"\x02\x00" + b"\x00"
    + encode_varint(1) + encode_bytes(b"k") + b"\x01" + b"\x00"
    + b"\x01\x02"
)  # fmt: skip


def test_avro_is_read_by_the_schema_that_its_id_names_and_that_is_asked_for_once() -> None:
    registry = OneSchema(NESTED)
    shown = {
        "before": None,
        "after": {"n": -3},
        "price": "-2.00",
        "tags": ["y", "x"],
        "more": {"k": True},
        "id": "AQI=",
    }
    assert line_of(b"\x00\x00\x00\x00\x07" + RECORD, registry) == shown
    assert registry.asked == 1
    unknown = b"\x00\x00\x00\x00\x08" + RECORD
    assert line_of(unknown, registry) == "0x" + unknown.hex()
    assert line_of(b"\x00\x00\x00\x00\x07" + RECORD[:-1], registry).startswith("0x00")


def test_invalid_avro_bytes_are_refused_at_any_cut() -> None:
    reader = AvroReader(json.dumps(NESTED))
    for end in range(len(RECORD)):
        with pytest.raises(ValueError, match="no record of its schema"):
            reader.read(RECORD[:end])
