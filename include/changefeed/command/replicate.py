"""Command that brings a follower to a pipeline's low watermark: replicate."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from changefeed.command.app import EXIT_NOTHING_NEW, AsJson, PipelineName, app, endpoints_of, out
from changefeed.connection import MysqlConnection, from_environment
from changefeed.coordinates import BinlogCoordinates
from changefeed.pipelines.file import load_pipeline
from changefeed.pipelines.follower_settings import SESSIONS, OnStatement


@app.command()
def replicate(
    name: PipelineName,
    follower: Annotated[str, typer.Option("--to", metavar="CONNECTION", help="Connection id of the follower.")],
    databases: Annotated[
        list[str] | None, typer.Option("--database", help="Only this database; may be given again.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="FILE:POSITION", help="Of the first run: where the follower was copied."),
    ] = None,
    sessions: Annotated[
        int, typer.Option(min=1, max=16, help="Connections that write rows at the same time, and commit in order.")
    ] = SESSIONS,
    statements: Annotated[
        OnStatement,
        typer.Option(help="Changes in statement format; run those that are safe, where the source has no triggers."),
    ] = OnStatement.REFUSE,
    as_json: AsJson = False,
) -> None:
    """Apply to a second server what the pipeline has published, in the source's commit order, each change once.

    The first run begins where the pipeline did, on a server without its tables, which its records or a snapshot make;
    or with --from on a copy of the source as it was there. Exits 3 when nothing is new.
    """
    from changefeed.replicate.run import replicate as bring

    connection = MysqlConnection.from_uri(from_environment(follower))
    at = BinlogCoordinates.parse(start) if start else None
    run_statements = statements is OnStatement.RUN
    done = bring(endpoints_of(load_pipeline(name)), connection, databases or (), at, sessions, run_statements)
    nothing_new = done.start == done.end and not done.rows
    if as_json:
        out.print_json(json.dumps({**asdict(done), "start": str(done.start), "end": str(done.end)}))
    elif nothing_new:
        out.print(f"{name}: nothing new, the follower and the pipeline are both at {done.end}")
    else:
        out.print(
            f"{name}: {follower} went from {done.start} to {done.end}: {done.rows:,} row changes, {done.definitions:,} "
            f"definitions{f', {done.statements:,} statements' if done.statements else ''}"
        )
    if done.waiting and not as_json:
        out.print(f"{name}: these tables wait for a snapshot, or for its rows: {', '.join(done.waiting)}")
    if nothing_new:
        raise typer.Exit(EXIT_NOTHING_NEW)
