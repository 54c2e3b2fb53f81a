"""Captured tables whose rows cannot be read as the binlog has them, and what a pipeline does about them.

A run stops before the first row where a table is not known for rows that it would read, and lists all such tables;
unless the pipeline, or somebody with `changefeed schema`, chose another answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from changefeed.ddl.draft import shown_column
from changefeed.ddl.history import SchemaHistory
from changefeed.ddl.names import TableName
from changefeed.ddl.schemas import Entry
from changefeed.ddl.table import Table, UnknownTable
from changefeed.errors import SchemaError
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.table_schema import Column, TableSchema
from changefeed.settings.pipeline import Pipeline
from changefeed.source.mysql.own_tables import is_own_table

_MOST_SHOWN = 50


@dataclass(frozen=True)
class UnknownRange:
    """Rows of a captured table whose columns are not known: from ``start`` on, up to ``end``, '' for no end yet.

    ``answer`` is what is done about them: stop, placeholder or begin.
    """

    table: str
    start: str
    end: str
    rows: int
    problem: str
    answer: str

    def __str__(self) -> str:
        end = f" to {self.end}" if self.end else ""
        return f"{self.table}, {self.rows:,} rows from {self.start}{end}: {self.problem}"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def unknown_ranges(
    pipeline: Pipeline, history: SchemaHistory, start: BinlogCoordinates | None = None
) -> list[UnknownRange]:
    """The rows of captured tables from ``start`` on whose columns are not known, in binlog order."""
    found = []
    for name, table, _, end in segments(history):
        passed = start is not None and (_is_before(table.last, start) or (end is not None and end <= start))
        if table.rows and not passed and _captures(pipeline, history, name):
            answer = _answer(pipeline, table)
            full = f"{name.database}.{name.table}"
            end_text = str(end) if end else ""
            found.append(UnknownRange(full, table.first, end_text, table.rows, shown_problem(pipeline, table), answer))
    return sorted(found, key=lambda each: BinlogCoordinates.parse(each.start))


def _captures(pipeline: Pipeline, history: SchemaHistory, name: TableName) -> bool:
    """Whether rows of the table are published: those of the server's own tables never are."""
    server = history.server
    is_own = is_own_table(*name, is_mariadb=server.is_mariadb, major=server.version[0])
    return pipeline.tables.matches(*name) and not is_own


def shown_problem(pipeline: Pipeline, table: UnknownTable) -> str:
    """Since what the table's columns are not known; where the pipeline hides columns, without the statement that it
    quotes, which has values that they hide."""
    if not pipeline.hides_columns:
        return table.problem
    return "the statement that they do not follow from is not shown, as the pipeline hides columns"


def check_tables_known(pipeline: Pipeline, history: SchemaHistory | None, start: BinlogCoordinates) -> None:
    """Raises SchemaError, which lists them all, where rows from ``start`` on are of tables that are not known and no
    answer says what to do about it."""
    if history is None or not history.tables_known:
        return
    _check_placeholders_hide(pipeline, history, start)
    stopping = [each for each in unknown_ranges(pipeline, history, start) if each.answer == "stop"]
    if not stopping:
        return
    lines = [f"  {each}" for each in stopping[:_MOST_SHOWN]]
    if len(stopping) > _MOST_SHOWN:
        lines.append(f"  … and {len(stopping) - _MOST_SHOWN} more")
    raise SchemaError(
        f"pipeline {pipeline.name!r}: the columns of these rows are not known, as the binlog does not name them "
        "(binlog_row_metadata is not FULL) and they do not follow from the tables of now:\n"
        + "\n".join(lines)
        + "\nNothing was published. Choose one:\n"
        f"  changefeed schema {pipeline.name} --define FILE.sql      CREATE TABLE statements of that time, such as "
        "mysqldump --no-data writes\n"
        f"  changefeed schema {pipeline.name} --unknown begin        leave these rows out, and count them\n"
        f"  changefeed schema {pipeline.name} --unknown placeholder  publish them without a key, with "
        "__dropped_col_N__ for names that are not known\n"
        "or set `unknown_definition` in the pipeline; or seek to later coordinates."
    )


