"""Selects the tables to compare and how to identify their rows, and says why other tables cannot be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from changefeed.errors import SettingsError, did_you_mean
from changefeed.formats.by_table import of_table
from changefeed.formats.format import Format, record_reader
from changefeed.formats.reader import RecordReader
from changefeed.formats.template import ChangeKind
from changefeed.model.table_pattern import matches_any
from changefeed.model.table_schema import TableSchema
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import TableRoute, compile_routes
from changefeed.source.mysql.catalog import table_schema
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.side_effects import hashed_tables
from changefeed.verify.row_digests import Row

_HASHED = (
    "it has no primary key, and its records contain a hidden column for a UNIQUE key that is too long for an index "
    "(DB_ROW_HASH_1 …). No SELECT returns this column, so rows cannot be compared by their values"
)
_SHOWN = 20
"""The maximum number of tables that an error names."""


@dataclass(frozen=True)
class ComparedTable:
    """A table to compare: its current schema on the server, its topic, and how its rows are compared.

    - ``without_key``: whether no key identifies a row, so that rows with the same values are counted.
    - ``extra_rows_reason``: why the topic may have rows that the server does not have; '' if it may not.
    - ``is_text``: whether the first round compares rows by their text.
    - ``virtual``: the virtual columns, which are not compared. The server computes them for each session, in the
      session's time zone and language.
    """

    number: int
    schema: TableSchema
    topic: str
    without_key: bool = False
    extra_rows_reason: str = ""
    is_text: bool = False
    virtual: frozenset[str] = frozenset()

    def compared_columns(self, row: Row) -> Row:
        """The columns of ``row`` that are compared."""
        return {name: value for name, value in row.items() if name not in self.virtual} if self.virtual else row

    @property
    def needs_view(self) -> bool:
        """Whether the rows of a snapshot can be compared only if the snapshot's view is known.

        Rows with equal values may exist more than once, so the view must say which changes the rows include.
        """
        return self.without_key and not self.schema.primary_key

    @property
    def name(self) -> str:
        """DATABASE.TABLE."""
        return f"{self.schema.database}.{self.schema.table}"


@dataclass(frozen=True)
class Tables:
    """The tables to compare (``compared``), and for other tables, by name, the reason why not (``refused``)."""

    compared: tuple[ComparedTable, ...]
    refused: Mapping[str, str]

    def of_topic(self, topic: str) -> dict[str, ComparedTable]:
        """The compared tables whose records are in ``topic``, by name."""
        return {table.name: table for table in self.compared if table.topic == topic}

    @property
    def topics(self) -> list[str]:
        """The topics of the compared tables."""
        return list(dict.fromkeys(table.topic for table in self.compared))


def select_tables(
    pipeline: Pipeline,
    routes: Mapping[tuple[str, str], TableRoute],
    server: Session,
    patterns: Sequence[str] = (),
    compacted: Collection[str] = (),
    unreadable: Mapping[str, str] = MappingProxyType({}),
    defined: Collection[tuple[str, str]] = (),
) -> Tables:
    """The tables of ``routes`` whose names match one of ``patterns`` (() for all), with their schemas on ``server``.

    - ``compacted``: the compacted topics.
    - ``unreadable``: by table, or by pattern of hidden tables, the reason why it cannot be read.
    - ``defined``: the matching tables whose table definitions are compared.

    Raises SettingsError if no table matches and ``defined`` is empty.
    """
    format = compile_routes(pipeline).format(0)
    topics = Counter(route.topic for route in routes.values())
    hashed = set(hashed_tables(server, lambda *name: name in routes))
    compared: list[ComparedTable] = []
    refused: dict[str, str] = {name: f"it was not compared: {reason}" for name, reason in unreadable.items()}
    for (database, name), route in routes.items():
        if f"{database}.{name}" in unreadable or (patterns and not matches_any(tuple(patterns), database, name)):
            continue
        schema = table_schema(server, database, name)
        if schema is None:
            refused[f"{database}.{name}"] = f"{server.connection.host}:{server.connection.port} has no such table"
            continue
        try:
            reader = record_reader(of_table(format, database, name))
        except SettingsError as error:
            refused[f"{database}.{name}"] = str(error)
            continue
        without_key = not reader.has_keys or not _is_unique(route, schema)
        reason = _why_left_out(pipeline, schema, format) or _why_unreadable(
            reader,
            without_key=without_key,
            is_shared=topics[route.topic] > 1,
            is_compacted=route.topic in compacted,
        )
        if without_key and (database, name) in hashed and not reason:
            reason = _HASHED
        if reason:
            refused[f"{database}.{name}"] = reason
        else:
            extra_rows_reason = _why_extra_rows(pipeline, route, format, schema)
            virtual = _virtual_columns(server, schema)
            is_text = reader.is_text(schema) and not virtual
            compared.append(
                ComparedTable(len(compared), schema, route.topic, without_key, extra_rows_reason, is_text, virtual)
            )
    if not compared and not refused and not defined:
        names = [f"{database}.{table}" for database, table in routes]
        condition = f"matches {', '.join(patterns)}" if patterns else "is on the server"
        near = did_you_mean(patterns[0], names) if patterns else ""
        shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")
        raise SettingsError(
            f"no table that pipeline {pipeline.name!r} captures {condition}{near}: it captures {shown or 'none'}"
        )
    return Tables(tuple(compared), refused)


_VIRTUAL = (
    "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s AND extra LIKE %s"
)


def _virtual_columns(server: Session, schema: TableSchema) -> frozenset[str]:
    if not any(column.generated for column in schema.columns):
        return frozenset()
    return frozenset(str(name) for (name,) in server.rows(_VIRTUAL, schema.database, schema.table, "%VIRTUAL GEN%"))


def _is_unique(route: TableRoute, schema: TableSchema) -> bool:
    """Whether the message key is unique in the table."""
    key = set(route.route.key.keyed_table(schema).primary_key)
    unique = [key.columns for key in schema.unique_keys or () if key.not_null]
    if schema.primary_key:
        unique.append(schema.primary_key)
    return any(key >= set(columns) for columns in unique)


def _why_left_out(pipeline: Pipeline, schema: TableSchema, format: Format) -> str:
    database, name = schema.database, schema.table
    if pipeline.outbox is not None and pipeline.outbox.matches(database, name):
        return "it is an outbox, whose rows are published as messages"
    for transform in pipeline.transforms:
        if matches_any((transform.tables,), database, name):
            return f"function {transform.function!r} transforms its changes, so records may differ from rows"
    messages = format.messages(schema)
    for op, kind in (("c", ChangeKind.CREATE), ("u", ChangeKind.UPDATE)):
        if op in pipeline.skip or not messages[kind]:
            return f"the pipeline leaves out changes of op {op}, so rows are missing in its topic on purpose"
    return ""


def _why_unreadable(reader: RecordReader, *, without_key: bool, is_shared: bool, is_compacted: bool) -> str:
    """Why the rows of the table cannot be derived from its records; '' if they can be."""
    if without_key and not reader.says_before:
        return "it has no unique key, and its records do not have the row before a change"
    if without_key and is_compacted:
        return "its records have no unique key, and its topic is compacted, which removes earlier records of a key"
    if is_shared and not reader.says_before:
        return "its topic is shared, and its records do not name their table"
    return ""


def _why_extra_rows(pipeline: Pipeline, route: TableRoute, format: Format, schema: TableSchema) -> str:
    if route.route.rows is not None:
        return "no record is published when a row no longer satisfies the condition in `rows`"
    if "d" in pipeline.skip or not format.messages(schema)[ChangeKind.DELETE]:
        return "deletes are not published"
    return ""
