"""The statements of a slice, while it is decoded: they move the schemas forward, and they become records."""

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
from changefeed.model.identifier import quoted
from changefeed.model.statement import Statement, session_of
from changefeed.model.table_pattern import names_database
from changefeed.model.table_schema import TableSchema
from changefeed.model.topic_name import schema_changes_topic
from changefeed.model.window import Slice
from changefeed.records.block import DEFINITION_HEADER, Header, Message, MessageBlock, Step, pack, sequence_of
from changefeed.source.mysql.preflight import unreadable
from changefeed.spark.stages.decode_task import DecodeTask
from changefeed.spark.stages.schema_follower import SchemaFollower
from changefeed.spark.stages.statement_changes import StatementChanges


class UnscoutedError(SchemaError):
    """Rows without column names in a window that was taken for one with FULL metadata: what its tables are must be
    learned, and its DDL scouted."""


class RenamedColumnError(UnscoutedError):
    """A setting names a column that a table does not have; which one it is in other definitions of the table must be
    looked for in all statements of the window."""


class StatementFollower:
    """Follows the statements of one slice: the decoder asks it for schemas, and gives it each statement.

    `taken` returns the blocks of the records of statements; they go behind the blocks of all earlier rows.
    """

    def __init__(self, task: DecodeTask, piece: Slice, changes: StatementChanges) -> None:
        self._task, self._piece, self._format, self._changes = task, piece, task.format(), changes
        self._history = task.history
        self._follower = SchemaFollower(task.history, piece)
        self._blocks: list[MessageBlock] = []
        self._statements: list[Statement] = []
        self._at = BinlogCoordinates(piece.file, piece.start)
        """Behind the last statement."""
        self._at_position: Counter[int] = Counter()

    # --- what the decoder asks

    def lookup(self, database: str, table: str) -> TableSchema | None:
        """A `SchemaLookup` for rows without column names; raises SchemaError where they are not known."""
        if not self._task.statements_scouted or (self._history is not None and not self._history.tables_known):
            raise UnscoutedError(f"rows of {database}.{table} have no column names")
        schema = self._follower.lookup(database, table)
        if schema is None:
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
        """``table``, as rows have it here, with the names that its columns have in other definitions.

        Raises RenamedColumnError where a setting names a column that is in none of those that are known so far.
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
        lacking = {name.lower() for name in route.lacking_in(table)} - {name for name, _ in table.other_names}
        if lacking and not self._task.statements_ahead and self._task.archive is None:
            raise RenamedColumnError(
                f"{table.database}.{table.table} has no column {min(lacking)!r}: its other definitions are looked at"
            )
        return table

    def take(self, statement: Statement) -> None:
        """Apply ``statement`` to the schemas, and make its records.

        Raises SourceError for a change in statement format, where the pipeline's `statements` is `fail`.
        """
        read = self._follower.read(statement)
        before = self._follower.take(statement, read)
        if self._follower.schemas is not before:
            self._statements.append(statement)
        self._at = BinlogCoordinates(statement.file, statement.position + 1)
        match read.kind:
            case Kind.TRUNCATE:
                self._definition(statement, read, before)
                skipped = "t" in self._task.pipeline.skip
                for name in () if skipped else self._captured(read.tables):
                    self._truncated(self._shown(statement, read), name)
            case Kind.DEFINITION:
                self._definition(statement, read, before)
        if read.changes_rows:
            self._rows(statement, read, before)

    def _shown(self, statement: Statement, read: DdlStatement) -> Statement:
        """``statement`` as records may have it: where the pipeline hides columns, without its text, which has values
        that they hide (defaults, comments, labels, conditions); that of a TRUNCATE is written anew."""
        if not self._task.pipeline.hides_columns:
            return statement
        if read.kind is Kind.TRUNCATE and len(read.tables) == 1:
            (name,) = read.tables
            sql = f"TRUNCATE TABLE {quoted(name.database)}.{quoted(name.table)}"
        else:
            sql = f"/* {_verb(statement.sql)}: its text is not shown, as the pipeline hides columns */"
        return replace(statement, sql=sql, inputs="", doubt=statement.doubt and "its text is not shown")

    def taken(self) -> Iterator[MessageBlock]:
        """The blocks made since the last call, in binlog order."""
        blocks, self._blocks = self._blocks, []
        yield from blocks

    # --- records

    def _rows(self, statement: Statement, read: DdlStatement, before: Schemas) -> None:
        statement, touched = self._changes.touched(statement, read, before)
        if not touched:
            return
        if not statement.doubt and statements_to_named(self._format):
            from changefeed.ddl.named_tables import named_tables  # with sqlglot, which few windows need

            named = self._captured(named_tables(statement.sql, statement.database))
            touched = list(dict.fromkeys((*touched, *named)))
        tables = [(name.database, name.table) for name in read.tables]
        hide_sql, shown = self._task.pipeline.hides_columns, self._shown(statement, read)
        self._to_tables(statement, touched, lambda format: format.statement(shown, tables, hide_sql=hide_sql))

    def _truncated(self, statement: Statement, name: TableName) -> None:
        table = self._seen(name)
        self._to_tables(statement, [name], lambda format: format.truncate(statement, table))

    def _definition(self, statement: Statement, read: DdlStatement, before: Schemas) -> None:
        where = self._task.pipeline.publish_ddl
        touched = self._captured(read.tables)
        if where == "off" or not (touched or (not read.tables and self._captures_database(read))):
            return
        changes = [(name.database, name.table, self._described(name)) for name in touched]
        kind = "TRUNCATE" if read.kind is Kind.TRUNCATE else _verb(statement.sql)
        shown = self._shown(statement, read)
        pipeline, value = self._task.pipeline, self._format.schema_change(shown, kind, changes)
        topic = schema_changes_topic(pipeline.name, pipeline.topics.suffix)
        self._add(statement, topic, [0], value, self._format, self._for_followers(shown))
        if where == "inline":
            gone = {name for name in touched if name not in self._follower.schemas.tables and name not in before.tables}
            there = [name for name in touched if name not in gone]
            self._to_tables(statement, there, lambda format: format.schema_change(shown, kind, changes))
            name = "" if read.tables else str(getattr(read.change, "name", ""))
            if name and (route := self._task.database_route(name)) is not None:
                self._add(statement, route.topic, range(route.partitions), value, self._format)

    def _for_followers(self, shown: Statement) -> Sequence[Header]:
        """The header that has what a follower runs, where the format's records do not say it."""
        reader = self._format.reader()
        if reader is None or reader.says_sessions:
            return ()
        session = session_of(shown.ts_seconds, shown.variables)
        return (
            (DEFINITION_HEADER, orjson.dumps({"ddl": shown.sql, "databaseName": shown.database, "session": session})),
        )

    def _described(self, name: TableName) -> TableSchema | None:
        """The table as records of definitions show it; None where it is gone, or its columns are not known."""
        table = _columns(self._follower.schemas, name)
        return None if table is None else self._task.pipeline.described(table)

    def _seen(self, name: TableName) -> TableSchema:
        """The table as formats see it, without columns where these are not known."""
        table, route = _columns(self._follower.schemas, name), self._task.route(*name)
        if table is None or route is None:
            return TableSchema(name.database, name.table, ())
        if route.lacking_in(table):
            table = self.with_other_names(table)
        return self._task.column_rules.shown(route.seen(table))

    def _to_tables(
        self, statement: Statement, names: Iterable[TableName], value_in: Callable[[Format], bytes | None]
    ) -> None:
        """Add the record to the topics of the tables, once to each that several share, in the format that they have,
        and there to every partition: rows before and after it may be in each of them."""
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
            self._blocks.append(MessageBlock(topic, partition, self._piece.file, self._piece.number, 0, payload))

    # --- what the pipeline captures

    def _captured(self, names: Iterable[TableName]) -> list[TableName]:
        tables = self._task.pipeline.tables
        return [name for name in names if tables.matches(*name) and not self._task.is_own(*name)]

    def _captures_database(self, read: DdlStatement) -> bool:
        """Whether a statement about a database is about one that the pipeline's patterns name."""
        name = str(getattr(read.change, "name", ""))
        return bool(name) and any(names_database(pattern, name) for pattern in self._task.pipeline.tables.include)


def _columns(schemas: Schemas, name: TableName) -> TableSchema | None:
    entry = schemas.entry(*name)
    return entry.schema if isinstance(entry, Table) else None


def _names(table: TableSchema) -> list[str]:
    return [column.name for column in table.columns]


def _verb(sql: str) -> str:
    found = re.match(r"\s*([A-Za-z]+)", sql)
    return found[1].upper() if found else ""
