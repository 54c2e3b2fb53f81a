"""The command replicate, which applies published changes to a follower."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import typer

from changefeed.cli.app import EXIT_NOTHING_NEW, AsJson, PipelineName, app, connections_of, out, print_json
from changefeed.cli.request_options import add_options
from changefeed.model.connection import from_environment
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.settings.file import load_pipeline
from changefeed.settings.pipeline_settings import OnStatement
from changefeed.settings.requests.replicate import ReplicateRequest
from changefeed.spark.progress_line import Progress, progress_line


@app.command()
@add_options(
    ReplicateRequest,
    connection=typer.Option("--to", metavar="CONNECTION"),
    databases=typer.Option("--database", metavar="NAME"),
    start=typer.Option("--from", metavar="FILE:POSITION"),
)
def replicate(
    name: PipelineName,
    arguments: dict[str, Any],
    as_json: AsJson = False,
) -> None:
    """Apply the published changes to a follower, in the source's commit order, each change once.

    The first run begins at the pipeline's start, on a server without its tables, which are created by DDL records or by
    a snapshot; with --from it begins on a copy of the source. Exits 3 if nothing is new.
    """
    from changefeed.pipeline.connections import mysql_connection
    from changefeed.replicate.applier import AppliedCounts
    from changefeed.replicate.run import replicate as bring

    request = ReplicateRequest.of(arguments)
    follower = mysql_connection(request.connection, from_environment)
    start = BinlogCoordinates.parse(request.start) if request.start else None
    runs_statements = request.statements is OnStatement.RUN
    connections = connections_of(load_pipeline(name))
    counts = AppliedCounts()

    def read() -> Progress:
        rows = sum(list(counts.tables.values()))  # its own copy: the run adds tables meanwhile
        return Progress(rows, counts.expected_rows, "rows", rows)

    with progress_line(f"{name}: replicate to {request.connection}", read):
        done = bring(connections, follower, request.databases, start, request.sessions, runs_statements, counts)
    nothing_new = done.start == done.end and not done.rows
    if as_json:
        ends = {name: str(value) if value else None for name, value in (("start", done.start), ("end", done.end))}
        print_json({**asdict(done), **ends})
    elif done.start is None:
        out.print(f"{name}: nothing is published yet, the follower begins with the pipeline's first window")
    elif nothing_new:
        out.print(f"{name}: nothing new, the follower and the pipeline are both at {done.end}")
    else:
        out.print(
            f"{name}: {request.connection} went from {done.start} to {done.end}: {done.rows:,} row changes, "
            f"{done.definitions:,} DDL statements{f', {done.statements:,} statements' if done.statements else ''}"
        )
    if done.waiting and not as_json:
        out.print(f"{name}: these tables wait for a snapshot or its rows: {', '.join(done.waiting)}")
    if nothing_new:
        raise typer.Exit(EXIT_NOTHING_NEW)
