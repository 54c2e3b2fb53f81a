"""Rows of a range by table, for the plan of a backfill."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from changefeed.binlog.search.schema_scan import TableCounts, count_rows
from changefeed.model.window import Slice

TABLE_MAP, WRITE_ROWS, UPDATE_ROWS = 19, 30, 31


def event(kind: int, body: bytes, position: int) -> bytes:
    size = 19 + len(body)
    return struct.pack("<IBIIIH", 0, kind, 1, size, position + size, 0) + body


def written(*events: tuple[int, bytes]) -> bytes:
    """A range that begins at position 4."""
    chunk = b""
    for kind, body in events:
        chunk += event(kind, body, 4 + len(chunk))
    return chunk


def table_map(table_id: int, database: bytes, table: bytes) -> bytes:
    name = bytes([len(database)]) + database + b"\0" + bytes([len(table)]) + table + b"\0"
    return table_id.to_bytes(6, "little") + b"\1\0" + name


def rows(table_id: int, size: int) -> bytes:
    return table_id.to_bytes(6, "little") + bytes(size)


def test_rows_are_counted_under_the_name_of_their_table() -> None:
    chunk = written(
        (TABLE_MAP, table_map(7, b"shop", b"orders")),
        (WRITE_ROWS, rows(7, 100)),
        (TABLE_MAP, table_map(8, b"shop", b"customers")),
        (UPDATE_ROWS, rows(8, 10)),
        (UPDATE_ROWS, rows(7, 50)),
    )
    counts: dict[str, TableCounts] = {}
    count_rows([chunk], counts, Slice(0, "binlog.000001", 4, 4 + len(chunk)))
    assert counts == {"shop.orders": TableCounts(2, 125 + 75), "shop.customers": TableCounts(1, 35)}


IDS, NAMES = st.integers(1, 4), st.sampled_from([b"a", b"b", b"c" * 60])
EVENTS = st.one_of(
    st.tuples(st.just(TABLE_MAP), IDS, NAMES, st.binary(max_size=9)),
    st.tuples(st.sampled_from([WRITE_ROWS, UPDATE_ROWS, 24, 39, 169]), IDS, st.integers(0, 50)),
    st.tuples(st.just(16)),
)


@given(st.lists(EVENTS), st.integers(1, 300))
def test_an_id_may_become_another_tables(events: list[tuple[Any, ...]], chunk_bytes: int) -> None:
    names: dict[int, str] = {}
    model: dict[str, TableCounts] = {}
    bodies = []
    for kind, *values in events:
        if kind == TABLE_MAP:
            table_id, name, columns = values
            names[table_id] = f"shop.{name.decode()}"
            bodies.append((kind, table_map(table_id, b"shop", name) + columns))
        elif values:
            table_id, size = values
            bodies.append((kind, rows(table_id, size)))
            if table_id in names:
                count = model.setdefault(names[table_id], TableCounts())
                count.rows += 1
                count.size_bytes += 19 + 6 + size
        else:
            bodies.append((kind, bytes(8)))
    data = written(*bodies)
    counts: dict[str, TableCounts] = {}
    chunks = [data[at : at + chunk_bytes] for at in range(0, len(data), chunk_bytes)]
    count_rows(chunks, counts, Slice(0, "binlog.000001", 4, 4 + len(data)))
    assert counts == model
