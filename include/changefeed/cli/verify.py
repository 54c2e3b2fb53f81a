"""Command that compares topics, or a follower, with the source: verify."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from changefeed.cli.app import EXIT_DIFFERS, EXIT_INCOMPLETE, AsJson, PipelineName, app, connections_of, out, store_of
from changefeed.cli.request_options import takes
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.settings.file import load_pipeline
from changefeed.settings.requests.run import RunBounds
from changefeed.settings.requests.verify import VerifyRequest

if TYPE_CHECKING:
    from changefeed.pipeline.connections import PipelineConnections


@app.command()
@takes(
    VerifyRequest,
    tables=typer.Option(metavar="PATTERN"),
    sample_percent=typer.Option("--sample", metavar="PERCENT"),
    follower=typer.Option(metavar="CONNECTION"),
    wait_seconds=typer.Option("--wait", metavar="SECONDS"),
    deep=typer.Option("--deep"),
)
def verify(
    name: PipelineName,
    asked: dict[str, Any],
    run: Annotated[bool, typer.Option("--run", help="Run the pipeline for that, instead of waiting.")] = False,
    gone: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write SQL here that removes rows which only the topics have from them."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare the rows of the source with those of the topics, with the pipeline's own Spark.

    The source is read without locks while it goes on changing, and nothing is written to it. Exits 4 when something
    differs, 5 when nothing does and not all could be judged.
    """
    from changefeed.cli.gone_rows import gone_rows_sql
    from changefeed.spark.session import session
    from changefeed.verify.plan import plan_verify
    from changefeed.verify.positions import check_has_run, wait_for_runs
    from changefeed.verify.run import verify_topics

    request = VerifyRequest.of(asked)
    pipeline = load_pipeline(name)
    connections = connections_of(pipeline)
    if not run:
        check_has_run(connections)
    plan = plan_verify(connections, request)  # a wrong word is told before Spark is started
    with session(pipeline, "changefeed.verify.run") as spark:
        waiting = wait_for_runs(connections, request.wait_seconds)

        def published(until: BinlogCoordinates) -> None:
            if run:
                _run_up_to(spark, connections, until)
            waiting(until)

        verified = verify_topics(spark, plan, published)
    if gone is not None:
        gone.write_text("".join(f"{line}\n" for line in gone_rows_sql(plan.job, verified.report.verdicts)))
    if as_json:
        out.print_json(json.dumps(verified.report.to_json()))
    else:
        for line in verified.lines():
            out.print(line)
    outcome = verified.report.outcome
    if outcome != "equal":
        raise typer.Exit(EXIT_DIFFERS if outcome == "differs" else EXIT_INCOMPLETE)


def _run_up_to(spark: Any, connections: PipelineConnections, until: BinlogCoordinates) -> None:
    """Runs of the pipeline, as `changefeed run` makes them, until one of them goes past ``until``."""
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
