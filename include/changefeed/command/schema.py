"""Command about schemas: what a pipeline knows of its tables, and learning them again."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from changefeed.command.app import AsJson, PipelineName, app, endpoints_of, out, store_of
from changefeed.coordinates import BinlogCoordinates
from changefeed.errors import SettingsError
from changefeed.pipelines.file import load_pipeline


class Answer(StrEnum):
    """What is done about rows of tables that are not known."""

    PLACEHOLDER = "placeholder"
    BEGIN = "begin"


@app.command()
def schema(
    name: PipelineName,
    as_json: AsJson = False,
    relearn: Annotated[list[str] | None, typer.Option(help="Learn this DATABASE.TABLE from the server again.")] = None,
    define: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="File of CREATE TABLE statements, for rows whose columns are not known.",
        ),
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="FILE:POSITION", help="With --define: the rows that it is for.")
    ] = None,
    unknown: Annotated[
        Answer | None, typer.Option(help="What to do with all rows whose columns are unknown, instead of stopping.")
    ] = None,
) -> None:
    """Show the tables of a pipeline as its schema history has them at the head of the source's binlog."""
    from changefeed.ddl import Table, TableName
    from changefeed.runs import schema_history
    from changefeed.runs.defined_tables import define as define_tables
    from changefeed.runs.unknown_tables import unknown_ranges, with_answer

    if sum(option is not None for option in (relearn or None, define, unknown)) > 1 or (at and not define):
        raise SettingsError("give one of --relearn, --define (with --at or without) and --unknown")
    pipeline = load_pipeline(name)
    endpoints = endpoints_of(pipeline)
    with endpoints.session() as session:
        if relearn:
            bad = [text for text in relearn if text.count(".") != 1]
            if bad:
                raise SettingsError(f"{bad[0]!r} is no DATABASE.TABLE")
            names = [TableName(*text.split(".")) for text in relearn]
            schema_history.restore_history(endpoints, store_of(pipeline))
            history = schema_history.relearn(endpoints, session, names)
            out.print(f"{name}: {', '.join(relearn)} learned from the server, for rows from {history.until} on")
        elif define:
            kept = schema_history.kept_history(endpoints)
            where = BinlogCoordinates.parse(at) if at else None
            try:
                sql = define.read_text("utf-8-sig")
            except UnicodeDecodeError as error:
                raise SettingsError(f"{define} is no text in UTF-8: {error}") from error
            history, defined = define_tables(pipeline, kept, sql, where)
            history = schema_history.store_history(endpoints, history)
            for each in defined:
                out.print(f"{name}: {each.table} is defined for rows from {each.start} to {each.end or 'the end'}")
        elif unknown:
            history = with_answer(pipeline, schema_history.kept_history(endpoints), unknown.value)
            history = schema_history.store_history(endpoints, history)
        else:
            copied = schema_history.copied_history(pipeline, store_of(pipeline))
            stored = schema_history.load_history(endpoints) or copied or schema_history.kept_history(endpoints)
            history = schema_history.current(session, stored)
    ranges = unknown_ranges(pipeline, history, history.until)
    tables = schema_history.captured(pipeline, history)
    if not as_json:
        for left in ranges:
            out.print(f"{name}: {'not known' if left.answer == 'stop' else left.answer}: {left}")
    if define or unknown:
        return
    if as_json:
        print(
            json.dumps(
                [
                    asdict(entry.schema)
                    if isinstance(entry, Table)
                    else {"database": table.database, "table": table.table, "problem": entry.problem}
                    for table, entry in tables
                ]
            )
        )
        return
    for table, entry in tables:
        if not isinstance(entry, Table):
            out.print(f"{table}: not known: {entry.problem}")
            continue
        key = ", ".join(entry.schema.columns[index].name for index in entry.schema.primary_key) or "none"
        out.print(f"{table} (primary key: {key})")
        for column in entry.schema.columns:
            extra = " unsigned" * column.unsigned + (f" {column.collation}" if column.collation else "")
            out.print(f"  {column.name} {column.data_type}{extra} {list(column.labels) or ''}".rstrip())
