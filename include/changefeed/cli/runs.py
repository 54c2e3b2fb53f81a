"""Commands about a pipeline's runs: plan, run, tail."""

from __future__ import annotations

import json
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from changefeed.cli.app import (
    EXIT_NOTHING_NEW,
    AsJson,
    PipelineName,
    app,
    connections_of,
    out,
    store_of,
)
from changefeed.cli.request_options import add_options
from changefeed.errors import SettingsError
from changefeed.settings.file import load_pipeline
from changefeed.settings.requests.run import RunBounds

if TYPE_CHECKING:
    from changefeed.model.checkpoint import CheckpointStore
    from changefeed.pipeline.connections import PipelineConnections
    from changefeed.pipeline.plan import Plan


@app.command()
def plan(name: PipelineName, as_json: AsJson = False) -> None:
    """Show the window that a run would publish now. Stores nothing. Exits 3 if nothing is new."""
    from changefeed.pipeline.plan import plan as plan_window
    from changefeed.pipeline.unknown_tables import check_plan, unknown_ranges

    pipeline = load_pipeline(name)
    planned = plan_window(connections_of(pipeline), store_of(pipeline), keep_first_checkpoint=False)
    window = planned.window
    if as_json:
        unfinished = [each.to_json() for each in planned.unfinished]
        unknown = unknown_ranges(pipeline, planned.history, planned.start) if planned.history else []
        shown: dict[str, object] = {
            "window": window.to_json(),
            "unfinished": unfinished,
            "lag_bytes": planned.lag_bytes,
        }
        shown["unknown_tables"] = [each.to_json() for each in unknown]
        out.print_json(json.dumps(shown))
    elif planned.is_empty:
        out.print(f"{name}: nothing new, checkpoint and head are both at {window.head}")
    else:
        for each in planned.unfinished:
            out.print(f"{name}: window {each.number}, {each.start} to {each.head}, is unfinished and comes first")
        if not window.is_empty:
            size = f"{planned.window_bytes:,} bytes"
            out.print(f"{name}: window {window.number} is {window.start} to {window.head}, {size}")
        check_plan(pipeline, planned.history, planned.start)
    if planned.is_empty:
        raise typer.Exit(EXIT_NOTHING_NEW)


@app.command()
@add_options(RunBounds, until=typer.Option(metavar="FILE:POSITION"))
def run(name: PipelineName, arguments: dict[str, Any]) -> None:
    """Publish new changes with the pipeline's own Spark, and commit them. Exits 3 if nothing is new.

    A backlog larger than the pipeline's `window_bytes` becomes several windows, which are committed one by one. With
    `start: snapshot` it then publishes the existing rows, once; if it is stopped, the next run continues there.
    """
    from changefeed.pipeline.heartbeat import Heartbeat, write_heartbeat
    from changefeed.pipeline.plan import plan as plan_window
    from changefeed.snapshot.first import is_first_due

    bounds = RunBounds.of(arguments)
    pipeline = load_pipeline(name)
    connections, store = connections_of(pipeline), store_of(pipeline)
    planned = plan_window(connections, store)
    if planned.is_empty:
        write_heartbeat(connections, Heartbeat.of_idle(planned))
        out.print(f"{name}: nothing new, checkpoint and head are both at {planned.window.head}")
    else:
        _publish(connections, store, planned, bounds)
    if is_first_due(connections):
        from changefeed.cli.snapshot import take_first_snapshot

        take_first_snapshot(connections, store)
    elif planned.is_empty:
        raise typer.Exit(EXIT_NOTHING_NEW)


def _publish(connections: PipelineConnections, store: CheckpointStore, planned: Plan, bounds: RunBounds) -> None:
    from changefeed.ingest.cut import cut
    from changefeed.ingest.run import run_windows
    from changefeed.pipeline.heartbeat import Heartbeat, write_heartbeat
    from changefeed.spark.session import session

    name, frozen = connections.pipeline.name, cut(connections, planned, bounds)
    at, heartbeat = planned.window.start, None
    with session(connections.pipeline, "changefeed.ingest.run") as spark:
        for manifest in run_windows(spark, connections, frozen, store, bounds.max_seconds):
            at, heartbeat = manifest.window.head, Heartbeat.of_committed(manifest)
            out.print(
                f"{name}: committed window {manifest.window.number} at {at}: {manifest.row_count:,} rows in "
                f"{manifest.message_count:,} messages, {manifest.size_bytes:,} bytes of binlog"
            )
            for transform, rows in manifest.transformed_away.items():
                out.print(f"{name}: {rows:,} rows dropped by transform {transform}")
    if heartbeat is not None:
        write_heartbeat(connections, heartbeat)
    if at != planned.window.head:
        out.print(f"{name}: the next run continues, up to {planned.window.head}")


@app.command()
def tail(
    name: PipelineName,
    table: Annotated[
        list[str] | None,
        typer.Option(help="Only records of this DATABASE.TABLE, also of one that was dropped. May be repeated."),
    ] = None,
    beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Begin at the first record of each topic. Default: at the end.")
    ] = False,
    limit: Annotated[int | None, typer.Option("-n", help="Maximum number of records.")] = None,
    follow: Annotated[bool, typer.Option("--follow/--no-follow", help="At the end, wait for further records.")] = True,
) -> None:
    """Print the committed records of a pipeline's topics, one JSON line each, with topic, partition and offset.

    Without --table also those of schema changes, outbox rows, rerouted rows and dropped tables. Avro is decoded with
    the schemas of the pipeline's registry.
    """
    from changefeed.cli.tail import dropped_tables, published_topics, read_lines
    from changefeed.pipeline.topics import table_topics
    from changefeed.pipeline.windows import last_stable_state

    pipeline = load_pipeline(name)
    connections = connections_of(pipeline)
    with connections.session() as session:
        topics = table_topics(pipeline, session)
    named = {f"{database}.{table_name}": topic for (database, table_name), topic in topics.items()}
    named |= dropped_tables(pipeline, connections.kafka, sorted(set(table or ()) - set(named)))
    missing = sorted(set(table or ()) - set(named))
    if missing:
        raise SettingsError(f"pipeline {name!r} captures no table {missing[0]!r}; it has {', '.join(named) or 'none'}")
    topics_to_read = [topic for full, topic in named.items() if not table or full in table]
    if not table:
        topics_to_read += published_topics(last_stable_state(connections))
    topics_to_read = list(dict.fromkeys(topics_to_read))
    schemas = connections.registry.schema if connections.registry else None
    for line in islice(
        read_lines(connections.kafka, topics_to_read, schemas, from_beginning=beginning, follow=follow), limit
    ):
        print(line, flush=True)
