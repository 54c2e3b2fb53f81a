"""The command backfill, which publishes a range of the binlog again."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from changefeed.cli.app import AsJson, PipelineName, app, connections_of, out, print_json, print_table
from changefeed.cli.request_options import add_options
from changefeed.errors import SettingsError
from changefeed.model.iso_time import is_time
from changefeed.model.run_identity import backfill_identity
from changefeed.settings.file import load_pipeline
from changefeed.settings.requests.backfill import BackfillForm, BackfillRequest, backfill_pipeline

if TYPE_CHECKING:
    from changefeed.operations.backfill import BackfillPlan


_ENDS = ("from_coordinates", "to_coordinates", "from_time", "to_time")


@app.command()
@add_options(
    BackfillForm,
    omit=_ENDS,
    from_file=typer.Option(metavar="FILE"),
    to_file=typer.Option(metavar="FILE"),
    gtids=typer.Option(metavar="SET"),
    tables=typer.Option(metavar="PATTERN"),
    archive=typer.Option(metavar="FOLDER"),
)
def backfill(
    name: PipelineName,
    *,
    start: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="WHERE", help="Start of the range: FILE:POSITION, or a time (2026-01-31T12:00:00Z)."
        ),
    ] = None,
    end: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="End of the range, not included: FILE:POSITION, or a time. Default of a time: now.",
        ),
    ] = None,
    arguments: dict[str, Any],
    run_id: Annotated[
        str | None,
        typer.Option(help="Id of the backfill: letters, digits, _ and -. With an earlier id that backfill continues."),
    ] = None,
    only_plan: Annotated[bool, typer.Option("--plan", help="Only show files, bytes, tables and topics.")] = False,
    as_json: AsJson = False,
) -> None:
    """Publish a range of the binlog again, with the pipeline's own Spark, besides its live windows.

    Set the range in one form: --from-file and --to-file, --from and --to, or --gtids. The checkpoint is neither read
    nor moved. A backfill that failed continues if it is started again with its --run-id and the same options.
    """
    from changefeed.operations.backfill import finish_backfill, plan_backfill, sealed_backfill
    from changefeed.source.archive.archive import Archive

    request = BackfillRequest.of({"pipeline": name, **arguments, **_parse_ends(start, end)})
    pipeline = load_pipeline(name)
    run_id = check_run_id(run_id) if run_id else f"command_{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
    identity = backfill_identity(name, f"{run_id}_{request.fingerprint}")
    connections = connections_of(pipeline)
    planned = plan_backfill(connections, request, identity, archive_of=Archive)
    if only_plan and as_json:
        print_json(planned.to_json())
    elif not as_json:
        _show(name, planned)
    if only_plan:
        return
    manifest = sealed_backfill(connections, planned.window, identity)
    if manifest is None:
        from changefeed.ingest.window_run import ingest
        from changefeed.spark.session import session

        if not as_json:
            out.print(f"{name}: run id {run_id}; with --run-id {run_id} a retry publishes nothing twice")
        narrowed = backfill_pipeline(pipeline, request)
        with session(narrowed, "changefeed.ingest.run") as spark:
            ingest(
                spark,
                connections_of(narrowed),
                planned.window,
                identity=identity,
                archive=Archive(request.archive) if request.archive else None,
            )
    manifest = finish_backfill(connections, planned.window, identity)
    if as_json:
        print_json({"run_id": run_id, **manifest.to_json()})
    else:
        out.print(f"{name}: published {manifest.row_count:,} rows in {manifest.message_count:,} messages")


def _parse_ends(start: str | None, end: str | None) -> dict[str, Any]:
    """The fields of the request for --from and --to: times or coordinates, by the form of the text."""
    return {
        f"{which}_{'time' if is_time(text) else 'coordinates'}": text
        for which, text in (("from", start), ("to", end))
        if text
    }


def check_run_id(run_id: str) -> str:
    """Return ``run_id``; raises SettingsError if it cannot be part of an identity."""
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,100}", run_id):
        raise SettingsError(f"expected a run id of up to 100 letters, digits, _ and -, found {run_id!r}")
    return run_id


def _show(name: str, planned: BackfillPlan) -> None:
    window = planned.window
    files = "1 file" if len(planned.files) == 1 else f"{len(planned.files)} files"
    out.print(f"{name}: {window.start} to {window.head}, {planned.size_bytes:,} bytes in {files} of {planned.source}")
    rows = [
        (full_name, f"{counts.rows:,}", f"{counts.size_bytes:,}", planned.topics.get(full_name, "(left out)"))
        for full_name, counts in planned.tables.items()
    ]
    print_table(("table", "rows", "bytes", "topic"), rows)
