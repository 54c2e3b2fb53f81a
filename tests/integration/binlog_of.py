"""A binlog file of given statements, and the kernel's messages of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from changefeed.binlog.decoder import KernelDecoder
from changefeed.binlog.prepared_rows import PreparedRows
from changefeed.formats.format import RowFormat
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.route import Route, SchemaLookup
from changefeed.model.slice_report import SliceReport
from changefeed.model.window import Slice
from changefeed.records.block import Message, MessageBlock
from devstack.mariadb import MariadbServer
from devstack.sql_server import SqlServer

SERVER_UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


@dataclass(frozen=True)
class Binlog:
    """One closed binlog file; rows of ``database`` are captured."""

    name: str
    data: bytes
    database: str

    @property
    def slice(self) -> Slice:
        return Slice(0, self.name, FIRST_POSITION, len(self.data))

    def blocks(self, format: RowFormat, **options: Any) -> Iterator[MessageBlock]:
        """The kernel's blocks of the file; a topic for each table, DATABASE.TABLE. ``options`` are `decoded`'s."""
        return (item for item in self.decoded(format, **options) if isinstance(item, MessageBlock))

    def reports(self, format: RowFormat, **options: Any) -> list[SliceReport]:
        """The report of the file, at the end of its blocks."""
        return [item for item in self.decoded(format, **options) if isinstance(item, SliceReport)]

    def decoded(
        self,
        format: RowFormat,
        *,
        partitions: int = 1,
        route: Mapping[str, Any] | None = None,
        lookup: SchemaLookup = lambda *_: None,
        **options: Any,
    ) -> Iterator[MessageBlock | SliceReport]:
        """The kernel's blocks and report of the file."""

        def router(database: str, table: str) -> Route | None:
            return Route(f"{database}.{table}", partitions, **(route or {})) if database == self.database else None

        decoder = KernelDecoder(
            router,
            lookup,
            format,
            SERVER_UUID,
            **options,
        )
        decoder.prepared_rows = PreparedRows(None)
        return decoder.decode([self.data[FIRST_POSITION:]], self.slice)

    def messages(self, format: RowFormat, **options: Any) -> list[Message]:
        """The messages of all tables, in binlog order."""
        messages = [message for block in self.blocks(format, **options) for message in block.messages()]
        return sorted(messages, key=lambda message: (message.position, message.sequence))


def logged(server: SqlServer, *statements: str, before: Sequence[str] = ()) -> tuple[str, bytes]:
    """Name and bytes of a binlog file of ``statements``, run after ``before`` in one connection."""
    with server.connect() as connection, connection.cursor() as cursor:
        for statement in (*before, "FLUSH BINARY LOGS"):
            cursor.execute(statement)
        cursor.execute("SHOW MASTER STATUS" if isinstance(server, MariadbServer) else "SHOW BINARY LOG STATUS")
        name = cursor.fetchone()[0]
        for statement in (*statements, "FLUSH BINARY LOGS"):
            cursor.execute(statement)
    return name, (server.data / name).read_bytes()


def binlog_of(server: SqlServer, database: str, *statements: str) -> Binlog:
    """Run ``statements`` in ``database``, which is created if it is missing, in a new binlog file."""
    before = [f"CREATE DATABASE IF NOT EXISTS {database}", f"USE {database}"]
    return Binlog(*logged(server, *statements, before=before), database)
