"""`reader: reference` (mysql-replication) against the kernel, over all column types: it makes the same message or
refuses the row. docs/explanation/decoding.md lists the refusals."""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from integration.random_tables import column_makers, columns_of_all_charsets

from changefeed.binlog.decoder import KernelDecoder
from changefeed.errors import BinlogFormatError, SchemaError
from changefeed.formats.debezium import DebeziumFormat
from changefeed.formats.style import Encoding, Kind, Style
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.route import Route
from changefeed.model.slice_report import SliceReport
from changefeed.model.window import Slice
from changefeed.records.block import Message, MessageBlock
from changefeed.source.mysql.catalog import catalog_lookup
from changefeed.source.mysql.reference import ReferenceReader
from changefeed.source.mysql.session import Session
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.sql_server import SqlServer

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "decoding.md"
FORMAT = DebeziumFormat("t", 0, Style({Kind.BIT: Encoding.CONNECT}))
COLUMNS, ROWS = 4, 4
"""Columns of each kind, and rows of each column."""

MYSQL, MARIADB = {"full_mysql_server", "mysql_server"}, {"full_mariadb_server", "mariadb_server"}
FULL = {"full_mysql_server", "full_mariadb_server"}

DIRECTED = {
    "TIMESTAMP NULL": ["'0000-00-00 00:00:00'", "'1970-01-01 00:00:01'"],
    "TIMESTAMP(2) NULL": ["'0000-00-00 00:00:00'"],
    "DATE": ["'2026-01-00'", "'0001-01-01'"],
    "DATETIME(3)": ["'0000-00-00 00:00:00'", "'0001-01-01 00:00:00.5'"],
    "TIME(1)": ["'-00:00:00.5'", "'-838:59:59'", "'00:00:00.5'"],
    "YEAR": ["0", "1901"],
    "BINARY(3)": ["''", "X'00'", "X'610062'"],
    "BIGINT UNSIGNED": ["18446744073709551615"],
    "SET('a','b')": ["''", "'b'"],
    "ENUM('a','b')": ["''", "'b'"],
    "CHAR(3) CHARACTER SET hebrew": ["_utf8mb4 X'E280BE'", "_utf8mb4 X'D790'"],
    "CHAR(3) CHARACTER SET sjis": ["_utf8mb4 X'5C'", "_utf8mb4 X'E38386'"],
}
"""Values by column definition that random rows may miss."""
DIRECTED_JSON = [
    "JSON_OBJECT('d', 1.50)",
    "JSON_ARRAY(CAST('2026-01-02' AS DATE))",
    "JSON_ARRAY(CAST('10:11:12' AS TIME))",
    "JSON_OBJECT('b', CAST(X'00FF10' AS BINARY))",
    "CAST('null' AS JSON)",
    "CAST('7' AS JSON)",
    "CAST('\"text\"' AS JSON)",
]


@dataclass(frozen=True)
class Refusal:
    """A refusal of the reader: the page's entry, column definitions, the message, values, servers."""

    on_page: str
    definition: str
    says: str
    value: Callable[[str], bool] = lambda _value: True
    servers: frozenset[str] = frozenset(MYSQL | MARIADB)


