"""Apply the statements of a slice to the schemas while it is decoded, and make records of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import orjson

from changefeed.ddl.column_names import other_names
from changefeed.ddl.ddl_statement import DdlStatement, Kind
from changefeed.ddl.names import TableName
from changefeed.ddl.schemas import Schemas
from changefeed.ddl.table import Table
from changefeed.errors import SchemaError
from changefeed.formats.by_table import of_table
from changefeed.formats.format import Format, statements_to_named
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.identifier import quote_name
from changefeed.model.statement import Statement, session_of
from changefeed.model.table_schema import TableSchema
from changefeed.model.topic_name import schema_changes_topic
from changefeed.model.window import Slice
from changefeed.records.block import DEFINITION_HEADER, Header, Message, MessageBlock, Step, pack, sequence_of
from changefeed.source.mysql.preflight import unreadable
from changefeed.spark.stages.decode_task import DecodeTask
from changefeed.spark.stages.schema_follower import SchemaFollower
from changefeed.spark.stages.statement_changes import StatementChanges


class UnscoutedError(SchemaError):
    """The binlog has rows without column names, although the server's metadata is FULL now: the tables must be learned,
    and the window's DDL scouted."""


class RenamedColumnError(UnscoutedError):
    """A setting names a column that the table does not have; the DDL of the window must be searched for its other
    names."""


