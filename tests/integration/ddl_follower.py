"""Follows a server's binlog file, statement by statement, and compares the learned schemas with information_schema."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from changefeed.binlog.events.query_event import Query
from changefeed.binlog.events.table_map import TableMap
from changefeed.ddl import Flavour, Schemas, Server, SessionContext, Table
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.table_schema import NO_DEFAULT, Default, TableSchema
from changefeed.source.mysql.catalog import table_schema
from changefeed.source.mysql.session import Session
from devstack.sql_server import SqlServer

QUERY, TABLE_MAP, ROTATE = 2, 19, 4


@dataclass(frozen=True)
class Logged:
    """A statement as the binlog has it."""

    coordinates: BinlogCoordinates
    session: SessionContext
    sql: str
    failed: bool = False


class Follower:
    """Reads what `server` appends to its binlog; a single file is enough for a test."""

    def __init__(self, server: SqlServer) -> None:
        self._session = Session(MysqlConnection.from_uri(server.root_url))
        session = self._session
        self._checksum = 4 if session.variable("binlog_checksum") == "CRC32" else 0
        status = "SHOW BINARY LOG STATUS" if not session.is_mariadb else "SHOW MASTER STATUS"
        file, position = session.rows(status)[0][:2]
        self.file = str(file)
        self._path = server.data / self.file
        self._position = int(position)
        columns = "id, collation_name FROM information_schema.collations"
        if session.is_mariadb:
            columns = "id, full_collation_name FROM information_schema.collation_character_set_applicability"
        self._collations = {row[0]: str(row[1]) for row in session.rows(f"SELECT {columns}") if row[0] is not None}
        version = session.version.split("-")[0].split(".")
        self.server = Server(
            Flavour.MARIADB if session.is_mariadb else Flavour.MYSQL,
            (int(version[0]), int(version[1]), int(version[2])),
            int(session.variable("lower_case_table_names") or 0),
            str(session.variable("collation_server")),
        )

    def close(self) -> None:
        self._session.raw.close()

    def statements(self) -> Iterator[Logged | TableMap]:
        """Statements and table maps logged since the last call."""
        with self._path.open("rb") as binlog:
            binlog.seek(self._position)
            data = binlog.read()
        at = 0
        while at + 19 <= len(data):
            _, kind, _, size, _, _ = struct.unpack_from("<IBIIIH", data, at)
            body = data[at + 19 : at + size - self._checksum]
            coordinates = BinlogCoordinates(self.file, self._position + at)
            at += size
            if kind == QUERY:
                yield self._query(coordinates, body)
            elif kind == TABLE_MAP:
                yield TableMap.parse(body, self.server.is_mariadb)
        self._position += at

    def _query(self, coordinates: BinlogCoordinates, body: bytes) -> Logged:
        database_size, variables_size = body[8], int.from_bytes(body[11:13], "little")
        variables, rest = body[13 : 13 + variables_size], body[13 + variables_size :]
        database = rest[:database_size].decode()
        session = SessionContext.from_status_variables(database, variables, self._collations.get)
        query = Query.parse(body)
        return Logged(coordinates, session, query.sql, query.error_code != 0)

    def list_tables(self, *databases: str) -> dict[tuple[str, str], Any]:
        """All tables of these databases according to information_schema."""
        return {name: self.listed_table(*name) for name in self.names(*databases)}

    def names(self, *databases: str) -> set[tuple[str, str]]:
        marks = ", ".join(["%s"] * len(databases))
        names = self._session.rows(
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type IN ('BASE TABLE', "
            f"'SYSTEM VERSIONED', 'SEQUENCE') AND table_schema IN ({marks})",
            *databases,
        )
        return {(str(database), str(table)) for database, table in names}

    def listed_table(self, database: str, table: str) -> TableSchema | None:
        """A table as information_schema has it; the labels of its ENUM and SET columns are read as SQL, in which a
        character of four bytes is a question mark."""
        schema = table_schema(self._session, database, table)
        if schema is None or not any(column.labels for column in schema.columns):
            return schema
        types = dict(
            self._session.rows(
                "SELECT column_name, column_type FROM information_schema.columns WHERE table_schema = %s AND "
                "table_name = %s AND data_type IN ('enum', 'set')",
                database,
                table,
            )
        )
        for column in schema.columns:
            if column.labels:
                listed = tuple(re.sub("[^\x00-\uffff]", "?", label) for label in column.labels)
                assert listed == _labels(types[column.name]), column
        return schema

    def databases(self, prefix: str) -> dict[str, str]:
        rows = self._session.rows("SELECT schema_name, default_collation_name FROM information_schema.schemata")
        return {str(name): str(collation) for name, collation in rows if str(name).startswith(prefix)}


def _labels(column_type: str) -> tuple[str, ...]:
    escapes = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "Z": "\x1a"}
    labels = re.findall(r"'((?:[^'\\]|''|\\.)*)'", column_type, re.DOTALL)
    return tuple(
        re.sub(r"''|\\(.)", lambda match: escapes.get(match[1], match[1]) if match[1] else "'", label, flags=re.DOTALL)
        for label in labels
    )


def learned_tables(schemas: Schemas) -> dict[tuple[str, str], Any]:
    """The learned tables; for unknown ones, the problem."""
    return {
        (name.database, name.table): entry.schema if isinstance(entry, Table) else entry.problem
        for name, entry in schemas.tables.items()
    }


def is_same_table(there: TableSchema | None, learned: TableSchema | str | None) -> bool:
    """Whether a learned table equals information_schema's, except for what that lists in another form.

    - A server spells an expression as it likes: MariaDB lists NEXT VALUE FOR s as nextval(`d`.`s`).
    - MySQL lists the bytes of a default up to the first 0. MariaDB lists undefined bytes as question marks, and '' as
      the default of a compressed BLOB without one.
    - Comments of a sequence's columns are not known.
    """
    if not isinstance(there, TableSchema) or not isinstance(learned, TableSchema):
        return there == learned
    if len(there.columns) != len(learned.columns):
        return False
    columns = []
    for own, mine in zip(there.columns, learned.columns, strict=True):
        empty_blob = own.data_type == "blob" and (own.default, mine.default) == (Default(""), NO_DEFAULT)
        if empty_blob or _same_default(own.default, mine.default):
            mine = replace(mine, default=own.default)
        columns.append(replace(mine, comment=own.comment if mine.comment is None else mine.comment))
    return there == replace(learned, columns=tuple(columns))


def _same_default(there: Default | None, learned: Default | None) -> bool:
    if there is None or learned is None or there == learned:
        return there == learned
    if there.is_sql and learned.is_sql:
        return "CURRENT_TIMESTAMP" not in {str(there.text)[:17], str(learned.text)[:17]}
    listed, known = str(there.text), str(learned.text)
    if listed.startswith("0x") and known.startswith("0x"):
        held = bytes.fromhex(known[2:])
        as_text = bytes(byte if byte < 128 else ord("?") for byte in held)
        return bytes.fromhex(listed[2:]) in (held.partition(b"\0")[0], as_text)
    return False
