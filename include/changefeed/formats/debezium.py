"""The format `debezium`: records of Debezium's MySQL connector in the JSON of Kafka Connect.

Sources: https://debezium.io/documentation/reference/stable/connectors/mysql.html#mysql-events and
#mysql-schema-change-topic on that page; and the connector itself, with which a test compares this format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import orjson

from changefeed import __version__
from changefeed.errors import OptionError
from changefeed.formats import connect_schema
from changefeed.formats.column_defaults import bytes_as_text, with_default
from changefeed.formats.connect_json import ConnectNotation, schema_literal
from changefeed.formats.connect_schema import value_schema
from changefeed.formats.connect_types import ConnectSchema
from changefeed.formats.debezium_options import (
    BINARIES,
    DEFAULT_RULES,
    OPTIONS,
    PREFIX,
    QUERIES,
    SCHEMAS,
    TOMBSTONES,
    TRANSACTION_TOPIC,
    TRANSACTIONS,
    connector_style,
    row_rules,
)
from changefeed.formats.envelope import change_of, read_envelopes, rows_of_envelopes
from changefeed.formats.format import NO_PLACE_IN_SCHEMA, FormatSettings, RowRules, TableChange, TransactionRecords
from changefeed.formats.notation import json_string
from changefeed.formats.options import Options
from changefeed.formats.reader import RecordReader, SchemaText
from changefeed.formats.style import DEFAULT_STYLE, Encoding, Kind, Style
from changefeed.formats.table_changes import table_changes
from changefeed.formats.template import (
    CREATED_ANEW,
    DELETED,
    NO_SNAPSHOT,
    ONE_MESSAGE_EACH,
    TOMBSTONE,
    ChangeKind,
    Messages,
    Op,
    Slot,
    Template,
)
from changefeed.model.statement import Statement, session_of
from changefeed.model.statement_inputs import inputs_of
from changefeed.model.table_schema import TableSchema
from changefeed.model.topic_name import check_chosen_name
from changefeed.records.block import Header

NEW_KEY, OLD_KEY = "__debezium.newkey", "__debezium.oldkey"


@dataclass(frozen=True)
class DebeziumFormat:
    """The format `debezium`.

    ``prefix`` is the connector's `topic.prefix`. ``ts_ms`` is the time at which the window was frozen.
    """

    prefix: str
    ts_ms: int
    style: Style = DEFAULT_STYLE
    schemas: bool = False
    tombstones: bool = True
    row_rules: RowRules = DEFAULT_RULES
    queries: bool = False
    binary_text: bool = False
    transaction_topic: str | None = None

    @classmethod
    def of(cls, settings: FormatSettings) -> DebeziumFormat:
        """The format with ``settings``; raises OptionError for an invalid option."""
        options = Options("debezium", OPTIONS, settings.options)
        if options.has(TOMBSTONES) and options[TOMBSTONES] and not settings.tombstones:
            raise OptionError(f"{TOMBSTONES.name!r} is true, and the pipeline's `tombstones` false", TOMBSTONES.name)
        prefix = options[PREFIX] or settings.server_name
        topic = f"{prefix}.{options[TRANSACTION_TOPIC]}" if options[TRANSACTIONS] else None
        if topic is not None:
            _check_topic(topic, PREFIX.name if options.has(PREFIX) else TRANSACTION_TOPIC.name)
        return cls(
            prefix,
            settings.ts_ms,
            connector_style(options, settings.style.chosen),
            options[SCHEMAS],
            options[TOMBSTONES] and settings.tombstones,
            row_rules(options),
            options[QUERIES],
            options[BINARIES] != "bytes",
            topic,
        )

    @cached_property
    def notation(self) -> ConnectNotation:
        """The notation of Connect's JSON."""
        return ConnectNotation(style=self.style)

    @property
    def needs_definitions(self) -> bool:
        """Whether messages have schemas, which include defaults."""
        return self.schemas

    # --- schemas

    def _row(self, table: TableSchema, name: str, columns: Sequence[int]) -> ConnectSchema:
        described = [(table.columns[index].name, self._column(table, index)) for index in columns]
        return connect_schema.row_schema(f"{connect_schema.prefix_of(self.prefix, table)}.{name}", described)

    def _column(self, table: TableSchema, index: int) -> ConnectSchema:
        column = table.columns[index]
        schema = with_default(value_schema(column, Style({**self.style.chosen, Kind.BINARY: Encoding.BASE64})), column)
        encoding = self.style[Kind.BINARY]
        return bytes_as_text(schema, encoding) if self.binary_text or encoding is not Encoding.BASE64 else schema

    def _with_schema(self, schema: ConnectSchema, payload: Template) -> Template:
        return (schema_literal(schema), *payload, b"}")

    def _envelope(self, table: TableSchema) -> ConnectSchema:
        row = self._row(table, "Value", range(len(table.columns)))
        return connect_schema.envelope(connect_schema.prefix_of(self.prefix, table), row)

    # --- row changes

    def key(self, table: TableSchema) -> Template | None:
        """The key's columns as a struct; None for a table without a key."""
        if not table.primary_key:
            return None
        if not self.schemas:
            return (Slot.KEY,)
        return self._with_schema(self._row(table, "Key", table.primary_key), (Slot.KEY,))

    def messages(self, table: TableSchema) -> Messages:
        """The messages of each kind of change. A change of key has three:

        1. a delete, with the new key in a header
        2. its tombstone
        3. a create, with the old key in a header
        """
        deleted = (DELETED, TOMBSTONE) if self.tombstones and table.primary_key else (DELETED,)
        moved = tuple(replace(message, headers=((NEW_KEY, (Slot.KEY_AFTER,)),)) for message in deleted)
        created = replace(CREATED_ANEW, headers=((OLD_KEY, (Slot.KEY_BEFORE,)),))
        return {**ONE_MESSAGE_EACH, ChangeKind.DELETE: deleted, ChangeKind.KEY_CHANGE: (*moved, created)}

    def value(self, table: TableSchema, op: Op) -> Template:
        """The envelope of a row change."""
        payload: Template = (
            b'{"before":',
            Slot.BEFORE,
            b',"after":',
            Slot.AFTER,
            b',"source":{"version":"%b","connector":"mysql","name":%b,"ts_ms":'
            % (__version__.encode(), json_string(self.prefix)),
            Slot.TS_MILLIS,
            b',"snapshot":"',
            Slot.SNAPSHOT,
            b'","db":%b,"sequence":null,"ts_us":' % json_string(table.database),
            Slot.TS_MICROS,
            b',"ts_ns":',
            Slot.TS_NANOS,
            b',"table":%b,"server_id":' % json_string(table.table),
            Slot.SERVER_ID,
            b',"gtid":',
            Slot.GTID,
            b',"file":"',
            Slot.FILE,
            b'","pos":',
            Slot.POSITION,
            b',"row":',
            Slot.ROW,
            b',"thread":',
            Slot.THREAD,
            b',"query":',
            Slot.QUERY if self.queries else b"null",
            b'},"transaction":',
            Slot.TRANSACTION if self.transaction_topic is not None else b"null",
            b',"op":"%b",%b}' % (op.encode(), orjson.dumps(_times(self.ts_ms * 1000))[1:-1]),
        )
        return self._with_schema(self._envelope(table), payload) if self.schemas else payload

    def member_fault(self, name: str, value: object) -> str | None:  # noqa: ARG002 - the protocol's signature
        """The reason why records cannot have a further member; None for records without schemas."""
        return NO_PLACE_IN_SCHEMA if self.schemas else None

    def reader(self, schemas: SchemaText | None = None) -> RecordReader:  # noqa: ARG002 - the protocol's signature
        """The reader of envelopes, which have both images of a change.

        Rows can be compared by their text, except in records with schemas, and in tables with JSON columns if documents
        are inline, because a document has several spellings.
        """
        inline = self.style[Kind.JSON] is Encoding.INLINE

        def is_text(table: TableSchema) -> bool:
            return not self.schemas and not (inline and any(column.data_type == "json" for column in table.columns))

        return RecordReader(
            change_of, is_text=is_text, finder=rows_of_envelopes, envelopes=read_envelopes, says_sessions=True
        )

    # --- transactions

    @property
    def transactions(self) -> TransactionRecords | None:
        """The records of the transaction topic; None without `provide.transaction.metadata`."""
        if self.transaction_topic is None:
            return None
        key: Template = (b'{"id":"', Slot.TRANSACTION_ID, b'"}')
        begin, end = (
            (b'{"status":"%b","id":"' % status, Slot.TRANSACTION_ID, *counts, b',"ts_ms":', Slot.TS_MILLIS, b"}")
            for status, counts in (
                (b"BEGIN", (b'","event_count":null,"data_collections":null',)),
                (b"END", (b'","event_count":', Slot.EVENT_COUNT, b',"data_collections":[', Slot.EVENT_COUNTS, b"]")),
            )
        )
        if self.schemas:
            key = self._with_schema(connect_schema.TRANSACTION_KEY, key)
            begin, end = (self._with_schema(connect_schema.TRANSACTION_VALUE, value) for value in (begin, end))
        return TransactionRecords(self.transaction_topic, key, begin, end)

    # --- statements

    def schema_change(self, statement: Statement, kind: str, changes: Sequence[TableChange]) -> bytes:
        """Debezium's record of a schema change; the additional field `kind` has the verb of the DDL statement."""
        return orjson.dumps(
            {
                "source": self._source(statement, [(database, table) for database, table, _ in changes]),
                "ts_ms": self.ts_ms,
                "kind": kind,
                "databaseName": statement.database,
                "ddl": statement.sql,
                "session": session_of(statement.ts_seconds, statement.variables),
                "tableChanges": table_changes(changes),
            }
        )

    def truncate(self, statement: Statement, table: TableSchema) -> bytes | None:
        """A record of op `t`; None if `skipped.operations` has `t`, which is the default."""
        if "t" in self.row_rules.skipped:
            return None
        payload = orjson.dumps(self._record(statement, [(table.database, table.table)], "t"))
        return schema_literal(self._envelope(table)) + payload + b"}" if self.schemas else payload

    def statement(self, statement: Statement, tables: Sequence[tuple[str, str]], *, hide_sql: bool) -> bytes:
        """A record of op `q`, with the statement's SQL or null. Debezium has no such record."""
        session = session_of(statement.ts_seconds, statement.variables)
        return orjson.dumps(
            {
                **self._record(statement, tables, "q"),
                "database": statement.database,
                "sql": None if hide_sql else statement.sql,
                "tables": [f"{database}.{table}" for database, table in tables],
                "session": session if hide_sql else {**session, **inputs_of(statement.inputs)},
                "error_code": statement.error_code,
                "thread_specific": statement.is_thread_specific,
                "doubt": statement.doubt or None,
            }
        )

    def statement_headers(self, statement: Statement) -> Sequence[Header]:  # noqa: ARG002 - the protocol's signature
        """No headers."""
        return ()

    def _record(self, statement: Statement, tables: Sequence[tuple[str, str]], op: str) -> dict[str, object]:
        return {
            "before": None,
            "after": None,
            "source": self._source(statement, tables),
            "transaction": None,
            "op": op,
            **_times(self.ts_ms * 1000),
        }

    def _source(self, statement: Statement, tables: Sequence[tuple[str, str]]) -> dict[str, object]:
        times = _times(statement.micros // 1000 * 1000)  # whole milliseconds, as Debezium has
        return {
            "version": __version__,
            "connector": "mysql",
            "name": self.prefix,
            "ts_ms": times["ts_ms"],
            "snapshot": NO_SNAPSHOT,
            "db": tables[0][0] if tables else statement.database,
            "sequence": None,
            "ts_us": times["ts_us"],
            "ts_ns": times["ts_ns"],
            "table": ",".join(table for _, table in tables) or None,
            "server_id": statement.server_id,
            "gtid": statement.gtid or None,
            "file": statement.file,
            "pos": statement.position,
            "row": 0,
            "thread": None,
            "query": None,
        }


def _check_topic(name: str, option: str) -> None:
    """Raises OptionError for ``option`` if Kafka does not allow ``name`` as the name of the transaction topic."""
    try:
        check_chosen_name(name)
    except ValueError as error:
        raise OptionError(f"the topic of transactions: {error}", option) from None


def _times(micros: int) -> dict[str, int]:
    """The fields of a time, given in microseconds since 1970."""
    return {"ts_ms": micros // 1000, "ts_us": micros, "ts_ns": micros * 1000}
