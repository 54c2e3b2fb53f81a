"""Command that moves a checkpoint: seek."""

from __future__ import annotations

import getpass
import json
import sys
from typing import Annotated

import typer

from changefeed.command.app import EXIT_ERROR, AsJson, PipelineName, app, endpoints_of, out, store_of
from changefeed.errors import SettingsError
from changefeed.pipelines.file import load_pipeline

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
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before the checkpoint moves.")] = False,
    as_json: AsJson = False,
) -> None:
    """Move a pipeline's checkpoint, forwards or back, and keep a record of who did it and why.

    Shows what is skipped or repeated, and asks. Refused while a run of the pipeline is alive. Exits 1 when it is
    refused, or not confirmed.
    """
    from changefeed.upkeep.seek import check_reason, plan_seek
    from changefeed.upkeep.seek import seek as move

    pipeline = load_pipeline(name)
    endpoints, store = endpoints_of(pipeline), store_of(pipeline)
    if not only_plan:
        check_reason(why)
    planned = plan_seek(endpoints, target, store, expected=expected)
    if only_plan and as_json:
        out.print_json(json.dumps(planned.to_json()))
    elif not as_json:
        before = planned.before.coordinates if planned.before else "no checkpoint"
        out.print(f"{name}: from {before} to {planned.to}: {planned.effect}")
    if only_plan:
        return
    if not yes and not _confirmed(f"Move the checkpoint of {name} to {planned.to}?"):
        out.print("nothing was changed")
        raise typer.Exit(EXIT_ERROR)
    record = move(endpoints, planned, store, who=getpass.getuser(), why=why)
    if as_json:
        out.print_json(json.dumps(record.to_json()))
    else:
        undo = f"; seek to {record.before} to undo it" if record.before else ""
        out.print(f"{name}: the checkpoint is at {record.to} now{undo}")


def _confirmed(question: str) -> bool:
    """Ask at the terminal; raises SettingsError where there is none."""
    if not sys.stdin.isatty():
        raise SettingsError("a seek asks before it moves the checkpoint, and there is no terminal here: give --yes")
    return typer.confirm(question, err=True)
