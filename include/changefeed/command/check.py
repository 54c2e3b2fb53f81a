"""Command that looks at pipelines before they run: check."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, field

import typer

from changefeed.command.app import EXIT_ERROR, AnyPipeline, AsJson, app, chosen, endpoints_of, out
from changefeed.connection import from_environment
from changefeed.errors import ChangefeedError
from changefeed.pipelines.file import load_pipelines


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
        for finding in check_pipeline(endpoints_of(pipeline), neighbours):
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


@dataclass(frozen=True)
class Report:
    """What was found right and wrong of a pipeline."""

    pipeline: str
    right: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def _told(error: ChangefeedError) -> str:
    return f"{type(error).__name__}: {error}"
