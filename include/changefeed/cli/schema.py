"""The command schema, which shows a pipeline's table schemas, and changes them."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from changefeed.cli.app import AsJson, PipelineName, app, connections_of, out, print_json, store_of
from changefeed.errors import SettingsError
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.settings.file import load_pipeline

if TYPE_CHECKING:  # they load sqlglot
    from changefeed.ddl.history import SchemaHistory
    from changefeed.kafka.lease import Lease
    from changefeed.pipeline.connections import PipelineConnections
    from changefeed.pipeline.defined_tables import DefinedTables


class UnknownAction(StrEnum):
    """Actions for rows of tables whose columns are not known."""

    PLACEHOLDER = "placeholder"
    BEGIN = "begin"


@app.command()
def schema(
    name: PipelineName,
    as_json: AsJson = False,
    relearn: Annotated[
        list[str] | None, typer.Option(help="Read this DATABASE.TABLE from the server again. May be repeated.")
    ] = None,
    define: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="File with CREATE TABLE statements, for rows whose columns are not known.",
        ),
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="FILE:POSITION", help="With --define: coordinates of the rows that it is for.")
    ] = None,
    unknown: Annotated[
        UnknownAction | None,
        typer.Option(help="Action for all rows whose columns are not known, instead of stopping."),
    ] = None,
) -> None:
    """Show the table schemas of a pipeline at the head of the source's binlog, and ranges with unknown columns.

    --relearn, --define and --unknown change the schema history. With --json, --define and --unknown print the tables
    that were defined and the ranges with unknown columns.
    """
    from changefeed.ddl import Table
    from changefeed.pipeline import schema_history
    from changefeed.pipeline.connections import ensure_commit_log
    from changefeed.pipeline.unknown_tables import unknown_ranges

    if sum(option is not None for option in (relearn or None, define, unknown)) > 1 or (at and not define):
        raise SettingsError("expected at most one of --relearn, --define (with or without --at) and --unknown")
    pipeline = load_pipeline(name)
    connections = connections_of(pipeline)
    defined: list[DefinedTables] = []
    if relearn or define or unknown:
        ensure_commit_log(connections)
        with connections.lease(brief=True) as lease:
            history, defined = _change_history(connections, relearn or [], define, at, unknown, lease)
    else:
        copied = schema_history.copied_history(pipeline, store_of(pipeline))
        stored = schema_history.load_history(connections) or copied or schema_history.read_stored_history(connections)
        with connections.session() as session:
            history = schema_history.current(session, stored)
    ranges = unknown_ranges(pipeline, history, history.until)
    tables = schema_history.captured_tables(pipeline, history)
    if as_json and (define or unknown):
        print_json(
            {"defined": [asdict(each) for each in defined], "unknown_tables": [each.to_json() for each in ranges]}
        )
        return
    if not as_json:
        if relearn:
            out.print(f"{name}: {', '.join(relearn)} read from the server, for rows from {history.until} on")
        for each in defined:
            out.print(f"{name}: {each.table} is defined for rows from {each.start} to {each.end or 'the end'}")
        for left in ranges:
            out.print(f"{name}: {'not known' if left.answer == 'stop' else left.answer}: {left}")
    if define or unknown:
        return
    if as_json:
        print_json(
            [
                asdict(entry.schema)
                if isinstance(entry, Table)
                else {"database": table.database, "table": table.table, "problem": entry.problem}
                for table, entry in tables
            ]
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


def _change_history(
    connections: PipelineConnections,
    relearn: list[str],
    define: Path | None,
    at: str | None,
    unknown: UnknownAction | None,
    lease: Lease,
) -> tuple[SchemaHistory, list[DefinedTables]]:
    """Change the schema history by one of the options, and store it. The caller holds the pipeline's lease.

    Returns the history and the tables that --define defined.

    Publishers of earlier attempts are fenced first. Otherwise one that was suspended could publish a window with the
    old schemas.
    """
    from changefeed.kafka.fencing import fence
    from changefeed.pipeline import open_windows, schema_history
    from changefeed.pipeline.defined_tables import define as define_tables
    from changefeed.pipeline.unknown_tables import with_answer

    pipeline = connections.pipeline
    fence(lease)
    open_windows.check_none_in_part(pipeline.name, lease.log().read())
    if relearn:
        schema_history.restore_history(connections, store_of(pipeline), lease)
        with connections.session() as session:
            return schema_history.relearn(connections, session, relearn, lease), []
    history = schema_history.read_stored_history(connections)
    if unknown:
        return schema_history.store_history(connections, with_answer(pipeline, history, unknown.value), lease), []
    assert define is not None
    try:
        sql = define.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{define} is not a text in UTF-8: {error}") from error
    history, defined = define_tables(pipeline, history, sql, BinlogCoordinates.parse(at) if at else None)
    return schema_history.store_history(connections, history, lease), defined
