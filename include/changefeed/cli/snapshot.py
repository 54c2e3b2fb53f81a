"""The command snapshot, which publishes existing rows."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from changefeed.cli.app import AsJson, PipelineName, app, connections_of, out, print_json, print_table, store_of
from changefeed.cli.backfill import check_run_id
from changefeed.cli.request_options import add_options
from changefeed.errors import PipelineBusyError
from changefeed.model.run_identity import snapshot_identity
from changefeed.settings.file import load_pipeline
from changefeed.settings.requests.snapshot import SnapshotForm, SnapshotRequest
from changefeed.spark.progress_line import Progress, is_shown, progress_line

if TYPE_CHECKING:
    from changefeed.kafka.commit_log.snapshots import SnapshotRecord
    from changefeed.model.checkpoint import CheckpointStore
    from changefeed.pipeline.connections import PipelineConnections
    from changefeed.snapshot.automatic import AutomaticSnapshot
    from changefeed.snapshot.planning import SnapshotPlan


@app.command()
@add_options(
    SnapshotForm,
    tables=typer.Option(metavar="PATTERN"),
    where=typer.Option(metavar="CONDITION"),
)
def snapshot(
    name: PipelineName,
    arguments: dict[str, Any],
    run_id: Annotated[
        str | None,
        typer.Option(
            help="Id of the snapshot. With an earlier id it continues that snapshot. Letters, digits, _ and -."
        ),
    ] = None,
    pause: Annotated[
        bool | None,
        typer.Option(
            "--pause/--resume", help="Pause a running snapshot after the chunks that it is reading, or resume it."
        ),
    ] = None,
    only_plan: Annotated[
        bool, typer.Option("--plan", help="Only show tables, keys, topics and estimated rows.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Publish the existing rows of the pipeline's tables, with op r, with its own Spark, besides its windows.

    It locks no table, and writes nothing to the source. It can be stopped at any time: started again with its --run-id,
    it continues and repeats nothing. Changes during the snapshot are published by windows: run the pipeline at the same
    time or afterwards.
    """
    from changefeed.snapshot.automatic import FIRST_RUN
    from changefeed.snapshot.planning import plan_snapshot

    request = SnapshotRequest.of({"pipeline": name, **arguments})
    pipeline = load_pipeline(name)
    of_pipeline = connections_of(pipeline)
    if pause is not None:
        _pause(of_pipeline, paused=pause, as_json=as_json)
        return
    run_id = check_run_id(run_id) if run_id else f"command_{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
    continues_first = run_id == FIRST_RUN and pipeline.start == "snapshot" and not (request.tables or request.where)
    identity = snapshot_identity(name, run_id if continues_first else f"{run_id}_{request.fingerprint}")
    plan = plan_snapshot(of_pipeline, store_of(pipeline), request, identity, dry_run=only_plan)
    if only_plan and as_json:
        print_json(plan.to_json())
    elif not as_json:
        _show(name, plan)
    if only_plan:
        return
    if not as_json:
        out.print(f"{name}: run id {run_id}; with --run-id {run_id} it continues where it was stopped")
    done = _take(of_pipeline, plan, is_quiet=as_json)
    if as_json:
        print_json(_result(run_id, done))


def take_automatic_snapshot(
    of_pipeline: PipelineConnections, store: CheckpointStore, due: AutomaticSnapshot, *, is_quiet: bool
) -> dict[str, Any]:
    """Take or continue a snapshot that the pipeline takes by itself, and return its run id and tables, for JSON.

    If it waits, a later run continues it, and the reason is under ``waits``. Prints its progress, unless ``is_quiet``.
    """
    from changefeed.snapshot.planning import plan_snapshot

    name = of_pipeline.pipeline.name
    try:
        plan = plan_snapshot(of_pipeline, store, due.request, due.identity, may_be_empty=True)
        if not is_quiet:
            out.print(f"{name}: {due.purpose}")
            _show(name, plan)
        return _result(due.run_id, _take(of_pipeline, plan, is_quiet=is_quiet))
    except PipelineBusyError as error:
        if not is_quiet:
            out.print(f"{name}: the next run continues snapshot {due.run_id}: {error}")
        return {"run_id": due.run_id, "waits": str(error)}


def _result(run_id: str, done: SnapshotRecord) -> dict[str, Any]:
    return {"run_id": run_id, "tables": [asdict(each) for each in done.tables]}


def _take(of_pipeline: PipelineConnections, plan: SnapshotPlan, *, is_quiet: bool) -> SnapshotRecord:
    from changefeed.snapshot.run import run_snapshot
    from changefeed.snapshot.snapshot_status import finish_snapshot, status_of
    from changefeed.snapshot.snapshot_status import progress_line as describe_progress
    from changefeed.spark.session import session

    name, current = of_pipeline.pipeline.name, plan.progress
    before = sum(each.rows for each in current.tables)

    def read() -> Progress:
        now = status_of("", current)
        return Progress(now.rows - before, now.estimated_rows - before, "rows", now.rows - before)

    with session(of_pipeline.pipeline, "changefeed.snapshot.run") as spark, progress_line(f"{name}: snapshot", read):
        for current in run_snapshot(spark, of_pipeline, plan):
            if not is_quiet and not is_shown() and not current.finished:
                out.print(f"{name}: {describe_progress(current)}")
    finish_snapshot(of_pipeline, plan.identity)
    rows, left_out = (sum(getattr(each, field) for each in current.tables) for field in ("rows", "left_out"))
    if not is_quiet:
        out.print(
            f"{name}: published {rows - left_out:,} rows of {len(current.tables)} tables; {left_out:,} other rows "
            "changed meanwhile, and windows publish them"
        )
    return current


def _pause(of_pipeline: PipelineConnections, *, paused: bool, as_json: bool) -> None:
    from changefeed.snapshot.pausing import set_paused

    identities = set_paused(of_pipeline, paused=paused)
    if as_json:
        print_json({"paused": paused, "snapshots": identities})
        return
    for identity in identities:
        out.print(f"{identity}: " + ("paused; --resume continues it" if paused else "continues"))


def _show(name: str, plan: SnapshotPlan) -> None:
    rows = [
        (
            each.name,
            f"{each.estimated_rows:,}",
            each.key or "none: one consistent read",
            plan.topics.get(each.name, "(left out)"),
            f"{each.rows:,}",
        )
        for each in plan.tables
    ]
    print_table(("table", "rows, about", "key", "topic", "published"), rows)
    out.print(f"{name}: windows have published up to {plan.checkpoint.coordinates}")
