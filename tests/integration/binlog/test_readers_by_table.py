"""Readers that divide a server's tables, and ranges of its binlog: together they make the messages of one reader.

A table's id in the binlog changes after ALTER, RENAME, DROP and FLUSH TABLES: readers divide tables by name.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

import pytest
from integration.binlog.test_event_types import kinds_by_position
from integration.binlog_of import SERVER_UUID, binlog_of

from changefeed.binlog.decoder import KernelDecoder
from changefeed.binlog.events.framing import HEADER_SIZE, EventType, Fields
from changefeed.binlog.events.table_map import TableMap
from changefeed.formats.debezium import DebeziumFormat
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.route import Route
from changefeed.model.slice_report import SliceReport
from changefeed.model.window import Slice
from changefeed.records.block import Message
from devstack.sql_server import SqlServer

STATEMENTS = (
    "CREATE TABLE a (id INT PRIMARY KEY, x INT)",
    "CREATE TABLE b (id INT PRIMARY KEY, x INT)",
    "INSERT INTO a VALUES (1, 1)",
    "INSERT INTO b VALUES (1, 1)",
    "ALTER TABLE a ADD y INT",
    "INSERT INTO a VALUES (2, 2, 2)",
    "FLUSH TABLES",
    "UPDATE a JOIN b USING (id) SET a.x = 9, b.x = 9",
    "DROP TABLE b",
    "CREATE TABLE b (id INT PRIMARY KEY, other VARCHAR(9))",
    "INSERT INTO b VALUES (1, 'other')",
    "RENAME TABLE a TO c, b TO a",
    "INSERT INTO a VALUES (2, 'was b')",
    "INSERT INTO c VALUES (3, 3, 3)",
    "DELETE FROM c",
)
ROWS = {"a": {"c": 3, "u": 1}, "b": {"c": 2, "u": 1}, "c": {"c": 1, "d": 3}}


@pytest.mark.parametrize("server_fixture", ["full_mysql_server", "full_mariadb_server"])
def test_readers_of_tables_and_ranges_make_what_one_reader_makes(
    request: pytest.FixtureRequest, server_fixture: str, unique_name: str
) -> None:
    server: SqlServer = request.getfixturevalue(server_fixture)
    binlog = binlog_of(server, unique_name, *STATEMENTS)
    ids: dict[str, set[int]] = defaultdict(set)
    boundaries = [FIRST_POSITION]
    for at, kind in kinds_by_position(binlog.data):
        if kind == EventType.TABLE_MAP:
            table_id, _, table = TableMap.names(Fields(binlog.data[at + HEADER_SIZE :]))
            ids[table].add(table_id)
        if kind in (EventType.GTID, EventType.ANONYMOUS_GTID, EventType.MARIADB_GTID):
            boundaries.append(at)
    assert len(ids["a"]) == 4, ids  # as created, as altered, after FLUSH TABLES, and the renamed b
    assert len(ids["b"]) == 3, ids

    def read(takes: Callable[[str], bool], start: int, end: int) -> tuple[list[Message], SliceReport]:
        decoder = KernelDecoder(
            lambda database, table: Route(table, 1) if database == unique_name and takes(table) else None,
            lambda *_: None,
            DebeziumFormat("p", 0),
            SERVER_UUID,
        )
        # A dump of a range further on begins with the FORMAT_DESCRIPTION, too.
        second, _ = list(kinds_by_position(binlog.data))[1]
        head = binlog.data[FIRST_POSITION:second] if start > FIRST_POSITION else b""
        messages: list[Message] = []
        for item in decoder.decode([head, binlog.data[start:end]], Slice(0, binlog.name, start, end)):
            if isinstance(item, SliceReport):
                return sorted(messages, key=lambda message: (message.position, message.sequence)), item
            messages += item.messages()
        raise AssertionError("no report")

    end, middle = len(binlog.data), boundaries[len(boundaries) // 2]
    alone, report = read(lambda _: True, FIRST_POSITION, end)
    assert report.rows == {f"{unique_name}.{table}": ops for table, ops in ROWS.items()}
    total = sum(sum(ops.values()) for ops in ROWS.values())
    shares: list[Message] = []
    rows: Counter[tuple[str, str]] = Counter()
    for takes in (lambda table: table == "b", lambda table: table != "b"):
        of_reader = [read(takes, FIRST_POSITION, middle), read(takes, middle, end)]
        assert sum(part.size_bytes for _, part in of_reader) == end - FIRST_POSITION
        assert sum(part.events for _, part in of_reader) == report.events
        for messages, part in of_reader:
            shares += messages
            rows.update({(table, op): count for table, ops in part.rows.items() for op, count in ops.items()})
        published = sum(sum(ops.values()) for _, part in of_reader for ops in part.rows.values())
        assert published + sum(part.skipped_rows for _, part in of_reader) == total
    assert sorted(shares, key=lambda message: (message.position, message.sequence)) == alone
    assert rows == {(table, op): count for table, ops in report.rows.items() for op, count in ops.items()}
