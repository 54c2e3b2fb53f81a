"""Command that publishes the rows that tables have already: snapshot."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from changefeed.command.app import AsJson, PipelineName, app, endpoints_of, out, store_of, table
from changefeed.command.backfill import checked_run_id
from changefeed.pipelines.file import load_pipeline

if TYPE_CHECKING:
    from changefeed.endpoints.endpoints import Endpoints
    from changefeed.snapshot.planning import SnapshotPlan


@app.command()
def snapshot(
    name: PipelineName,
    tables: Annotated[
        list[str] | None,
        typer.Option("--tables", metavar="PATTERN", help="Only these, as in shop.*; may be given again."),
    ] = None,
    where: Annotated[
        str | None, typer.Option(metavar="CONDITION", help='Only rows for which it is true, as in "id > 1000".')
    ] = None,
    rows_per_second: Annotated[int | None, typer.Option(min=1, help="Read no faster, on average.")] = None,
    connections: Annotated[int | None, typer.Option(min=1, help="Read over no more at the same time.")] = None,
    chunk_rows: Annotated[int | None, typer.Option(min=1, help="Rows of a chunk, at most.")] = None,
    changed_keys: Annotated[
        int | None, typer.Option(min=1, help="Hold no more keys of changes that windows have not published.")
    ] = None,
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
    from changefeed.snapshot.request import SnapshotRequest, snapshot_identity
    from changefeed.snapshot.status import finish_snapshot, progress_line

    bounds = {"connections": connections, "chunk_rows": chunk_rows, "changed_keys": changed_keys}
    given = {"tables": tables or [], "where": where, "rows_per_second": rows_per_second, **bounds}
    request = SnapshotRequest.of({"pipeline": name, **given})
    pipeline = load_pipeline(name)
    endpoints = endpoints_of(pipeline)
    if pause is not None:
        _pause(endpoints, paused=pause, as_json=as_json)
        return
    run_id = checked_run_id(run_id) if run_id else f"command_{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
    identity = snapshot_identity(name, f"{run_id}_{request.fingerprint}")
    plan = plan_snapshot(endpoints, store_of(pipeline), request, identity, only_look=only_plan)
    if only_plan and as_json:
        out.print_json(json.dumps(plan.to_json()))
    elif not as_json:
        _show(name, plan)
    if only_plan:
        return
    from changefeed.spark.session import session
    from changefeed.spark.snapshot import run_snapshot

    if not as_json:
        out.print(f"{name}: run id {run_id}; with --run-id {run_id} it goes on where it was stopped")
    stands = plan.stands
    with session(pipeline) as spark:
        for stands in run_snapshot(spark, endpoints, plan):
            if not as_json and not stands.finished:
                out.print(f"{name}: {progress_line(stands)}")
    finish_snapshot(endpoints, plan.identity)
    if as_json:
        out.print_json(json.dumps({"run_id": run_id, "tables": [asdict(each) for each in stands.tables]}))
    else:
        rows, left_out = (sum(getattr(each, field) for each in stands.tables) for field in ("rows", "left_out"))
        out.print(
            f"{name}: published {rows - left_out:,} rows of {len(stands.tables)} tables; {left_out:,} others changed "
            "meanwhile, and windows publish those"
        )


def _pause(endpoints: Endpoints, *, paused: bool, as_json: bool) -> None:
    from changefeed.snapshot.pausing import set_paused

    identities = set_paused(endpoints, paused=paused)
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
