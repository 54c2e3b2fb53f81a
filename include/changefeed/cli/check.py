"""The command check, which checks pipelines before they run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import typer

from changefeed.cli.app import (
    EXIT_ERROR,
    AnyPipeline,
    AsJson,
    app,
    connections_of,
    out,
    print_json,
    select_pipelines,
    store_of,
)
from changefeed.errors import ChangefeedError
from changefeed.model.connection import from_environment
from changefeed.operations.finding import Finding, Level, Report, fail, ok, summary, warn
from changefeed.settings.file import load_pipelines
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.site import load_site

if TYPE_CHECKING:  # it loads the clients of Kafka and MySQL
    from changefeed.operations.neighbours import Neighbours


@app.command()
def check(name: AnyPipeline = None, as_json: AsJson = False) -> None:
    """Check pipelines: YAML, the source's settings and rights, tables, topics, Kafka, conflicts with other pipelines,
    and errors that the next run would have.

    Each line is OK, WARN or FAIL, and the last line counts them. FAIL lines are on stderr. Exits 1 if a check fails.
    """
    from changefeed.operations.neighbours import Neighbours

    pipelines, errors = select_pipelines(name)
    wrong = [_format_error(error) for error in errors.values()]
    for message in wrong:
        print(message, file=sys.stderr)
    neighbours = Neighbours(load_pipelines()[0], from_environment)
    reports = [check_pipeline(pipeline, neighbours, as_json=as_json) for pipeline in pipelines]
    if as_json:
        print_json({"pipelines": [report.to_json() for report in reports], "unreadable": wrong})
    if wrong or any(report.wrong for report in reports):
        raise typer.Exit(EXIT_ERROR)


def check_pipeline(pipeline: Pipeline, neighbours: Neighbours, *, as_json: bool) -> Report:
    """Check one pipeline, and print its findings; with ``as_json`` only those that fail, which go to stderr."""
    from changefeed.operations.check import check as find

    report = Report(pipeline.name)
    found = find(connections_of(pipeline), neighbours, partial(store_of, pipeline))
    for finding in chain(found, _notifiers(pipeline)):
        report.add(finding)
        if finding.level is Level.FAIL:
            print(f"{pipeline.name}: {finding}", file=sys.stderr, flush=True)
        elif not as_json:
            out.print(f"{pipeline.name}: {finding}")
    if not as_json:
        out.print(f"{pipeline.name}: {summary(report.findings)}")
    return report


def _notifiers(pipeline: Pipeline) -> Iterator[Finding]:
    """Yield a finding for each notifier of the pipeline: whether it can be created. Runs succeed even if it
    cannot."""
    for settings in pipeline.alerts.notify:
        from changefeed.cli.variables import find_airflow_problem

        try:
            load_site().check_notifier(settings.notifier)
            if problem := find_airflow_problem():
                yield warn(f"notifier {settings.notifier}: allowed, and not checked: {problem}")
                continue
            with redirect_stdout(sys.stderr):  # where Airflow logs
                from changefeed.airflow.alerts import create_notifier

                create_notifier(settings)
            yield ok(f"notifier {settings.notifier}: allowed")
        except ChangefeedError as error:
            yield fail(error)


def _format_error(error: ChangefeedError) -> str:
    return f"{type(error).__name__}: {error}"
