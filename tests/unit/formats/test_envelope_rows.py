"""Where the rows of envelopes are, without reading the envelopes, is what reading them says."""

from __future__ import annotations

import orjson
from unit.damaged_json import ROW, loads, mutations

from changefeed.formats.envelope import rows_of_envelopes
from changefeed.formats.reader import RowRanges
from changefeed.model.table_schema import TableSchema
from changefeed.verify.strings import Strings

ENVELOPE = (
    b'{"before":null,"after":' + ROW + b',"source":{"db":"shop","tables":["x",{}],"table":"pets"},"op":"c","ts_ms":1}'
)


def found(*values: bytes) -> RowRanges:
    column = Strings.of(values)
    return rows_of_envelopes([TableSchema("shop", "pets", ())])(column.data, column.starts, column.ends)


def test_mutated_envelope_is_read_as_orjson_reads_it_or_left_to_orjson() -> None:
    texts = mutations(ENVELOPE, 6_000, 1)
    taken, starts, rows = 0, Strings.of(texts).starts, found(*texts)
    for number, text in enumerate(texts):
        if rows.ops[number] < 0:
            continue
        taken += 1
        value = loads(text)
        assert value is not None, text
        assert value["op"] == chr(rows.ops[number])
        for name, where in (("before", rows.before[number]), ("after", rows.after[number])):
            begin, end = where - starts[number]
            image = None if where[0] < 0 else text[begin:end]
            assert value[name] == (None if image is None else orjson.loads(image)), text
        source = value.get("source")
        is_pets = isinstance(source, dict) and (source.get("db"), source.get("table")) == ("shop", "pets")
        assert rows.tables[number] == (0 if is_pets else -1) or b"\\" in text
    assert taken > 1_000
