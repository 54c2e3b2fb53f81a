"""Which tables are compared, by what their rows are told apart, and why others cannot be."""

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
    "it has no primary key, and records have what the server keeps for its UNIQUE key that is too long for an index "
    "(DB_ROW_HASH_1 …), which no SELECT shows: its rows cannot be told apart by their values"
)
_SHOWN = 20
"""So many tables are named."""


@dataclass(frozen=True)
class JudgedTable:
    """A table as the server has it now, and how the records of its topic are told apart.

    ``without_key``: by all of their values, so rows are counted. ``keeps_gone`` says why the topic may have rows that
    the server does not have, and is '' where it may not. ``is_text``: its rows are compared by their text.
    ``virtual`` are columns that are not compared: a server works them out for each session that reads or changes rows,
    in its time zone and language.
    """

    number: int
    schema: TableSchema
    topic: str
    without_key: bool = False
    keeps_gone: str = ""
    is_text: bool = False
    virtual: frozenset[str] = frozenset()

    def compared(self, row: Row) -> Row:
        """What of a row is compared."""
        return {name: value for name, value in row.items() if name not in self.virtual} if self.virtual else row

    @property
    def needs_view(self) -> bool:
        """Whether only the view that a snapshot read its rows in says which changes are in them already: equal rows of
        it may be there more than once."""
        return self.without_key and not self.schema.primary_key

    @property
    def name(self) -> str:
        """DATABASE.TABLE."""
        return f"{self.schema.database}.{self.schema.table}"


@dataclass(frozen=True)
class Tables:
    """Those that are ``judged``, and by name why others are not."""

    judged: tuple[JudgedTable, ...]
    refused: Mapping[str, str]

    def of_topic(self, topic: str) -> dict[str, JudgedTable]:
        """The tables whose records stand in ``topic``, by name."""
        return {table.name: table for table in self.judged if table.topic == topic}

    @property
    def topics(self) -> list[str]:
        """Each topic once."""
        return list(dict.fromkeys(table.topic for table in self.judged))


def tables_of(
    pipeline: Pipeline,
    routes: Mapping[tuple[str, str], TableRoute],
    server: Session,
    patterns: Sequence[str] = (),
    compacted: Collection[str] = (),
    unreadable: Mapping[str, str] = MappingProxyType({}),
) -> Tables:
    """The tables of ``routes`` whose names match one of ``patterns``, or all of them, as ``server`` has them.

    ``compacted`` are topics that forget earlier records of a key; ``unreadable`` says of tables, and of patterns of
    tables that are hidden, why they cannot be read. Raises SettingsError where no table matches.
    """
    format = compile_routes(pipeline).format(0)
    topics = Counter(route.topic for route in routes.values())
    hashed = set(hashed_tables(server, lambda *name: name in routes))
    judged: list[JudgedTable] = []
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
        reason = _left_out(pipeline, schema, format) or _unreadable(
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
            keeps = _keeps_gone(pipeline, route, format, schema)
            virtual = _virtual_columns(server, schema)
            is_text = reader.is_text(schema) and not virtual
            judged.append(JudgedTable(len(judged), schema, route.topic, without_key, keeps, is_text, virtual))
    if not judged and not refused:
        names = [f"{database}.{table}" for database, table in routes]
        wanted = f"matches {', '.join(patterns)}" if patterns else "is on the server"
        near = did_you_mean(patterns[0], names) if patterns else ""
        shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")
        raise SettingsError(
            f"no table that pipeline {pipeline.name!r} captures {wanted}{near}: it captures {shown or 'none'}"
        )
    return Tables(tuple(judged), refused)


_VIRTUAL = (
    "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = %s AND extra LIKE %s"
)


def _virtual_columns(server: Session, schema: TableSchema) -> frozenset[str]:
    if not any(column.generated for column in schema.columns):
        return frozenset()
    return frozenset(str(name) for (name,) in server.rows(_VIRTUAL, schema.database, schema.table, "%VIRTUAL GEN%"))


def _is_unique(route: TableRoute, schema: TableSchema) -> bool:
    """Whether no two rows have the same message key."""
    key = set(route.route.key.keyed(schema).primary_key)
    unique = [key.columns for key in schema.unique_keys or () if key.not_null]
    if schema.primary_key:
        unique.append(schema.primary_key)
    return any(key >= set(columns) for columns in unique)


def _left_out(pipeline: Pipeline, schema: TableSchema, format: Format) -> str:
    database, name = schema.database, schema.table
    if pipeline.outbox is not None and pipeline.outbox.takes(database, name):
        return "it is an outbox: its rows are messages of their own"
    for transform in pipeline.transforms:
        if matches_any((transform.tables,), database, name):
            return (
                f"its changes go through function {transform.function!r}, and a row's record is what that makes of it"
            )
    messages = format.messages(schema)
    for op, kind in (("c", ChangeKind.CREATE), ("u", ChangeKind.UPDATE)):
        if op in pipeline.skip or not messages[kind]:
            return f"the pipeline leaves out changes of op {op}, so its topic lacks rows on purpose"
    return ""


def _unreadable(reader: RecordReader, *, without_key: bool, is_shared: bool, is_compacted: bool) -> str:
    """Why the records do not say which rows there are; '' where they do."""
    if without_key and not reader.says_before:
        return "it has no unique key, and its records do not say what a row was before"
    if without_key and is_compacted:
        return "its records have no unique key, and its topic is compacted: earlier records of a key are gone"
    if is_shared and not reader.says_before:
        return "its records do not say which table of their topic they are of"
    return ""


def _keeps_gone(pipeline: Pipeline, route: TableRoute, format: Format, schema: TableSchema) -> str:
    if route.route.rows is not None:
        return "a row that ceases to fulfil the condition in `rows` is not heard of again"
    if "d" in pipeline.skip or not format.messages(schema)[ChangeKind.DELETE]:
        return "deletes are not published"
    return ""
