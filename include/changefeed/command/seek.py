"""Command that moves a checkpoint: seek."""

from __future__ import annotations

import getpass
import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from changefeed.checkpoint import CheckpointStore
from changefeed.command.app import EXIT_ERROR, AsJson, PipelineName, app, endpoints_of, out, store_of
from changefeed.errors import SettingsError
from changefeed.pipelines.file import load_pipeline

if TYPE_CHECKING:  # as in `app`
    from changefeed.endpoints.endpoints import Endpoints
    from changefeed.upkeep.seek import SeekPlan

Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET", help="earliest, latest, FILE:POSITION, a GTID set, or a time (2026-01-31T12:00:00Z)."
    ),
]


@app.command()
def seek(
    name: PipelineName,
    target: Target,
    why: Annotated[str, typer.Option(help="The reason, kept in the record of seeks. Needed but with --plan.")] = "",
    expected: Annotated[
        str | None, typer.Option(metavar="FILE:POSITION", help="Refuse when the checkpoint is anywhere else.")
    ] = None,
    only_plan: Annotated[bool, typer.Option("--plan", help="Only show what would be skipped or repeated.")] = False,
    finish: Annotated[
        bool | None,
        typer.Option(
            "--finish/--give-up",
            help="What an earlier run left unfinished: publish and commit it first, or give it up, which repeats what "
            "of it is in Kafka. Asked at a terminal; given up with --yes.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before the checkpoint moves.")] = False,
    as_json: AsJson = False,
) -> None:
    """Move a pipeline's checkpoint, forwards or back, and keep a record of who did it and why.

    Shows what is skipped or repeated, and asks. What an earlier run left unfinished can be finished first. Refused
    while a run of the pipeline is alive. Exits 1 when it is refused, or not confirmed.
    """
    from changefeed.upkeep.seek import check_reason, plan_seek
    from changefeed.upkeep.seek import seek as move

    pipeline = load_pipeline(name)
    endpoints, store = endpoints_of(pipeline), store_of(pipeline)
    if not only_plan:
        check_reason(why)
    planned = plan_seek(endpoints, target, store, expected=expected)
    _show(planned, as_json=as_json, only_plan=only_plan)
    if only_plan:
        return
    if planned.unfinished and finish is None and not yes:
        numbers = ", ".join(str(window.number) for window in planned.unfinished)
        finish = _confirmed(f"Finish what is unfinished (window {numbers}) first, as it was frozen?")
    if planned.unfinished and finish:
        _finish(endpoints, store, begun=not all(window.sealed for window in planned.unfinished))
        planned = plan_seek(endpoints, str(planned.to), store)
        _show(planned, as_json=as_json, only_plan=False)
    if not yes and not _confirmed(f"Move the checkpoint of {name} to {planned.to}?"):
        out.print("nothing was changed")
        raise typer.Exit(EXIT_ERROR)
    record = move(endpoints, planned, store, who=getpass.getuser(), why=why)
    if as_json:
        out.print_json(json.dumps(record.to_json()))
    else:
        undo = f"; seek to {planned.undo} to undo it" if planned.undo else ""
        out.print(f"{name}: the checkpoint is at {record.to} now{undo}")


def _show(planned: SeekPlan, *, as_json: bool, only_plan: bool) -> None:
    if only_plan and as_json:
        out.print_json(json.dumps(planned.to_json()))
    elif not as_json:
        before = planned.before.coordinates if planned.before else "no checkpoint"
        out.print(f"{planned.pipeline}: from {before} to {planned.to}: {planned.effect}")


def _finish(endpoints: Endpoints, store: CheckpointStore, *, begun: bool) -> None:
    """Commit what earlier runs left unfinished, and publish it first, with the pipeline's own Spark, where it was only
    ``begun``."""
    from changefeed.runs.commit import commit_windows
    from changefeed.spark.run import run_windows
    from changefeed.spark.session import session
    from changefeed.upkeep.seek import unfinished_run

    run = unfinished_run(endpoints, store)
    if run is None:
        return
    if begun:
        with session(endpoints.pipeline) as spark:
            manifests = list(run_windows(spark, endpoints, run, store))
    else:
        manifests = commit_windows(endpoints, run, store)
    for manifest in manifests:
        window = manifest.window
        print(f"{window.pipeline}: committed window {window.number} at {window.head}", file=sys.stderr)


def _confirmed(question: str) -> bool:
    """Ask at the terminal; raises SettingsError where there is none."""
    if not sys.stdin.isatty():
        raise SettingsError("a seek asks before it moves the checkpoint, and there is no terminal here: give --yes")
    return typer.confirm(question, err=True)
