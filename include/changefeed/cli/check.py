"""Command that looks at pipelines before they run: check."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import typer

from changefeed.cli.app import EXIT_ERROR, AnyPipeline, AsJson, app, chosen, connections_of, out, store_of
from changefeed.cli.variables import lack_of_airflow
from changefeed.errors import ChangefeedError
from changefeed.model.connection import from_environment
from changefeed.operations.finding import Finding, Level, fail, ok, summary, warn
from changefeed.settings.file import load_pipelines
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.site import load_site


@app.command()
def check(name: AnyPipeline = None, as_json: AsJson = False) -> None:
    """Check pipelines: YAML, the source's settings and rights, tables, topics, Kafka, pipelines beside each other, and
    what the next run would be refused for, in the same words.

    Each line is OK, WARN or FAIL, the last one counts them; those that fail are on stderr. Exits 1 when one fails.
    """
    from changefeed.operations.check import check as check_pipeline
    from changefeed.operations.neighbours import Neighbours

    pipelines, errors = chosen(name)
    wrong = [_told(error) for error in errors.values()]
    for message in wrong:
        print(message, file=sys.stderr)
    reports = []
    neighbours = Neighbours(load_pipelines()[0], from_environment)
    for pipeline in pipelines:
        report = Report(pipeline.name)
        found = check_pipeline(connections_of(pipeline), neighbours, partial(store_of, pipeline))
        for finding in chain(found, _notifiers(pipeline)):
            report.add(finding)
            if finding.level is Level.FAIL:
                print(f"{pipeline.name}: {finding}", file=sys.stderr, flush=True)
            elif not as_json:
                out.print(f"{pipeline.name}: {finding}")
        if not as_json:
            out.print(f"{pipeline.name}: {summary(report.findings)}")
        reports.append(report)
    if as_json:
        out.print_json(json.dumps({"pipelines": [report.to_json() for report in reports], "unreadable": wrong}))
    if wrong or any(report.wrong for report in reports):
        raise typer.Exit(EXIT_ERROR)


def _notifiers(pipeline: Pipeline) -> Iterator[Finding]:
    """Whether alerts can be sent with each notifier of the pipeline; a run publishes all the same where they cannot."""
    for settings in pipeline.alerts.notify:
        try:
            load_site().check_notifier(settings.notifier)
            if lack := lack_of_airflow():
                yield warn(f"notifier {settings.notifier}: allowed, and not looked at: {lack}")
                continue
            with redirect_stdout(sys.stderr):  # Airflow's log
                from changefeed.airflow.alerts import notifier

                notifier(settings)
            yield ok(f"notifier {settings.notifier}: allowed")
        except ChangefeedError as error:
            yield fail(error)


@dataclass(frozen=True)
class Report:
    """What was found of a pipeline."""

    pipeline: str
    findings: list[Finding] = field(default_factory=list)

    def add(self, finding: Finding) -> None:
        """Append a finding."""
        self.findings.append(finding)

    @property
    def wrong(self) -> list[str]:
        """The texts of those that fail."""
        return self._texts(Level.FAIL)

    def to_json(self) -> dict[str, Any]:
        """Plain values: all lines in their order, and by level."""
        return {
            "pipeline": self.pipeline,
            "right": self._texts(Level.OK),
            "warnings": self._texts(Level.WARN),
            "wrong": self.wrong,
            "lines": [{"level": str(finding.level), "text": finding.text} for finding in self.findings],
            "summary": summary(self.findings),
        }

    def _texts(self, level: Level) -> list[str]:
        return [finding.text for finding in self.findings if finding.level is level]


def _told(error: ChangefeedError) -> str:
    return f"{type(error).__name__}: {error}"