class StatementFollower:
    """Follows the statements of one slice. The decoder looks up schemas in it, and passes it each statement.

    `take_blocks` returns the blocks of the statements' records; they come after the blocks of all earlier rows.
    """

    def __init__(self, task: DecodeTask, slice: Slice, changes: StatementChanges) -> None:
        self._task, self._slice, self._format, self._changes = task, slice, task.format(), changes
        self._history = task.history
        self._follower = SchemaFollower(task.history, slice)
        self._blocks: list[MessageBlock] = []
        self._statements: list[Statement] = []
        self._at = BinlogCoordinates(slice.file, slice.start)
        """The position after the last statement."""
        self._at_position: Counter[int] = Counter()

    # --- called by the decoder

    def lookup(self, database: str, table: str) -> TableSchema | None:
        """A `SchemaLookup` for rows without column names; raises SchemaError for an unknown table."""
        if not self._task.statements_scouted or (self._history is not None and not self._history.tables_known):
            raise UnscoutedError(f"rows of {database}.{table} have no column names")
        schema = self._follower.lookup(database, table)
        if schema is None and not self._task.pipeline.freeze_schema:
            with self._task.session() as session:
                if denied := unreadable(session, [(database, table)]):
                    raise SchemaError(
                        f"the binlog has rows of {database}.{table}, whose columns are not known, and "
                        f"{denied[database, table]}. Or leave the table out of the pipeline."
                    )
            raise SchemaError(
                f"the binlog has rows of {database}.{table} without column names (binlog_row_metadata is not FULL), "
                "and no such table is known at that position. Learn it from the server with `changefeed schema "
                f"{self._task.pipeline.name} --relearn {database}.{table}`, leave it out of the pipeline, or set "
                "binlog_row_metadata=FULL."
            )
        return schema

    def with_other_names(self, table: TableSchema) -> TableSchema:
        """``table``, the schema of rows at the current position, with its columns' names before and after renames.

        Raises RenamedColumnError if a setting names a column that no known name matches.
        """
        history, route = self._history, self._task.route(table.database, table.table)
        if history is None or route is None:
            return table
        if history.tables_known and self._task.statements_scouted:
            for statement in self._statements:
                history = history.advance(statement)
            name = TableName(table.database, table.table)
            known = _columns(history.timeline.at(self._at), name)
            if known is not None and _names(known) == _names(table)[: len(known.columns)]:
                table = replace(table, other_names=other_names(history.timeline, self._at, name))
        missing = {name.lower() for name in route.missing_columns(table)} - {name for name, _ in table.other_names}
        if missing and not self._task.statements_ahead and self._task.archive is None:
            raise RenamedColumnError(
                f"{table.database}.{table.table} has no column {min(missing)!r}: searching the DDL for renames"
            )
        return table

    def take(self, statement: Statement) -> None:
        """Apply ``statement`` to the schemas, and make its records.

        Raises SourceError for a change in statement format with `statements: fail`.
        """
        read = self._follower.read(statement)
        before = self._follower.take(statement, read)
        if self._follower.schemas is not before:
            self._statements.append(statement)
        self._at = BinlogCoordinates(statement.file, statement.position + 1)
        match read.kind:
            case Kind.TRUNCATE:
                self._add_ddl(statement, read, before)
                skipped = "t" in self._task.pipeline.skip
                for name in () if skipped else self._captured_tables(read.tables):
                    self._add_truncate(self._redact(statement, read), name)
            case Kind.DDL:
                self._add_ddl(statement, read, before)
        if read.changes_rows:
            self._add_row_statement(statement, read, before)

    def _redact(self, statement: Statement, read: DdlStatement) -> Statement:
        """``statement`` with a text that records may show.

        If the pipeline hides columns, the text is replaced, because it may have hidden values (defaults, comments,
        labels, conditions). A TRUNCATE gets a new text.
        """
        if not self._task.pipeline.hides_columns:
            return statement
        if read.kind is Kind.TRUNCATE and len(read.tables) == 1:
            (name,) = read.tables
            sql = f"TRUNCATE TABLE {quote_name(name.database)}.{quote_name(name.table)}"
        else:
            sql = f"/* {_verb(statement.sql)}: its text is not shown, as the pipeline hides columns */"
        return replace(statement, sql=sql, inputs="", doubt=statement.doubt and "its text is not shown")

    def take_blocks(self) -> Iterator[MessageBlock]:
        """The blocks since the last call, in binlog order."""
        blocks, self._blocks = self._blocks, []
        yield from blocks

    # --- records

    def _add_row_statement(self, statement: Statement, read: DdlStatement, before: Schemas) -> None:
        statement, touched = self._changes.find_touched(statement, read, before)
        if not touched:
            return
        if not statement.doubt and statements_to_named(self._format):
            from changefeed.ddl.named_tables import named_tables  # imports sqlglot, which few windows need

            named = self._captured_tables(named_tables(statement.sql, statement.database))
            touched = list(dict.fromkeys((*touched, *named)))
        tables = [(name.database, name.table) for name in read.tables]
        hide_sql, shown = self._task.pipeline.hides_columns, self._redact(statement, read)
        self._to_tables(statement, touched, lambda format: format.statement(shown, tables, hide_sql=hide_sql))

    def _add_truncate(self, statement: Statement, name: TableName) -> None:
        table = self._table_for_format(name)
        self._to_tables(statement, [name], lambda format: format.truncate(statement, table))

    def _add_ddl(self, statement: Statement, read: DdlStatement, before: Schemas) -> None:
        where = self._task.pipeline.publish_ddl
        touched = self._captured_tables(read.tables)
        if where == "off" or not (touched or (not read.tables and self._captures_database(read))):
            return
        changes = [(name.database, name.table, self._describe(name)) for name in touched]
        kind = "TRUNCATE" if read.kind is Kind.TRUNCATE else _verb(statement.sql)
        shown = self._redact(statement, read)
        pipeline, value = self._task.pipeline, self._format.schema_change(shown, kind, changes)
        topic = schema_changes_topic(pipeline.name, pipeline.topics.suffix)
        self._add(statement, topic, [0], value, self._format, self._follower_headers(shown))
        if where == "inline":
            dropped = {
                name for name in touched if name not in self._follower.schemas.tables and name not in before.tables
            }
            existing = [name for name in touched if name not in dropped]
            self._to_tables(statement, existing, lambda format: format.schema_change(shown, kind, changes))
            name = "" if read.tables else str(getattr(read.change, "name", ""))
            if name and (route := self._task.database_route(name)) is not None:
                self._add(statement, route.topic, range(route.partitions), value, self._format)

    def _follower_headers(self, shown: Statement) -> Sequence[Header]:
        """The header with the statement for followers, if the format's records do not have it."""
        reader = self._format.reader()
        if reader is None or reader.says_sessions:
            return ()
        session = session_of(shown.ts_seconds, shown.variables)
        return (
            (DEFINITION_HEADER, orjson.dumps({"ddl": shown.sql, "databaseName": shown.database, "session": session})),
        )

    def _describe(self, name: TableName) -> TableSchema | None:
        """The table as DDL records show it; None if it was dropped, or its columns are not known."""
        table = _columns(self._follower.schemas, name)
        return None if table is None else self._task.pipeline.redact_table(table)

    def _table_for_format(self, name: TableName) -> TableSchema:
        """The table for formats; without columns if these are not known."""
        table, route = _columns(self._follower.schemas, name), self._task.route(*name)
        if table is None or route is None:
            return TableSchema(name.database, name.table, ())
        if route.missing_columns(table):
            table = self.with_other_names(table)
        return self._task.column_rules.masked_table(route.table_for_formats(table))

    def _to_tables(
        self, statement: Statement, names: Iterable[TableName], value_in: Callable[[Format], bytes | None]
    ) -> None:
        """Add the record to each topic of the tables, in the topic's format, and there to every partition, because the
        rows before and after it may be in any of them."""
        topics: dict[str, tuple[int, Format]] = {}
        for name in names:
            route = self._task.route(name.database, name.table)
            if route is not None:
                topics[route.topic] = route.partitions, of_table(self._format, name.database, name.table)
        for topic, (partitions, format) in topics.items():
            value = value_in(format)
            if value is not None:
                self._add(statement, topic, range(partitions), value, format)

    def _add(
        self,
        statement: Statement,
        topic: str,
        partitions: Iterable[int],
        value: bytes,
        format: Format,
        headers: Sequence[Header] = (),
    ) -> None:
        row = self._at_position[statement.position]
        self._at_position[statement.position] += 1
        for partition in partitions:
            event_id = f"{self._task.server_uuid}/{statement.file}:{statement.position}/{row}/{topic}/{partition}"
            message = Message(
                statement.position,
                sequence_of(row, Step.CHANGE),
                None,
                value,
                event_id.encode(),
                statement.gtid.encode(),
                (*format.statement_headers(statement), *headers),
                statement.ts_seconds,
            )
            payload = pack([message])
            self._blocks.append(MessageBlock(topic, partition, self._slice.file, self._slice.number, 0, payload))

    # --- captured tables

    def _captured_tables(self, names: Iterable[TableName]) -> list[TableName]:
        tables = self._task.pipeline.tables
        return [name for name in names if tables.matches(*name) and not self._task.is_own(*name)]

    def _captures_database(self, read: DdlStatement) -> bool:
        """Whether the pipeline's patterns name the database of the statement."""
        name = str(getattr(read.change, "name", ""))
        return bool(name) and self._task.pipeline.tables.names_database(name)


def _columns(schemas: Schemas, name: TableName) -> TableSchema | None:
    entry = schemas.entry(*name)
    return entry.schema if isinstance(entry, Table) else None


def _names(table: TableSchema) -> list[str]:
    return [column.name for column in table.columns]


def _verb(sql: str) -> str:
    found = re.match(r"\s*([A-Za-z]+)", sql)
    return found[1].upper() if found else ""
