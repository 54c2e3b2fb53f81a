"""Follows a server's binlog while a script runs, and compares: schemas with information_schema, rows with SELECT.

Before each statement of another kind, the new events of the binlog are read. DDL advances the followed schemas, which
have to be equal to information_schema. Row changes are applied to the tables as they were read after their last DDL,
which have to be equal to SELECT.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

import orjson
import pymysql
from foreign import values
from foreign.player import Player
from foreign.reference import Reference, agrees
from integration.ddl_follower import Follower, is_same_table, learned_tables

from changefeed.binlog.decoder import KernelDecoder
from changefeed.ddl import Kind, Schemas, TableName
from changefeed.ddl.changes import CreateTable, CreateTableLike
from changefeed.ddl.history import read_logged
from changefeed.errors import ChangefeedError
from changefeed.formats.columns import SEPARATOR, ColumnsFormat
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.route import Route
from changefeed.model.slice_report import SliceReport
from changefeed.model.statement import Statement
from changefeed.model.table_schema import TableSchema
from changefeed.model.window import Slice
from changefeed.records.block import MessageBlock
from changefeed.source.mysql.own_tables import SYSTEM_DATABASES
from changefeed.source.mysql.server_schemas import collation_names, current_schemas
from changefeed.source.mysql.session import Session
from changefeed.spark.stages.transaction_outcomes import resolve_transactions
from devstack.sql_server import SqlServer

DEFINES = re.compile(r"[\s(]*(/\*.*?\*/\s*)*(CREATE|ALTER|DROP|RENAME|TRUNCATE|OPTIMIZE|REPAIR)\b", re.I | re.S)
HIDDEN = re.compile(r"DB_ROW_HASH_\d+|row_start|row_end")
"""Hidden columns, which MariaDB's rows have and SELECT * does not."""
MOST_ROWS = 3000
MOST_DIFFERENCES = 20

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Difference:
    """Something that was compared and is not equal."""

    what: str
    """`schema`, `default` (as SQL, where the server lists a computed value), `rows` or `error`."""
    table: str
    text: str
    is_servers: bool = False
    """Whether another program reads the same rows from the binlog, so that the server logged them so."""


@dataclass
class Observations:
    """What one script showed."""

    schemas: int = 0
    tables: int = 0
    changes: int = 0
    differences: list[Difference] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    """What was not compared, and why."""


