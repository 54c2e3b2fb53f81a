"""Command about schemas: what a pipeline knows of its tables, and learning them again."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from changefeed.command.app import AsJson, PipelineName, app, endpoints_of, out, store_of
from changefeed.errors import SchemaError, SettingsError
from changefeed.pipelines.file import load_pipeline


@app.command()
def schema(
    name: PipelineName,
    as_json: AsJson = False,
    relearn: Annotated[list[str] | None, typer.Option(help="Learn this DATABASE.TABLE from the server again.")] = None,
) -> None:
    """Show the tables of a pipeline as its schema history has them at the head of the source's binlog."""
    from changefeed.ddl import Table, TableName
    from changefeed.runs import schema_history

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
        else:
            kept = schema_history.load_history(endpoints)
            kept = kept or schema_history.copied_history(pipeline, store_of(pipeline))
            if kept is None:
                raise SchemaError(
                    f"pipeline {name!r} has no schema history yet: its first run learns all tables, or, where "
                    "nothing needs them, the first that reaches the end of the binlog"
                )
            history = schema_history.current(session, kept)
    tables = schema_history.captured(pipeline, history)
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
