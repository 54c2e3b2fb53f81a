"""Debezium's envelope, byte for byte."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from changefeed import __version__
from changefeed.formats import render
from changefeed.formats.debezium import DebeziumFormat
from changefeed.formats.render import RowChange
from changefeed.formats.template import OPS, Op, Slot
from changefeed.model.table_schema import Column, TableSchema

ORDERS = TableSchema("shop", "orders", (Column("id", "bigint"), Column("region", "char"), Column("note", "text")), (0,))
FORMAT = DebeziumFormat("eu", 1_700_000_000_123)
BEFORE: dict[str, object] = {"id": 7, "region": "n", "note": None}
AFTER: dict[str, object] = {"id": 7, "region": "n", "note": 'a "quoted" \\ Zoë 😀\n'}
UPDATE = RowChange("u", BEFORE, AFTER, "bin.000012", 4077, 3, "uuid:9", 64001, 1_699_999_999)

HEAD = f'"version":"{__version__}","connector":"mysql","name":"eu","ts_ms":1699999999000,"snapshot":"false",'
SOURCE = (
    f'{{{HEAD}"db":"shop","sequence":null,"ts_us":1699999999000000,"ts_ns":1699999999000000000,"table":"orders",'
    '"server_id":64001,"gtid":"uuid:9","file":"bin.000012","pos":4077,"row":3,"thread":null,"query":null}'
)
TAIL = '"ts_ms":1700000000123,"ts_us":1700000000123000,"ts_ns":1700000000123000000}'
BEFORE_TEXT = '{"id":7,"region":"n","note":null}'
AFTER_TEXT = '{"id":7,"region":"n","note":"a \\"quoted\\" \\\\ Zoë 😀\\n"}'


@pytest.mark.parametrize(
    ("change", "text"),
    [
        pytest.param(
            UPDATE,
            f'{{"before":{BEFORE_TEXT},"after":{AFTER_TEXT},"source":{SOURCE},"transaction":null,"op":"u",{TAIL}',
            id="update",
        ),
        pytest.param(
            replace(UPDATE, op="c", before=None),
            f'{{"before":null,"after":{AFTER_TEXT},"source":{SOURCE},"transaction":null,"op":"c",{TAIL}',
            id="create",
        ),
        pytest.param(
            replace(UPDATE, op="d", after=None),
            f'{{"before":{BEFORE_TEXT},"after":null,"source":{SOURCE},"transaction":null,"op":"d",{TAIL}',
            id="delete",
        ),
        pytest.param(
            replace(UPDATE, op="r", before=None, snapshot="incremental"),
            f'{{"before":null,"after":{AFTER_TEXT},"source":{SOURCE.replace("false", "incremental")},'
            f'"transaction":null,"op":"r",{TAIL}',
            id="read",
        ),
    ],
)
def test_a_change_is_debeziums_envelope(change: RowChange, text: str) -> None:
    value = render.value(FORMAT, ORDERS, change)
    assert value.decode() == text
    assert orjson.loads(value)["op"] == change.op


def test_a_statement_and_a_missing_gtid_are_json_too() -> None:
    change = replace(UPDATE, gtid="", query='UPDATE orders SET note = "x"')
    source = orjson.loads(render.value(replace(FORMAT, queries=True), ORDERS, change))["source"]
    assert source["gtid"] is None
    assert source["query"] == 'UPDATE orders SET note = "x"'


def test_names_are_quoted() -> None:
    table = replace(ORDERS, database='sh"op', table="or\\ders")
    source = orjson.loads(render.value(DebeziumFormat('e"u', 0), table, UPDATE))["source"]
    assert (source["db"], source["table"], source["name"]) == ('sh"op', "or\\ders", 'e"u')


@pytest.mark.parametrize(("op", "region"), [("c", "new"), ("u", "new"), ("d", "old"), ("r", "new")])
def test_the_key_is_of_the_image_that_the_op_is_about(op: Op, region: str) -> None:
    change = replace(
        UPDATE,
        op=op,
        before=None if op in "cr" else {**BEFORE, "region": "old"},
        after=None if op == "d" else {**AFTER, "region": "new"},
    )
    table = replace(ORDERS, primary_key=(1, 0))
    assert render.key(FORMAT, table, change) == b'{"region":"%s","id":7}' % region.encode(), "in the key's own order"


def test_a_table_without_a_primary_key_has_a_null_key() -> None:
    assert render.key(FORMAT, replace(ORDERS, primary_key=()), UPDATE) is None


@pytest.mark.parametrize("op", OPS)
def test_a_template_is_text_and_slots_that_the_kernel_knows(op: Op) -> None:
    assert all(isinstance(part, bytes | Slot) for part in FORMAT.value(ORDERS, op))


def test_the_same_change_makes_the_same_bytes_at_each_retry() -> None:
    assert render.value(FORMAT, ORDERS, UPDATE) == render.value(DebeziumFormat("eu", 1_700_000_000_123), ORDERS, UPDATE)