REFUSALS = [
    Refusal("`VECTOR`", "VECTOR", "decode event type|VECTOR", servers=frozenset(MYSQL)),
    Refusal("`COMPRESSED` columns", "COMPRESSED", "decode event type", servers=frozenset(MARIADB)),
    Refusal("0000-00-00", "DATE", "date that Python does not know", lambda value: "-00" in value),
    Refusal("negative `TIME`", "TIME", "negative time with a fraction", lambda value: value.startswith("-")),
    Refusal(
        "`ucs2` and `utf16le`",
        "CHARACTER SET (armscii8|dec8|eucjpms|geostd8|hp8|keybcs2|macce|swe7|ucs2|utf16le)$",
        "for which Python has no codec",
    ),
    Refusal(
        "characters that Python's codec",
        "CHARACTER SET",
        "differs between Python|UnicodeDecodeError",
    ),
    Refusal("`utf16` and `utf32`", "CHARACTER SET utf(16|32)$", "is in utf(16|32)"),
    Refusal(
        "`ENUM` and `SET` with labels that are not UTF-8",
        "(ENUM|SET).*CHARACTER SET (?!utf8)",
        "has labels in",
        servers=frozenset(FULL),
    ),
    Refusal("`UUID`, `INET4`, `INET6`", "UUID|INET", "looks like BINARY", servers=frozenset(MARIADB)),
    Refusal(
        "`JSON` with a decimal, a date, a time or bytes in it",
        "JSON",
        "in its JSON|decode event type 3[012]",
        servers=frozenset(MYSQL),
    ),
]


@dataclass(frozen=True)
class Row:
    """A row that was changed: the definition of its table's one column, and the change's part of the binlog."""

    definition: str
    slice: Slice


def changed(server: SqlServer, database: str, kind: str) -> tuple[list[Row], bytes]:
    """Rows of all types that are inserted, moved, changed and deleted in one binlog file, and that file."""
    mariadb = kind in MARIADB
    rng = random.Random("reference")
    columns = [maker(rng, "c") for maker in column_makers(mariadb).values() for _ in range(COLUMNS)]
    columns += columns_of_all_charsets(rng, mariadb) if kind in FULL else []
    values = [(column.definition, [column.literal(rng) for _ in range(ROWS)]) for column in columns]
    values += [*DIRECTED.items(), *([] if mariadb else [("JSON", DIRECTED_JSON)])]
    rows: list[Row] = []
    with server.connect() as connection, connection.cursor() as cursor:
        status = "SHOW MASTER STATUS" if mariadb else "SHOW BINARY LOG STATUS"
        cursor.execute(f"CREATE DATABASE {database}")
        cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
        cursor.execute("FLUSH BINARY LOGS")
        for number, (definition, literals) in enumerate(values):
            cursor.execute(f"CREATE TABLE {database}.t{number} (id INT PRIMARY KEY, c {definition})")
            cursor.execute(status)
            name, start = cursor.fetchone()[:2]
            table = f"{database}.t{number}"
            changes = [f"INSERT INTO {table} VALUES ({key}, {literal})" for key, literal in enumerate(literals)]
            changes += [f"UPDATE {table} SET id = 100 WHERE id = 0"]
            changes += [f"UPDATE {table} a JOIN {table} b ON b.id = 1 SET a.c = b.c WHERE a.id = 100"]
            changes += [f"DELETE FROM {table} WHERE id = 100"]
            for change in changes:
                if not cursor.execute(change):
                    continue  # the two values are the same, and nothing is logged
                cursor.execute(status)
                end = cursor.fetchone()[1]
                rows.append(Row(definition, Slice(0, name, start, end)))
                start = end
    return rows, (server.data / name).read_bytes()


class Readers:
    """The two readers of the events of one server's binlog file."""

    def __init__(self, server: SqlServer, data: bytes) -> None:
        self._server, self._data = server, data
        self._schemas = catalog_lookup(lambda: Session(MysqlConnection.from_uri(server.root_url)))
        self._decoder = KernelDecoder(self._route, self._schemas, FORMAT, "uuid")
        (size,) = struct.unpack_from("<I", data, FIRST_POSITION + 9)
        self._description = data[FIRST_POSITION : FIRST_POSITION + size]

    def _route(self, _database: str, table: str) -> Route:
        return Route(table, 1)

    def _chunks(self, slice: Slice) -> list[bytes]:
        return [self._description, self._data[slice.start : slice.end]]

    def kernel(self, slice: Slice) -> list[Message]:
        return decoded(self._decoder.decode(self._chunks(slice), slice))

    def reference(self, slice: Slice) -> list[Message]:
        mariadb = isinstance(self._server, MariadbServer)
        reader = ReferenceReader(
            self._chunks(slice),
            is_mariadb=mariadb,
            version=(11, 4) if mariadb else (9, 7),
            server_uuid="uuid",
            router=self._route,
            schemas=self._schemas,
            format=FORMAT,
        )
        return decoded(reader.read(slice))


