"""Command that looks at pipelines before they run: check."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, field
from itertools import chain

import typer

from changefeed.command.app import EXIT_ERROR, AnyPipeline, AsJson, app, chosen, endpoints_of, out
from changefeed.command.variables import lack_of_airflow
from changefeed.connection import from_environment
from changefeed.errors import ChangefeedError
from changefeed.pipelines.file import load_pipelines
from changefeed.pipelines.pipeline import Pipeline
from changefeed.pipelines.site import load_site


@app.command()
def check(name: AnyPipeline = None, as_json: AsJson = False) -> None:
    """Check pipelines: YAML, the source's settings and rights, tables, topics, Kafka, and pipelines beside each other.

    What is right is told on stdout, what is wrong on stderr. Exits 1 when anything is wrong.
    """
    from changefeed.upkeep.check import check as check_pipeline
    from changefeed.upkeep.neighbours import Neighbours

    pipelines, errors = chosen(name)
    wrong = [_told(error) for error in errors.values()]
    for message in wrong:
        print(message, file=sys.stderr)
    reports = []
    neighbours = Neighbours(load_pipelines()[0], from_environment)
    for pipeline in pipelines:
        report = Report(pipeline.name)
        for finding in chain(check_pipeline(endpoints_of(pipeline), neighbours), _notifiers(pipeline)):
            if isinstance(finding, str):
                report.right.append(finding)
                if not as_json:
                    out.print(f"{pipeline.name}: {finding}")
            else:
                report.wrong.append(_told(finding))
                print(_told(finding), file=sys.stderr, flush=True)
        reports.append(report)
    if as_json:
        out.print_json(json.dumps({"pipelines": [asdict(report) for report in reports], "unreadable": wrong}))
    if wrong or any(report.wrong for report in reports):
        raise typer.Exit(EXIT_ERROR)


def _notifiers(pipeline: Pipeline) -> Iterator[str | ChangefeedError]:
    """Whether alerts can be sent with each notifier of the pipeline; a run publishes all the same where they cannot."""
    for settings in pipeline.alerts.notify:
        try:
            load_site().check_notifier(settings.notifier)
            if lack := lack_of_airflow():
                yield f"notifier {settings.notifier}: allowed, and not looked at: {lack}"
                continue
            with redirect_stdout(sys.stderr):  # Airflow's log
                from changefeed.airflow.alerts import notifier

                notifier(settings)
            yield f"notifier {settings.notifier}: allowed"
        except ChangefeedError as error:
            yield error


@dataclass(frozen=True)
class Report:
    """What was found right and wrong of a pipeline."""

    pipeline: str
    right: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def _told(error: ChangefeedError) -> str:
    return f"{type(error).__name__}: {error}"
