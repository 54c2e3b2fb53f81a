"""The command verify, which compares topics or a follower with the source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from changefeed.cli.app import (
    EXIT_DIFFERS,
    EXIT_INCOMPLETE,
    AsJson,
    PipelineName,
    app,
    connections_of,
    out,
    print_json,
    store_of,
)
from changefeed.cli.request_options import add_options
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.settings.file import load_pipeline
from changefeed.settings.requests.run import RunBounds
from changefeed.settings.requests.verify import VerifyRequest

if TYPE_CHECKING:
    from changefeed.pipeline.connections import PipelineConnections


@app.command()
@add_options(
    VerifyRequest,
    tables=typer.Option(metavar="PATTERN"),
    sample_percent=typer.Option("--sample", metavar="PERCENT"),
    follower=typer.Option(metavar="CONNECTION"),
    wait_seconds=typer.Option("--wait", metavar="SECONDS"),
    deep=typer.Option("--deep"),
)
def verify(
    name: PipelineName,
    arguments: dict[str, Any],
    run: Annotated[bool, typer.Option("--run", help="Run the pipeline, instead of waiting for its runs.")] = False,
    gone: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File for SQL that removes the rows which only the topics have."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare the rows of the source with those of the topics, with the pipeline's own Spark.

    The source is read without locks while it changes, and nothing is written to it. Exits 4 if something differs, and 5
    if nothing differs but not everything could be compared.
    """
    from changefeed.cli.gone_rows import build_gone_rows_sql
    from changefeed.spark.session import session
    from changefeed.verify.plan import plan_verify
    from changefeed.verify.positions import check_has_run, wait_for_runs
    from changefeed.verify.run import verify_topics

    request = VerifyRequest.of(arguments)
    pipeline = load_pipeline(name)
    connections = connections_of(pipeline)
    if not run:
        check_has_run(connections)
    plan = plan_verify(connections, request)  # reports a wrong request before Spark starts
    with session(pipeline, "changefeed.verify.run") as spark:
        waiting = wait_for_runs(connections, request.wait_seconds)

        def wait_until_published(until: BinlogCoordinates) -> None:
            if run:
                _run_up_to(spark, connections, until)
            waiting(until)

        verified = verify_topics(spark, plan, wait_until_published)
    if gone is not None:
        gone.write_text("".join(f"{line}\n" for line in build_gone_rows_sql(plan.job, verified.report.results)))
    if as_json:
        print_json(verified.report.to_json())
    else:
        for line in verified.lines():
            out.print(line)
    outcome = verified.report.outcome
    if outcome != "equal":
        raise typer.Exit(EXIT_DIFFERS if outcome == "differs" else EXIT_INCOMPLETE)


def _run_up_to(spark: Any, connections: PipelineConnections, until: BinlogCoordinates) -> None:
    """Run the pipeline, as `changefeed run` does, until it has published all changes before ``until``, or
    nothing is new."""
    from changefeed.ingest.cut import cut
    from changefeed.ingest.run import run_windows
    from changefeed.pipeline.plan import plan

    store, at = store_of(connections.pipeline), None
    while at is None or at < until:
        planned = plan(connections, store)
        if planned.is_empty:
            return
        for manifest in run_windows(spark, connections, cut(connections, planned, RunBounds()), store):
            at = manifest.window.head
