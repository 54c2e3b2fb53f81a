"""Captured tables with unknown columns, and the answers of a pipeline: stop, placeholder or begin.

A run that would read rows of an unknown table stops before the first row and lists all such tables, unless the
pipeline or `changefeed schema` chose another answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
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
    """A range of rows of a captured table whose columns are not known, from ``start`` to ``end``; '' for no end yet.

    ``answer`` is stop, placeholder or begin.
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
    """The ranges after ``start`` in which the columns of a captured table are not known, in binlog order."""
    found = []
    for name, table, _, end in segments(history):
        passed = start is not None and (_is_before(table.last, start) or (end is not None and end <= start))
        if table.rows and not passed and _captures(pipeline, history, name):
            answer = _answer(pipeline, table)
            full = f"{name.database}.{name.table}"
            end_text = str(end) if end else ""
            found.append(
                UnknownRange(full, table.first, end_text, table.rows, describe_problem(pipeline, table), answer)
            )
    return sorted(found, key=lambda each: BinlogCoordinates.parse(each.start))


def _captures(pipeline: Pipeline, history: SchemaHistory, name: TableName) -> bool:
    """Whether rows of the table are published; rows of system tables are not."""
    server = history.server
    is_own = is_own_table(*name, is_mariadb=server.is_mariadb, major=server.version[0])
    return pipeline.tables.matches(*name) and not is_own


def describe_problem(pipeline: Pipeline, table: UnknownTable) -> str:
    """Why the table's columns are unknown. If the pipeline hides columns, the text quotes no statement, because it
    could have hidden values."""
    if not pipeline.hides_columns:
        return table.problem
    return "the statement that they do not follow from is not shown, as the pipeline hides columns"


def check_tables_known(
    pipeline: Pipeline, history: SchemaHistory | None, start: BinlogCoordinates, parked: Collection[str] = ()
) -> None:
    """Raise SchemaError if rows from ``start`` on belong to unknown tables without an answer, other than ``parked``
    ones; the error lists all such tables."""
    if history is None or not history.tables_known:
        return
    _check_placeholders_hide(pipeline, history, start)
    stopping = [
        each for each in unknown_ranges(pipeline, history, start) if each.answer == "stop" and each.table not in parked
    ]
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
        "or set `unknown_schema` in the pipeline; or seek to later coordinates."
    ).of_tables(*dict.fromkeys(each.table for each in stopping))


def check_plan(pipeline: Pipeline, history: SchemaHistory | None, start: BinlogCoordinates) -> None:
    """As `check_tables_known`, for a plan: with `on_table_error: park` the run parks unknown tables instead."""
    if pipeline.on_table_error == "stop":
        check_tables_known(pipeline, history, start)


def _check_placeholders_hide(pipeline: Pipeline, history: SchemaHistory, start: BinlogCoordinates) -> None:
    """Raise SchemaError if a column with a placeholder as its name may be a column that the pipeline hides."""
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
        if shown := pipeline.list_visible_columns(name.database, name.table, nameless):
            raise SchemaError(
                f"pipeline {pipeline.name!r} hides columns of {name.database}.{name.table}, and would publish "
                f"{', '.join(shown)} of its rows from {table.first} on: what these columns were called is not known, "
                "so a hidden column may be among them. Nothing was published. Say what the table was with "
                f"`changefeed schema {pipeline.name} --define FILE.sql`; or hide such columns, `*.*.__dropped_col_*` "
                "in `columns`; or leave these rows out with `unknown_schema`: begin."
            )


def apply_answers(pipeline: Pipeline, history: SchemaHistory) -> SchemaHistory:
    """``history`` with tables made by the answers in place of unknown tables; use it to read rows, do not store it."""

    def table(name: TableName, entry: Entry | None) -> Entry | None:
        if not isinstance(entry, UnknownTable) or not entry.columns or not _captures(pipeline, history, name):
            return entry
        answer = _answer(pipeline, entry)
        return entry if answer == "stop" else _made_up(name, entry, history.collations, answer)

    return _with_tables(history, table)


def with_answer(pipeline: Pipeline, history: SchemaHistory, answer: str) -> SchemaHistory:
    """``history`` with ``answer`` for all unknown rows of captured tables that have no answer yet."""

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
    """Each unknown table with the range in which it is unknown.

    The range is given by the coordinates of the statements at its start and end; None for the start and the end of the
    history.
    """
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
    """Whether ``last``, the coordinates of the last TABLE_MAP of some rows, is known and in a file before that of
    ``start``."""
    return bool(last) and BinlogCoordinates.parse(last).number < start.number


def _answer(pipeline: Pipeline, table: UnknownTable) -> str:
    return table.answer or pipeline.unknown_schema_action(table.name.database, table.name.table)


def _made_up(name: TableName, table: UnknownTable, collations: Mapping[int, str], answer: str) -> Table:
    """A table with which the rows of ``table`` can be read: known columns, placeholders for the others, and no key.

    The number in a placeholder counts columns from 0, as in mysql-replication.
    """
    known: tuple[Column | None, ...] = table.known or (None,) * len(table.columns)
    columns = tuple(
        column or shown_column(f"__dropped_col_{number}__", row, collations)
        for number, (column, row) in enumerate(zip(known, table.columns, strict=True))
    )
    schema = TableSchema(name.database, name.table, columns, indexes=(), is_published=answer != "begin")
    return Table(schema, "")
