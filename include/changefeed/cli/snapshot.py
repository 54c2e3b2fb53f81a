"""Command that publishes the rows that tables have already: snapshot."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from changefeed.cli.app import AsJson, PipelineName, app, connections_of, out, store_of, table
from changefeed.cli.backfill import checked_run_id
from changefeed.cli.request_options import takes
from changefeed.model.run_identity import snapshot_identity
from changefeed.settings.file import load_pipeline
from changefeed.settings.requests.snapshot import SnapshotForm, SnapshotRequest

if TYPE_CHECKING:
    from changefeed.pipeline.connections import PipelineConnections
    from changefeed.snapshot.planning import SnapshotPlan


@app.command()
@takes(
    SnapshotForm,
    tables=typer.Option(metavar="PATTERN"),
    where=typer.Option(metavar="CONDITION"),
)
def snapshot(
    name: PipelineName,
    asked: dict[str, Any],
    run_id: Annotated[
        str | None, typer.Option(help="Names this snapshot: with the same one again it goes on where it was stopped.")
    ] = None,
    pause: Annotated[
        bool | None,
        typer.Option(
            "--pause/--resume", help="Let a snapshot under way wait behind the chunks that it reads, or go on."
        ),
    ] = None,
    only_plan: Annotated[bool, typer.Option("--plan", help="Only show the tables.")] = False,
    as_json: AsJson = False,
) -> None:
    """Publish the rows that are in the pipeline's tables, as op r, with its own Spark, beside its windows.

    No table is locked, nothing is written to the source. It can be stopped at any time: given its --run-id again it
    goes on, and publishes nothing twice. Windows publish what changes meanwhile: run the pipeline beside it, or behind.
    """
    from changefeed.snapshot.planning import plan_snapshot
    from changefeed.snapshot.snapshot_status import finish_snapshot, progress_line

    request = SnapshotRequest.of({"pipeline": name, **asked})
    pipeline = load_pipeline(name)
    of_pipeline = connections_of(pipeline)
    if pause is not None:
        _pause(of_pipeline, paused=pause, as_json=as_json)
        return
    run_id = checked_run_id(run_id) if run_id else f"command_{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
    identity = snapshot_identity(name, f"{run_id}_{request.fingerprint}")
    plan = plan_snapshot(of_pipeline, store_of(pipeline), request, identity, only_look=only_plan)
    if only_plan and as_json:
        out.print_json(json.dumps(plan.to_json()))
    elif not as_json:
        _show(name, plan)
    if only_plan:
        return
    from changefeed.snapshot.run import run_snapshot
    from changefeed.spark.session import session

    if not as_json:
        out.print(f"{name}: run id {run_id}; with --run-id {run_id} it goes on where it was stopped")
    stands = plan.stands
    with session(pipeline, "changefeed.snapshot.run") as spark:
        for stands in run_snapshot(spark, of_pipeline, plan):
            if not as_json and not stands.finished:
                out.print(f"{name}: {progress_line(stands)}")
    finish_snapshot(of_pipeline, plan.identity)
    if as_json:
        out.print_json(json.dumps({"run_id": run_id, "tables": [asdict(each) for each in stands.tables]}))
    else:
        rows, left_out = (sum(getattr(each, field) for each in stands.tables) for field in ("rows", "left_out"))
        out.print(
            f"{name}: published {rows - left_out:,} rows of {len(stands.tables)} tables; {left_out:,} others changed "
            "meanwhile, and windows publish those"
        )


def _pause(of_pipeline: PipelineConnections, *, paused: bool, as_json: bool) -> None:
    from changefeed.snapshot.pausing import set_paused

    identities = set_paused(of_pipeline, paused=paused)
    if as_json:
        out.print_json(json.dumps({"paused": paused, "snapshots": identities}))
        return
    for identity in identities:
        out.print(f"{identity}: " + ("paused; --resume lets it go on" if paused else "goes on where it runs"))


def _show(name: str, plan: SnapshotPlan) -> None:
    shown = table("table", "rows, about", "key", "topic", "published")
    for each in plan.tables:
        key = each.key or "none: one consistent read"
        shown.add_row(
            each.name, f"{each.estimated_rows:,}", key, plan.topics.get(each.name, "(left out)"), f"{each.rows:,}"
        )
    out.print(shown)
    out.print(f"{name}: windows have published up to {plan.checkpoint.coordinates}")