class Comparer:
    """Compares the effects of a script on a server that only the script uses."""

    def __init__(self, server: SqlServer, reference: Reference) -> None:
        self._reference = reference
        self._follower = Follower(server)
        self._session = Session(MysqlConnection.from_uri(server.root_url))
        self._collations = collation_names(self._session)
        self._observer = server.connect(charset="utf8mb4")
        with self._observer.cursor() as cursor:
            cursor.execute("SET sql_mode = '', time_zone = '+00:00', lock_wait_timeout = 1")
        self.path = server.data / self._follower.file
        self._position = self._end()
        data = self.path.open("rb").read(FIRST_POSITION + 4096)
        (size,) = struct.unpack_from("<I", data, FIRST_POSITION + 9)
        self._description = data[FIRST_POSITION : FIRST_POSITION + size]
        self._schemas: Schemas = current_schemas(self._session)
        self._decoder = KernelDecoder(self._route, self._lookup, ColumnsFormat(), "uuid", on_statement=self._take)
        self._probe = KernelDecoder(lambda *_: None, lambda *_: None, ColumnsFormat(), "uuid")
        self._tables: dict[TableName, Counter[Row] | None] = {}
        """The rows that records make; None for a table that has to be read anew."""
        self._images: dict[TableName, list[dict[str, Any]]] = {}
        """The row images since the last comparison, which was at ``_since``."""
        self._since = self._position
        self._missing: dict[TableName, str] = {}
        """A change since then of a row that is not in its table."""
        self._defined: set[TableName] = set()
        self._changed: set[TableName] = set()
        self._is_changing = False
        self.observations = Observations()

    def close(self) -> None:
        """End its connections."""
        self._follower.close()
        self._session.raw.close()
        self._observer.close()

    def watch(self, player: Player, sql: str | None) -> None:
        """Called before each statement, and after it with None."""
        if sql is None:
            return
        defines = bool(DEFINES.match(sql))
        if defines == self._is_changing:
            self.look(player.in_transaction)
        self._is_changing = not defines

    def look(self, in_transaction: bool) -> None:
        """Read the new events of the binlog, and compare."""
        start, end = self._position, self._end()
        if end > start:
            self._position = end
            try:
                self._read(start, end)
            except (ChangefeedError, AssertionError, ValueError, KeyError, TypeError) as error:
                self._differs("error", "", f"{type(error).__name__}: {error}")
                self._schemas = current_schemas(self._session)
                self._tables.clear()
                self._defined.clear()
                self._changed.clear()
        self._compare_schemas()
        if not in_transaction:
            self._compare_rows()
            self._images.clear()
            self._since = end

    # --- reading

    def _end(self) -> int:
        status = "SHOW MASTER STATUS" if self._session.is_mariadb else "SHOW BINARY LOG STATUS"
        file, position = self._session.rows(status)[0][:2]
        if str(file) != self.path.name:
            raise ChangefeedError(f"the server went on to {file}, after {self.path.name}")
        return int(position)

    def _read(self, start: int, end: int) -> None:
        with self.path.open("rb") as file:
            file.seek(start)
            data = file.read(end - start)
        chunks, full_slice = [self._description, data], Slice(0, self.path.name, start, end)
        (report,) = (item for item in self._probe.decode(chunks, full_slice) if isinstance(item, SliceReport))
        assert report.size_bytes == end - start
        chain = resolve_transactions([full_slice], [report]).filters  # MariaDB logs some changes that are rolled back
        for item in self._decoder.decode(chunks, full_slice):
            block = item if isinstance(item, MessageBlock) else None
            for filter in chain:
                block = filter.rest(block) if block is not None else None
            if block is not None:
                self._apply(block)

    def _route(self, database: str, table: str) -> Route | None:
        name = orjson.dumps([database, table]).decode()
        return None if database in SYSTEM_DATABASES else Route(name, 1, with_history=False)  # as SELECT has them

    def _lookup(self, database: str, table: str) -> TableSchema | None:
        return self._schemas.lookup(database, table)

    def _take(self, logged: Statement) -> None:
        statement = read_logged(logged, self._follower.server, self._collations)
        if statement.kind is Kind.UNREADABLE:
            self._differs("schema", "", f"cannot be read: {logged.sql}")
        elif statement.kind is Kind.ROWS:
            self.observations.skipped["a change in statement format"] += 1
        before = self._schemas
        self._schemas = before.apply(statement)
        for name in statement.tables:
            name = TableName(*map(self._follower.server.table_name, name))
            if statement.kind is Kind.ROWS:
                self._tables[name] = None
                continue
            self._defined.add(name)
            is_new = isinstance(statement.change, CreateTable | CreateTableLike) and name not in before.tables
            self._tables[name] = Counter() if is_new or statement.kind is Kind.TRUNCATE else None

    def _apply(self, block: MessageBlock) -> None:
        name = TableName(*orjson.loads(block.topic))
        schema = self._schemas.lookup(*name)
        assert schema is not None
        self._changed.add(name)
        images = self._images.setdefault(name, [])
        for message in block.messages():
            self.observations.changes += 1
            op, *_, before, after = (message.value or b"").split(SEPARATOR)
            rows = self._tables.get(name)
            if op in (b"u", b"d"):
                images.append(image_of(before))
                row = _row(schema, images[-1])
                if rows is not None and not rows[row]:
                    self._missing[name] = f"the {op.decode()} of a row that is not there: {row}"
                    self._tables[name] = None
                elif rows is not None:
                    rows[row] -= 1
            if op in (b"c", b"u"):
                images.append(image_of(after))
                if rows is not None:
                    rows[_row(schema, images[-1])] += 1

    # --- comparing

    def _differs(self, what: str, table: str, text: str, is_servers: bool = False) -> None:
        if len(self.observations.differences) < MOST_DIFFERENCES:
            self.observations.differences.append(Difference(what, table, text, is_servers))

    def _rows_differ(self, name: TableName, text: str) -> None:
        """Note a difference of rows; it is the server's if the reference reads the same images as we do."""
        schema = self._schemas.lookup(*name)
        images = self._reference.images(self.path, self._since, self._position, *name)
        ours = self._images[name]
        same = schema is not None and len(images) == len(ours)
        is_servers = same and all(agrees(schema.columns, *pair) for pair in zip(images, ours, strict=True))
        self._differs("rows", str(name), text, is_servers)

    def _compare_schemas(self) -> None:
        if not self._defined:
            return
        known = learned_tables(self._schemas)
        for name in sorted(self._defined):
            if name.database in SYSTEM_DATABASES:
                continue
            there = self._follower.listed_table(*name) if name in self._follower.names(name.database) else None
            self.observations.schemas += 1
            if is_same_table(there, known.get(name)):
                continue
            self._differs(_kind(there, known.get(name)), str(name), _schema_difference(there, known.get(name)))
            actual = current_schemas(self._session)
            tables = {**self._schemas.tables, **{name: actual.tables[name] for name in [name] if name in actual.tables}}
            if name not in actual.tables:
                tables.pop(name, None)
            self._schemas = Schemas(self._schemas.server, actual.databases, tables)
        self._defined.clear()

    def _compare_rows(self) -> None:
        for name, text in self._missing.items():
            self._rows_differ(name, text)
        self._missing.clear()
        for name in sorted(self._changed):
            rows = self._tables.get(name)
            there = self._select(name)
            if there is None:
                self._tables.pop(name, None)
                continue
            if rows is not None:
                self.observations.tables += 1
                if +rows != there:
                    self._rows_differ(name, _row_difference(+rows, there))
            self._tables[name] = there
        for name in [name for name, rows in self._tables.items() if rows is None and name not in self._changed]:
            there = self._select(name)
            if there is None:
                del self._tables[name]
            else:
                self._tables[name] = there
        self._changed.clear()

    def _select(self, name: TableName) -> Counter[Row] | None:
        """The table's rows as the server has them; None for one that cannot be compared."""
        entry = self._schemas.entry(*name)
        schema = getattr(entry, "schema", None)
        if schema is None:
            return None
        if schema.columns and schema.columns[0].name == "next_not_cached_value":
            self.observations.skipped["a sequence, whose one row is logged anew each time"] += 1
            return None
        unknown = {column.data_type for column in schema.columns} - values.KNOWN
        if unknown:
            self.observations.skipped[f"the type {min(unknown)}"] += 1
            return None
        columns = ", ".join(map(values.selected, schema.columns))
        quoted = ".".join("`" + part.replace("`", "``") + "`" for part in name)
        try:
            with self._observer.cursor() as cursor:
                cursor.execute(f"SELECT {columns} FROM {quoted} LIMIT {MOST_ROWS + 1}")
                rows = cursor.fetchall()
        except (pymysql.MySQLError, UnicodeDecodeError) as error:
            self.observations.skipped[f"SELECT: {str(error)[:60]}"] += 1
            return None
        if len(rows) > MOST_ROWS:
            self.observations.skipped[f"more than {MOST_ROWS} rows"] += 1
            return None
        return Counter(
            tuple(values.of_select(column, value) for column, value in zip(schema.columns, row, strict=True))
            for row in rows
        )


