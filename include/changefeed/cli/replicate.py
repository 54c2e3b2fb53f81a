"""Command that brings a follower to a pipeline's low watermark: replicate."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import typer

from changefeed.cli.app import EXIT_NOTHING_NEW, AsJson, PipelineName, app, connections_of, out
from changefeed.cli.request_options import takes
from changefeed.model.connection import MysqlConnection, from_environment
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.settings.file import load_pipeline
from changefeed.settings.pipeline_settings import OnStatement
from changefeed.settings.requests.replicate import ReplicateRequest


@app.command()
@takes(
    ReplicateRequest,
    connection=typer.Option("--to", metavar="CONNECTION"),
    databases=typer.Option("--database", metavar="NAME"),
    start=typer.Option("--from", metavar="FILE:POSITION"),
)
def replicate(
    name: PipelineName,
    asked: dict[str, Any],
    as_json: AsJson = False,
) -> None:
    """Apply to a second server what the pipeline has published, in the source's commit order, each change once.

    The first run begins where the pipeline did, on a server without its tables, which its records or a snapshot make;
    or with --from on a copy of the source as it was there. Exits 3 when nothing is new.
    """
    from changefeed.replicate.run import replicate as bring

    request = ReplicateRequest.of(asked)
    follower = MysqlConnection.from_uri(from_environment(request.connection))
    start = BinlogCoordinates.parse(request.start) if request.start else None
    run_statements = request.statements is OnStatement.RUN
    connections = connections_of(load_pipeline(name))
    done = bring(connections, follower, request.databases, start, request.sessions, run_statements)
    nothing_new = done.start == done.end and not done.rows
    if as_json:
        ends = {name: str(value) if value else None for name, value in (("start", done.start), ("end", done.end))}
        out.print_json(json.dumps({**asdict(done), **ends}))
    elif done.start is None:
        out.print(f"{name}: nothing is published yet, the follower begins with the pipeline's first window")
    elif nothing_new:
        out.print(f"{name}: nothing new, the follower and the pipeline are both at {done.end}")
    else:
        out.print(
            f"{name}: {request.connection} went from {done.start} to {done.end}: {done.rows:,} row changes, "
            f"{done.definitions:,} definitions{f', {done.statements:,} statements' if done.statements else ''}"
        )
    if done.waiting and not as_json:
        out.print(f"{name}: these tables wait for a snapshot, or for its rows: {', '.join(done.waiting)}")
    if nothing_new:
        raise typer.Exit(EXIT_NOTHING_NEW)
