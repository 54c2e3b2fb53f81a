"""Commands about the position of pipelines: status, lag."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from changefeed.cli.app import (
    EXIT_ERROR,
    AnyPipeline,
    AsJson,
    PipelineName,
    app,
    connections_of,
    out,
    print_json,
    print_table,
    select_pipelines,
    store_of,
)
from changefeed.errors import BrokerUnavailableError, ChangefeedError
from changefeed.settings.file import load_pipeline
from changefeed.settings.pipeline import Pipeline

if TYPE_CHECKING:
    from changefeed.operations.status import Status


@app.command()
def status(name: AnyPipeline = None, as_json: AsJson = False) -> None:
    """Show state, window, checkpoint and head of pipelines, and how soon after their commit changes were readable in
    Kafka in the last hour. Exits 1 if a pipeline is in error."""
    from changefeed.operations.status import Status

    pipelines, errors = select_pipelines(name)
    away: dict[str, str] = {}
    statuses = [_status(pipeline, away) for pipeline in pipelines]
    statuses += [Status.in_error(path.stem, error) for path, error in errors.items()]
    if as_json:
        print_json([status.to_json() for status in statuses])
    else:
        rows = [
            (
                status.pipeline,
                str(status.window),
                status.checkpoint or "",
                status.head or "",
                "; ".join(filter(None, (status.summary, status.freshness_summary, status.parked_summary))),
            )
            for status in statuses
        ]
        print_table(("pipeline", "window", "checkpoint", "head", "state"), rows)
        for status in statuses:
            for error in filter(None, (status.error, status.freshness_error)):
                out.print(f"{status.pipeline}: {error}")
            for each in status.parked:
                out.print(f"{status.pipeline}: {each['table']} is parked from {each['at']} on: {each['reason']}")
    if any(status.error for status in statuses):
        raise typer.Exit(EXIT_ERROR)


@app.command()
def lag(name: PipelineName, as_json: AsJson = False) -> None:
    """Show a pipeline's lag in bytes and seconds, and for how long the server keeps the checkpoint's binlog file.

    The bytes are of the complete binlog, the seconds of the oldest change of the pipeline's tables: 0 if there is none.

    Exits 1 if the pipeline is in error.
    """
    from changefeed.operations.lag import position

    pipeline = load_pipeline(name)
    current = position(connections_of(pipeline), store_of(pipeline))
    values = current.to_json()
    if as_json:
        lag = (
            "lag_bytes",
            "lag_seconds",
            "retention_headroom_seconds",
            "retention_unlimited",
            "own_changes",
            "searched_bytes",
        )
        shown = ("pipeline", "state", *lag, "parked")
        print_json({key: values[key] for key in (*shown, "error")})
    elif current.status.error:
        out.print(f"{name}: {current.status.error}")
    else:
        out.print(f"{name}: {'; '.join(filter(None, (current.status.summary, current.retention.summary)))}")
        if current.status.parked:
            out.print(f"{name}: {current.status.parked_summary}")
        for key in ("lag_bytes", "lag_seconds", "retention_headroom_seconds"):
            figure = "not known" if values[key] is None else f"{values[key]:,.0f}"
            if key == "retention_headroom_seconds" and current.retention.unlimited:
                figure = "unlimited: the server purges nothing by itself"
            out.print(f"{key:27}{figure}")
    if current.status.error:
        raise typer.Exit(EXIT_ERROR)


def _status(pipeline: Pipeline, away: dict[str, str]) -> Status:
    """The pipeline's status. Clusters that are ``away`` (connection -> error) are not asked again, as that takes
    seconds; a cluster that does not answer now is added."""
    from changefeed.operations.status import Status, status, with_freshness

    try:
        store = store_of(pipeline)
    except ChangefeedError as error:
        return Status.in_error(pipeline.name, error)
    connections = connections_of(pipeline)
    cluster = pipeline.kafka.connection
    found = status(connections, store, kafka_error=away.get(cluster, ""))
    if cluster in away:
        return replace(found, freshness_error=away[cluster])
    found = with_freshness(found, connections)
    for text in (found.error, found.freshness_error):
        if text and text.startswith(BrokerUnavailableError.__name__):
            away[cluster] = text
    return found
