"""The command seek, which moves a checkpoint."""

from __future__ import annotations

import getpass
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from changefeed.cli.app import EXIT_ERROR, AsJson, PipelineName, app, connections_of, out, print_json, store_of
from changefeed.cli.request_options import add_options, description
from changefeed.errors import SettingsError
from changefeed.model.checkpoint import CheckpointStore
from changefeed.settings.file import load_pipeline
from changefeed.settings.requests.seek import SeekRequest

if TYPE_CHECKING:  # as in `app`
    from changefeed.operations.seek import SeekPlan
    from changefeed.pipeline.connections import PipelineConnections


@app.command()
@add_options(
    SeekRequest, omit=("finish",), to=typer.Argument(metavar="TARGET"), expected=typer.Option(metavar="FILE:POSITION")
)
def seek(
    name: PipelineName,
    arguments: dict[str, Any],
    only_plan: Annotated[bool, typer.Option("--plan", help="Only show what would be skipped or repeated.")] = False,
    finish: Annotated[
        bool | None,
        typer.Option(
            "--finish/--give-up",
            help=f"{description(SeekRequest, 'finish')} Default: the command asks; with --yes they are given up.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Move the checkpoint without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """Move a pipeline's checkpoint forwards or back, and store a record of who did it and why.

    Shows what is skipped or repeated, and asks. Windows that earlier runs left unfinished can be finished first.
    Refused while a run of the pipeline is alive, and without a reason (--why). Beside a continuous run it takes place
    between two windows. Exits 1 if it is refused or not confirmed.
    """
    from changefeed.operations.seek import plan_seek
    from changefeed.operations.seek import seek as move
    from changefeed.settings.requests.request import check_reason

    request = SeekRequest.of(arguments)
    pipeline = load_pipeline(name)
    connections, store = connections_of(pipeline), store_of(pipeline)
    if not only_plan:
        check_reason(request.why, "a seek")
    planned = plan_seek(connections, request.to, store, expected=request.expected, finish=bool(finish))
    _show(planned, as_json=as_json, only_plan=only_plan)
    if only_plan:
        return
    if planned.unfinished and finish is None and not yes:
        numbers = ", ".join(str(window.number) for window in planned.unfinished)
        finish = _confirm(f"Finish the unfinished windows ({numbers}) first?")
    if planned.unfinished and finish:
        _finish(connections, store, begun=not all(window.sealed for window in planned.unfinished))
        planned = plan_seek(connections, str(planned.to), store)
        _show(planned, as_json=as_json, only_plan=False)
    if not yes and not _confirm(f"Move the checkpoint of {name} to {planned.to}?"):
        out.print("nothing was changed")
        raise typer.Exit(EXIT_ERROR)
    record = move(connections, planned, store, who=getpass.getuser(), why=request.why)
    if as_json:
        print_json(record.to_json())
    else:
        undo = f"; seek to {planned.undo} to undo it" if planned.undo else ""
        out.print(f"{name}: the checkpoint is at {record.to} now{undo}")


def _show(planned: SeekPlan, *, as_json: bool, only_plan: bool) -> None:
    if only_plan and as_json:
        print_json(planned.to_json())
    elif not as_json:
        before = planned.before.coordinates if planned.before else "no checkpoint"
        out.print(f"{planned.pipeline}: from {before} to {planned.to}: {planned.effect}")


def _finish(connections: PipelineConnections, store: CheckpointStore, *, begun: bool) -> None:
    """Commit the windows that earlier runs left unfinished. If ``begun``, publish them first with the pipeline's own
    Spark."""
    from changefeed.ingest.commit import commit_windows
    from changefeed.ingest.run import run_windows
    from changefeed.operations.seek import unfinished_run
    from changefeed.spark.session import session

    run = unfinished_run(connections, store)
    if run is None:
        return
    if begun:
        with session(connections.pipeline, "changefeed.ingest.run") as spark:
            manifests = list(run_windows(spark, connections, run, store))
    else:
        manifests = commit_windows(connections, run, store)
    for manifest in manifests:
        window = manifest.window
        print(f"{window.pipeline}: committed window {window.number} at {window.head}", file=sys.stderr)


def _confirm(question: str) -> bool:
    """Ask at the terminal; raises SettingsError if there is no terminal."""
    if not sys.stdin.isatty():
        raise SettingsError("a seek asks before it moves the checkpoint, and found no terminal: add --yes")
    return typer.confirm(question, err=True)