image_of = orjson.loads
"""A row image as a record has it, by column."""


def _row(schema: TableSchema, decoded: dict[str, Any]) -> Row:
    names = {column.name for column in schema.columns}
    extra = [name for name in decoded if name not in names and not HIDDEN.fullmatch(name)]
    assert not extra, f"columns that the table does not have: {extra}"
    return tuple(values.of_record(column, decoded[column.name]) for column in schema.columns)


def _kind(there: TableSchema | None, known: TableSchema | str | None) -> str:
    """The kind of a difference: `default` if schemas differ only in defaults that are stored as SQL."""
    if not isinstance(there, TableSchema) or not isinstance(known, TableSchema):
        return "schema"
    as_listed = tuple(
        replace(mine, default=own.default) if mine.default is not None and mine.default.is_sql else mine
        for own, mine in zip(there.columns, known.columns, strict=False)
    )
    return "default" if is_same_table(there, replace(known, columns=as_listed)) else "schema"


def _schema_difference(there: TableSchema | None, known: TableSchema | str | None) -> str:
    if not isinstance(there, TableSchema) or not isinstance(known, TableSchema):
        return f"there {there}\n    followed {known}"
    names, followed = ([column.name for column in schema.columns] for schema in (there, known))
    if names != followed:
        return f"columns {names}, followed {followed}"
    pairs = [(f"{own.name}.", own, mine) for own, mine in zip(there.columns, known.columns, strict=True)]
    return "\n    ".join(
        f"{where}{field.name}: {getattr(own, field.name)!r}, followed {getattr(mine, field.name)!r}"
        for where, own, mine in [*pairs, ("", there, known)]
        for field in fields(own)
        if field.name != "columns" and getattr(own, field.name) != getattr(mine, field.name)
    )


def _row_difference(rows: Counter[Row], there: Counter[Row]) -> str:
    def shown(some: Counter[Row]) -> Iterator[str]:
        for row in list(some)[:3]:
            yield repr(row)[:400]

    ours, server = rows - there, there - rows
    return "\n    ".join(
        [
            f"{ours.total()} of {rows.total()} rows of the records are not in the table, {server.total()} of "
            f"{there.total()} rows of the table not in the records",
            *(f"records  {row}" for row in shown(ours)),
            *(f"table    {row}" for row in shown(server)),
        ]
    )
