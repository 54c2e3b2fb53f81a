"""Commands about a pipeline's runs: plan, run, tail."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
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
    print_json,
    store_of,
)
from changefeed.cli.request_options import add_options
from changefeed.errors import RenamedError, SettingsError
from changefeed.settings.file import load_pipeline
from changefeed.settings.requests.run import RunBounds

if TYPE_CHECKING:
    from changefeed.ingest.followed_settings import FollowedSettings
    from changefeed.model.checkpoint import CheckpointStore
    from changefeed.model.manifest import Manifest
    from changefeed.pipeline.connections import PipelineConnections
    from changefeed.pipeline.plan import Plan
    from changefeed.pipeline.planned_run import PlannedRun


@app.command()
def plan(name: PipelineName, as_json: AsJson = False) -> None:
    """Show the window that a run would publish now. Stores nothing. Exits 3 if nothing is new."""
    from changefeed.pipeline.plan import plan as plan_window
    from changefeed.pipeline.unknown_tables import check_plan, unknown_ranges

    pipeline = load_pipeline(name)
    planned = plan_window(connections_of(pipeline), store_of(pipeline), keep_first_checkpoint=False)
    window = planned.window
    if as_json:
        unknown = unknown_ranges(pipeline, planned.history, planned.start) if planned.history else []
        shown: dict[str, object] = {
            "window": window.to_json(),
            "unfinished": [planned.begun.to_json()] if planned.begun else [],
            "lag_bytes": planned.lag_bytes,
        }
        shown["unknown_tables"] = [each.to_json() for each in unknown]
        print_json(shown)
    elif planned.is_published:
        out.print(f"{name}: {planned.nothing_new}")
    else:
        if begun := planned.begun:
            out.print(f"{name}: window {begun.number}, {begun.start} to {begun.head}, is unfinished and comes first")
        if not window.is_empty:
            size = f"{planned.window_bytes:,} bytes"
            out.print(f"{name}: window {window.number} is {window.start} to {window.head}, {size}")
        check_plan(pipeline, planned.history, planned.start)
    if planned.is_published:
        raise typer.Exit(EXIT_NOTHING_NEW)


@app.command()
@add_options(RunBounds, until=typer.Option(metavar="FILE:POSITION"))
def run(name: PipelineName, arguments: dict[str, Any], as_json: AsJson = False) -> None:
    """Publish new changes with the pipeline's own Spark, and commit them.

    Exits 3 if it published and committed nothing. A backlog larger than the pipeline's `window_bytes` becomes several
    windows, which are committed one by one. With the setting `windows` and without a position at which to end, it
    publishes windows one after another for `windows.run_for`, and takes over from another such run, also if it ends at
    a position. With `start: snapshot` it then publishes the existing rows, once, and with
    `snapshot: {new_tables: true}` those of tables that match later; if it is stopped, the next run continues there.
    """
    from changefeed.ingest.followed_settings import FollowedSettings
    from changefeed.ingest.handover import plan_after_takeover
    from changefeed.pipeline.heartbeat import Heartbeat, write_heartbeat
    from changefeed.pipeline.plan import plan as plan_window
    from changefeed.settings.followed_file import FollowedFile
    from changefeed.snapshot.automatic import due_snapshot

    bounds = RunBounds.of(arguments)
    pipeline = load_pipeline(name)
    connections, store = connections_of(pipeline), store_of(pipeline)
    manifests: list[Manifest]
    first = plan_window(connections, store)
    planned = plan_after_takeover(connections, first, bounds, store)
    if planned is None:
        if as_json:
            stored = store.load(name) or first.expected
            ends = {"checkpoint": str(stored.coordinates), "head": str(first.window.head)}
            print_json({"pipeline": name, **ends, "windows": [], "snapshot": None})
        else:
            out.print(f"{name}: nothing new before {bounds.until}: a continuous run has passed it, and goes on")
        raise typer.Exit(EXIT_NOTHING_NEW)
    if pipeline.windows is not None and not bounds.stops_at_a_position:
        followed = FollowedSettings(connections, FollowedFile(pipeline))
        manifests = _publish_continuously(followed, store, planned, bounds, is_quiet=as_json)
        connections = followed.connections
    elif planned.is_empty:
        write_heartbeat(connections, Heartbeat.of_idle(planned))
        if not as_json:
            out.print(f"{name}: {planned.nothing_new}")
        manifests = []
    else:
        manifests = _publish(connections, store, planned, bounds, is_quiet=as_json)
    snapshot: dict[str, Any] | None = None
    if due := None if _is_renamed(connections) else due_snapshot(connections):
        from changefeed.cli.snapshot import take_automatic_snapshot

        snapshot = take_automatic_snapshot(connections, store, due, is_quiet=as_json)
    if as_json:
        at = manifests[-1].window.head if manifests else planned.window.start
        ends = {"checkpoint": str(at), "head": str(planned.window.head)}
        windows = [manifest.to_json() for manifest in manifests]
        print_json({"pipeline": name, **ends, "windows": windows, "snapshot": snapshot})
    if not manifests and due is None:
        raise typer.Exit(EXIT_NOTHING_NEW)


def _is_renamed(connections: PipelineConnections) -> bool:
    """Whether the pipeline got another name while windows were published one after another."""
    from changefeed.pipeline.windows import check_not_renamed, last_stable_state

    if connections.pipeline.windows is None:
        return False
    try:
        check_not_renamed(connections.pipeline.name, last_stable_state(connections))
    except RenamedError:
        return True
    return False


def _publish_continuously(
    followed: FollowedSettings, store: CheckpointStore, planned: Plan, bounds: RunBounds, *, is_quiet: bool
) -> list[Manifest]:
    """Publish windows one after another for `windows.run_for`, and commit them; returns their manifests. Prints each
    when it is committed, unless ``is_quiet``."""
    from changefeed.ingest.continuous import ingest_continuously
    from changefeed.ingest.handover import ALONE, Handover
    from changefeed.spark.session import session

    handover = ALONE if bounds.max_seconds else Handover(followed.connections, waits=False)
    with (
        session(followed.connections.pipeline, "changefeed.ingest.continuous") as spark,
        committing(followed, store, is_quiet=is_quiet) as committed,
    ):
        sealed = list(ingest_continuously(spark, followed, planned.expected, bounds.max_seconds, handover=handover))
    return _in_order(*sealed, *committed)


@contextmanager
def committing(followed: FollowedSettings, store: CheckpointStore, *, is_quiet: bool) -> Iterator[list[Manifest]]:
    """Commits windows during the block, beside the task of another run, which may commit the same ones. Gives the
    manifests, and prints each, unless ``is_quiet``.

    At the end of the block it raises the error if the rest cannot be committed, or no heartbeat written after it.
    """
    from changefeed.ingest.checkpoint_mover import CheckpointMover
    from changefeed.pipeline.heartbeat import Heartbeat, write_heartbeat

    def report(committed: Sequence[Manifest]) -> None:
        for manifest in () if is_quiet else committed:
            _show(manifest)
        write_heartbeat(followed.connections, Heartbeat.of_committed(committed[-1]))

    with CheckpointMover(followed.connections, store, report) as mover:
        yield mover.committed
    with suppress(RenamedError):  # what is left is committed under the new name
        mover.commit_rest()
    if mover.report_error is not None:
        write_heartbeat(followed.connections, Heartbeat.of_committed(mover.committed[-1]))


def _in_order(*manifests: Manifest) -> list[Manifest]:
    """The manifests of a run, each once: another process may commit windows that it seals, and it windows of others."""
    by_number = {manifest.window.number: manifest for manifest in manifests}
    return [by_number[number] for number in sorted(by_number)]


def _publish(
    connections: PipelineConnections, store: CheckpointStore, planned: Plan, bounds: RunBounds, *, is_quiet: bool
) -> list[Manifest]:
    """The manifests of the windows that the run published and committed. Prints each, unless ``is_quiet``."""
    from changefeed.ingest.cut import cut

    name, frozen = connections.pipeline.name, cut(connections, planned, bounds)
    publish = _publish_alone if connections.pipeline.windows is None else _publish_after_takeover
    manifests = publish(connections, store, frozen, bounds, is_quiet=is_quiet)
    at = manifests[-1].window.head if manifests else planned.window.start
    if at != planned.window.head and not is_quiet:
        out.print(f"{name}: the next run continues, up to {planned.window.head}")
    return manifests


def _publish_alone(
    connections: PipelineConnections, store: CheckpointStore, frozen: PlannedRun, bounds: RunBounds, *, is_quiet: bool
) -> list[Manifest]:
    """See `_publish`; each window is committed when it is sealed."""
    from changefeed.ingest.run import run_windows
    from changefeed.pipeline.heartbeat import Heartbeat, write_heartbeat
    from changefeed.spark.session import session

    manifests: list[Manifest] = []
    with session(connections.pipeline, "changefeed.ingest.run") as spark:
        for manifest in run_windows(spark, connections, frozen, store, bounds.max_seconds):
            manifests.append(manifest)
            if not is_quiet:
                _show(manifest)
    if manifests:
        write_heartbeat(connections, Heartbeat.of_committed(manifests[-1]))
    return manifests


def _publish_after_takeover(
    connections: PipelineConnections, store: CheckpointStore, frozen: PlannedRun, bounds: RunBounds, *, is_quiet: bool
) -> list[Manifest]:
    """See `_publish`; the task of the continuous run, which ends, may commit the windows too."""
    from changefeed.ingest.followed_settings import FollowedSettings
    from changefeed.ingest.run import ingest_windows
    from changefeed.spark.session import session

    timeout = connections.pipeline.kafka.lease_seconds
    with (
        session(connections.pipeline, "changefeed.ingest.run") as spark,
        committing(FollowedSettings(connections), store, is_quiet=is_quiet) as committed,
    ):
        windows = frozen.windows
        sealed = list(ingest_windows(spark, connections, windows, bounds.max_seconds, claim_timeout_seconds=timeout))
    return _in_order(*sealed, *committed)


def _show(manifest: Manifest) -> None:
    window = manifest.window
    out.print(
        f"{window.pipeline}: committed window {window.number} at {window.head}: {manifest.row_count:,} rows in "
        f"{manifest.message_count:,} messages, {manifest.size_bytes:,} bytes of binlog"
    )
    for transform, rows in manifest.transformed_away.items():
        out.print(f"{window.pipeline}: {rows:,} rows dropped by transform {transform}")


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
    from changefeed.cli.tail import read_lines
    from changefeed.operations.pipeline_topics import dropped_tables, published_topics
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
