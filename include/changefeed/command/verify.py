"""Command that compares topics, or a follower, with the source: verify."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from changefeed.command.app import EXIT_DIFFERS, EXIT_INCOMPLETE, AsJson, PipelineName, app, endpoints_of, out, store_of
from changefeed.coordinates import BinlogCoordinates
from changefeed.pipelines.file import load_pipeline

if TYPE_CHECKING:
    from changefeed.endpoints.endpoints import Endpoints


@app.command()
def verify(
    name: PipelineName,
    tables: Annotated[
        list[str] | None,
        typer.Option("--tables", metavar="PATTERN", help="Only these, as in shop.*; may be given again."),
    ] = None,
    sample: Annotated[
        int, typer.Option(min=1, max=100, metavar="PERCENT", help="Read so many of the chunks, at random.")
    ] = 100,
    follower: Annotated[
        str, typer.Option(metavar="CONNECTION", help="Compare this follower's rows, in place of the source's.")
    ] = "",
    wait: Annotated[
        int | None,
        typer.Option(
            min=0, max=86_400, metavar="SECONDS", help="For the pipeline's own runs to publish what was read."
        ),
    ] = None,
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
    from changefeed.command.gone_rows import gone_rows_sql
    from changefeed.spark.session import session
    from changefeed.spark.verify import verify_topics
    from changefeed.verify.plan import plan_verify
    from changefeed.verify.published import check_has_run, wait_for_runs
    from changefeed.verify.request import VerifyRequest

    request = VerifyRequest.of({"tables": tables, "sample_percent": sample, "follower": follower, "wait_seconds": wait})
    pipeline = load_pipeline(name)
    endpoints = endpoints_of(pipeline)
    if not run:
        check_has_run(endpoints)
    plan = plan_verify(endpoints, request)  # a wrong word is told before Spark is started
    with session(pipeline) as spark:
        waiting = wait_for_runs(endpoints, request.wait_seconds)

        def published(until: BinlogCoordinates) -> None:
            if run:
                _run_up_to(spark, endpoints, until)
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


def _run_up_to(spark: Any, endpoints: Endpoints, until: BinlogCoordinates) -> None:
    """Runs of the pipeline, as `changefeed run` makes them, until one of them goes past ``until``."""
    from changefeed.runs.cut import Bounds, cut
    from changefeed.runs.plan import plan
    from changefeed.spark.run import run_windows

    store, at = store_of(endpoints.pipeline), None
    while at is None or at < until:
        planned = plan(endpoints, store)
        if planned.is_empty:
            return
        for manifest in run_windows(spark, endpoints, cut(endpoints, planned, Bounds()), store):
            at = manifest.window.head
