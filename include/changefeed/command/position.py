"""Commands about where pipelines stand: status, lag."""

from __future__ import annotations

import json

import typer
from rich.table import Table

from changefeed.command.app import (
    EXIT_ERROR,
    AnyPipeline,
    AsJson,
    PipelineName,
    app,
    chosen,
    endpoints_of,
    out,
    store_of,
)
from changefeed.pipelines.file import load_pipeline


@app.command()
def status(name: AnyPipeline = None, as_json: AsJson = False) -> None:
    """Show checkpoint, head and lag of pipelines. Exits 1 when one is in error."""
    from changefeed.upkeep.status import status as status_of

    statuses = [status_of(endpoints_of(pipeline), store_of(pipeline)) for pipeline in chosen(name)]
    if as_json:
        out.print_json(json.dumps([status.to_json() for status in statuses]))
    else:
        table = Table("pipeline", "state", "window", "checkpoint", "head", "lag bytes", box=None)
        for status in statuses:
            lag = "" if status.lag_bytes is None else f"{status.lag_bytes:,}"
            table.add_row(
                status.pipeline, status.state, str(status.window), status.checkpoint or "", status.head or "", lag
            )
        out.print(table)
        for status in statuses:
            if status.error:
                out.print(f"{status.pipeline}: {status.error}")
    if any(status.error for status in statuses):
        raise typer.Exit(EXIT_ERROR)


@app.command()
def lag(name: PipelineName, as_json: AsJson = False) -> None:
    """Show how far a pipeline is behind, in bytes and seconds, and how long the server keeps what is not published.

    Exits 1 when the pipeline is in error.
    """
    from changefeed.upkeep.position import position

    pipeline = load_pipeline(name)
    stands = position(endpoints_of(pipeline), store_of(pipeline)).to_json()
    if as_json:
        shown = ("pipeline", "state", "lag_bytes", "lag_seconds", "retention_headroom_seconds", "error")
        out.print_json(json.dumps({key: stands[key] for key in shown}))
    elif stands["error"]:
        out.print(f"{name}: {stands['error']}")
    else:
        out.print(f"{name} is {stands['state']}")
        for key in ("lag_bytes", "lag_seconds", "retention_headroom_seconds"):
            figure = "not known" if stands[key] is None else f"{stands[key]:,.0f}"
            out.print(f"{key:27}{figure}")
    if stands["error"]:
        raise typer.Exit(EXIT_ERROR)