def decoded(items: Iterable[MessageBlock | SliceReport]) -> list[Message]:
    return [message for item in items if isinstance(item, MessageBlock) for message in item.messages()]


def values_of(messages: list[Message]) -> list[str]:
    """The values of the column in all images of ``messages``."""
    changes = [json.loads(message.value) for message in messages if message.value is not None]
    images = [change[image] for change in changes for image in ("before", "after") if change[image] is not None]
    return [str(image["c"]) for image in images]


@pytest.mark.parametrize("kind", sorted(MYSQL | MARIADB))
def test_reference_reader_equals_the_kernel_or_refuses_the_row(
    kind: str, request: pytest.FixtureRequest, unique_name: str
) -> None:
    server: SqlServer = request.getfixturevalue(kind)
    rows, data = changed(server, unique_name, kind)
    readers = Readers(server, data)
    refused, wrong = set(), []
    for row in rows:
        ours = readers.kernel(row.slice)
        values = values_of(ours)
        try:
            theirs = readers.reference(row.slice)
        except (BinlogFormatError, SchemaError) as error:
            reasons = {refusal.on_page for refusal in REFUSALS if is_known(refusal, row, values, str(error), kind)}
            refused |= reasons
            if not reasons:
                wrong.append(f"{row.definition} {values!r} was refused: {error}")
            continue
        is_json_null = row.definition == "JSON" and "null" in values  # for the library equal to NULL
        if theirs != ours and not is_json_null:
            wrong.append(f"{row.definition}: {values!r} is {values_of(theirs)!r} of {theirs}")
    assert wrong == []
    texts = {"`ucs2` and `utf16le`", "`utf16` and `utf32`"}  # the random columns of stock servers may miss them
    expected = {refusal.on_page for refusal in REFUSALS if kind in refusal.servers}
    assert refused >= (expected if kind in FULL else expected - texts)


def is_known(refusal: Refusal, row: Row, values: list[str], error: str, kind: str) -> bool:
    return (
        kind in refusal.servers
        and bool(re.search(refusal.definition, row.definition))
        and bool(re.search(refusal.says, error))
        and any(map(refusal.value, values))
    )


def test_the_page_lists_what_is_refused() -> None:
    page = PAGE.read_text()
    assert [refusal.on_page for refusal in REFUSALS if refusal.on_page not in page] == []


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("binlog_transaction_compression = ON", "event of type 40"),
        ("gtid_next = 'AUTOMATIC:tagged'", "event of type 42"),
        ("binlog_row_image = MINIMAL", "expected binlog_row_image=FULL"),
    ],
)
def test_unreadable_transaction_is_refused_with_its_coordinates(
    full_mysql_server: MysqlServer, database: str, setting: str, says: str
) -> None:
    full_mysql_server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, c INT)", "FLUSH BINARY LOGS")
    name, start = full_mysql_server.execute("SHOW BINARY LOG STATUS")[0][:2]
    full_mysql_server.execute(f"SET SESSION {setting}", f"INSERT INTO {database}.t (id) VALUES (1)")
    end = full_mysql_server.execute("SHOW BINARY LOG STATUS")[0][1]
    readers = Readers(full_mysql_server, (full_mysql_server.data / name).read_bytes())
    slice = Slice(0, name, start, end)
    assert len(readers.kernel(slice)) == 1
    with pytest.raises(BinlogFormatError, match=rf"{says}") as refused:
        readers.reference(slice)
    assert f"{name}:" in str(refused.value)