def _check_placeholders_hide(pipeline: Pipeline, history: SchemaHistory, start: BinlogCoordinates) -> None:
    """Raises SchemaError where a column would be published under a placeholder, and may be one that the pipeline hides
    under its name."""
    for name, table, _, end in segments(history):
        passed = _is_before(table.last, start) or (end is not None and end <= start)
        if (
            passed
            or not table.columns
            or not _captures(pipeline, history, name)
            or _answer(pipeline, table) != "placeholder"
        ):
            continue
        made_up = _made_up(name, table, history.collations, "placeholder").schema
        known = table.known or (None,) * len(table.columns)
        nameless = [column.name for column, one in zip(made_up.columns, known, strict=True) if one is None]
        if shown := pipeline.may_show(name.database, name.table, nameless):
            raise SchemaError(
                f"pipeline {pipeline.name!r} hides columns of {name.database}.{name.table}, and would publish "
                f"{', '.join(shown)} of its rows from {table.first} on: what these columns were called is not known, "
                "so one of those that are hidden may be among them. Nothing was published. Say what the table was with "
                f"`changefeed schema {pipeline.name} --define FILE.sql`; or hide such columns, `*.*.__dropped_col_*` "
                "in `columns`; or leave these rows out with `unknown_definition`: begin."
            )


def answered(pipeline: Pipeline, history: SchemaHistory) -> SchemaHistory:
    """``history`` with the tables that answers make of those that are not known; for reading rows, not to be stored."""

    def table(name: TableName, entry: Entry | None) -> Entry | None:
        if not isinstance(entry, UnknownTable) or not entry.columns or not _captures(pipeline, history, name):
            return entry
        answer = _answer(pipeline, entry)
        return entry if answer == "stop" else _made_up(name, entry, history.collations, answer)

    return _with_tables(history, table)


def with_answer(pipeline: Pipeline, history: SchemaHistory, answer: str) -> SchemaHistory:
    """``history`` with ``answer`` for all rows of captured tables that have none yet."""

    def table(name: TableName, entry: Entry | None) -> Entry | None:
        if not isinstance(entry, UnknownTable) or not entry.rows or not _captures(pipeline, history, name):
            return entry
        return entry if _answer(pipeline, entry) != "stop" else replace(entry, answer=answer)

    return replace(_with_tables(history, table), id="")


def with_answers_of(earlier: SchemaHistory, history: SchemaHistory) -> SchemaHistory:
    """``history`` with the answers that ``earlier`` has for the same rows."""
    answers = {(name, unknown.first): unknown.answer for name, unknown, _, _ in segments(earlier)}

    def table(name: TableName, entry: Entry | None) -> Entry | None:
        if not isinstance(entry, UnknownTable) or entry.answer:
            return entry
        return replace(entry, answer=answers.get((name, entry.first), ""))

    return _with_tables(history, table)


def _with_tables(history: SchemaHistory, table: Any) -> SchemaHistory:
    timeline = history.timeline
    tables = {name: table(name, entry) for name, entry in timeline.initial.tables.items()}
    initial = replace(timeline.initial, tables=tables) if tables != timeline.initial.tables else timeline.initial
    entries = tuple(
        replace(entry, tables=moved)
        if (moved := {name: table(name, each) for name, each in entry.tables.items()}) != entry.tables
        else entry
        for entry in timeline.entries
    )
    return replace(history, timeline=replace(timeline, initial=initial, entries=entries))


def segments(
    history: SchemaHistory,
) -> Iterator[tuple[TableName, UnknownTable, BinlogCoordinates | None, BinlogCoordinates | None]]:
    """Each table that is not known for a while, and the statements before and behind; None for the history's ends."""
    moves: Iterable[tuple[BinlogCoordinates | None, Mapping[TableName, Entry | None]]] = (
        (None, history.timeline.initial.tables),
        *((entry.coordinates, entry.tables) for entry in history.timeline.entries),
    )
    open_ones: dict[TableName, tuple[UnknownTable, BinlogCoordinates | None]] = {}
    for at, tables in moves:
        for name, entry in tables.items():
            if name in open_ones:
                yield name, *open_ones.pop(name), at
            if isinstance(entry, UnknownTable):
                open_ones[name] = entry, at
    for name, (unknown, start) in open_ones.items():
        yield name, unknown, start, None


def _is_before(last: str, start: BinlogCoordinates) -> bool:
    """Whether all rows are in files before that of ``start``, where the last of their TABLE_MAPs is known."""
    return bool(last) and BinlogCoordinates.parse(last).number < start.number


def _answer(pipeline: Pipeline, table: UnknownTable) -> str:
    return table.answer or pipeline.unknown_answer(table.name.database, table.name.table)


def _made_up(name: TableName, table: UnknownTable, collations: Mapping[int, str], answer: str) -> Table:
    """A table that its rows can be read with: known columns, and placeholders; without a key.

    mysql-replication, too, counts the columns that nobody knows from 0.
    """
    known: tuple[Column | None, ...] = table.known or (None,) * len(table.columns)
    columns = tuple(
        column or shown_column(f"__dropped_col_{number}__", row, collations)
        for number, (column, row) in enumerate(zip(known, table.columns, strict=True))
    )
    schema = TableSchema(name.database, name.table, columns, indexes=(), is_published=answer != "begin")
    return Table(schema, "")
