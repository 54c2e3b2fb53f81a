"""The command init, which creates a pipeline's YAML."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

import typer

from changefeed.cli.app import EXIT_ERROR, AsJson, app, out, print_json
from changefeed.cli.check import check_pipeline
from changefeed.errors import SettingsError
from changefeed.formats.registry import WITH_SCHEMA_REGISTRY
from changefeed.model.connection import from_environment
from changefeed.settings.file import find_files, load_pipelines, pipelines_folder
from changefeed.settings.folder import PipelineFolder
from changefeed.settings.new_pipeline import NO_SCHEDULE, NewPipeline

_CONNECTION = re.compile(r"AIRFLOW_CONN_(\w+)")


@app.command()
def init(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Name of the pipeline: lower case letters, digits, - and _.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(metavar="CONNECTION", help="Connection of the MySQL or MariaDB server.")
    ] = None,
    kafka: Annotated[str | None, typer.Option(metavar="CONNECTION", help="Connection of the Kafka cluster.")] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Tables, as DATABASE.TABLE with * and ?. May be repeated."),
    ] = None,
    format_name: Annotated[str | None, typer.Option("--format", help="Wire format. Default: debezium.")] = None,
    registry: Annotated[
        str | None, typer.Option(metavar="CONNECTION", help="Connection of the schema registry, for format avro.")
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            metavar="CRON", help="Schedule of the DAG: a cron expression, @hourly or none. Default: */5 * * * *."
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE",
            help="First load: snapshot (the existing rows, then the changes), earliest, latest, or FILE:POSITION. "
            "Default: snapshot.",
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="STORE",
            help="Where the checkpoint is: variable (Airflow), kafka, or the connection of a database. Default: "
            "variable if an Airflow is set up here, otherwise kafka.",
        ),
    ] = None,
    checks: Annotated[
        bool, typer.Option("--check/--no-check", help="Check the pipeline, and write no file if a check fails.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Create a pipeline: ask for what the options do not have, check it as `check` does, and write its YAML.

    Without a terminal nothing is asked; then NAME, --source, --kafka and --tables are required. A file is never
    overwritten. Exits 1 if a check fails.
    """
    given = {"name": name, "source": source, "kafka": kafka, "tables": tuple(tables or ()), "format": format_name}
    given |= {"registry": registry, "schedule": schedule, "start": start, "checkpoint": checkpoint}
    new = _answers(given)
    pipeline = new.pipeline()
    report = None
    if checks:
        from changefeed.operations.neighbours import Neighbours

        others = Neighbours(load_pipelines()[0], from_environment)
        report = check_pipeline(pipeline, others, as_json=as_json)
        if report.wrong:
            if as_json:
                print_json({"pipeline": new.name, "file": None, "yaml": new.yaml(), "check": report.to_json()})
            print(_describe_failed(report.wrong), file=sys.stderr)
            raise typer.Exit(EXIT_ERROR)
    folder = pipelines_folder()
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / PipelineFolder(folder).create(new.yaml(), lambda *_: None).file
    steps = dict(_next_steps(new))
    if as_json:
        check = report and report.to_json()
        print_json(
            {"pipeline": new.name, "file": str(written), "yaml": new.yaml(), "check": check, "next": list(steps)}
        )
        return
    out.print(f"{new.name}: written to {written}")
    out.print("Next:")
    for command, effect in steps.items():
        out.print(f"  {command}\n      {effect}")


def _next_steps(new: NewPipeline) -> Iterator[tuple[str, str]]:
    """Commands, each with its effect."""
    yield f"changefeed plan {new.name}", "shows the first window, and stores nothing"
    rows = "the existing rows and the changes" if new.start == "snapshot" else "the changes"
    yield f"changefeed run {new.name}", f"publishes {rows} from here"
    yield f"changefeed tail {new.name} --from-beginning", "prints the records"
    if new.store == "variable":
        yield f"airflow dags unpause changefeed_ingest__{new.name}", "lets Airflow run it by its schedule"


def _describe_failed(wrong: list[str]) -> str:
    failed = "1 check failed" if len(wrong) == 1 else f"{len(wrong)} checks failed"
    return f"{failed}. No file was written. Correct the cause or the answers, or write the file with --no-check."


def _answers(given: dict[str, Any]) -> NewPipeline:
    """The new pipeline of the options that were ``given``, and of a user's answers for the others.

    Raises SettingsError if an option is wrong, if the pipeline exists, and, without a terminal, if one is missing.
    """
    new = NewPipeline(store=_default_store())
    for key, answer in given.items():
        if answer:
            new = _with(new, key, answer)
    asks = sys.stdin.isatty() and sys.stderr.isatty()
    missing = [key for key in ("name", "source", "kafka", "tables") if not given[key]]
    if missing and not asks:
        options = ", ".join("NAME" if key == "name" else f"--{key}" for key in missing)
        raise SettingsError(
            f"expected {options}, as there is no terminal to ask for it. Nothing was written. Example: changefeed init "
            "shop --source mysql_shop --kafka kafka_shop --tables 'shop.*'"
        )
    if given["name"]:
        _check_is_new(new.name)
    if not missing:
        return new
    _check_answers(new)
    for key, question in _QUESTIONS.items():
        if not given[key] and (key != "registry" or _needs_registry(new)):
            new = _ask(new, key, question)
    return new


def _with(new: NewPipeline, key: str, answer: Any) -> NewPipeline:
    if key == "checkpoint" and answer in ("variable", "kafka"):
        return replace(new, store=answer)
    return replace(new, **{key: answer})


def _needs_registry(new: NewPipeline) -> bool:
    return new.format in WITH_SCHEMA_REGISTRY and not new.registry


def _check_answers(new: NewPipeline) -> None:
    """Raise SettingsError for a wrong answer. A missing registry is asked for later."""
    (replace(new, registry="schema_registry") if _needs_registry(new) else new).pipeline()


_QUESTIONS = {
    "name": "Name of the pipeline",
    "source": "Connection of the MySQL or MariaDB server",
    "kafka": "Connection of the Kafka cluster",
    "tables": "Tables, as DATABASE.TABLE with * and ?, separated by spaces",
    "format": "Wire format",
    "registry": "Connection of the schema registry",
    "start": "First load: snapshot, earliest, latest or FILE:POSITION",
    "schedule": f"Schedule in Airflow: a cron expression, @hourly or {NO_SCHEDULE}",
    "checkpoint": "Checkpoint store: variable, kafka, or the connection of a database",
}


def _ask(new: NewPipeline, key: str, question: str) -> NewPipeline:
    """``new`` with the user's answer; asks again if it is refused."""

    def answered(text: str) -> NewPipeline:
        changed = _with(new, key, tuple(text.split()) if key == "tables" else text.strip())
        try:
            if key == "name":
                _check_is_new(changed.name)
            _check_answers(changed)
        except SettingsError as error:
            raise typer.BadParameter(str(error)) from None
        return changed

    if key in ("source", "kafka", "registry") and (known := _known_connections(key)):
        question += f" ({', '.join(known)})"
    defaults = {"format": new.format, "start": new.start, "schedule": new.schedule, "checkpoint": new.store}
    asked: NewPipeline = typer.prompt(question, default=defaults.get(key), value_proc=answered, err=True)
    return asked


def _check_is_new(name: str) -> None:
    if files := find_files(name, pipelines_folder()):
        raise SettingsError(
            f"expected the name of a new pipeline, found {name!r}, which {str(files[0])!r} has. Nothing was written. "
            "Use another name, or change that file."
        )


def _known_connections(key: str) -> list[str]:
    """Connections of the environment that may be the answer for ``key``."""
    kinds = {"source": ("mysql", "mariadb"), "kafka": ("kafka",), "registry": ("http", "https")}[key]
    found = ((_CONNECTION.fullmatch(variable), uri) for variable, uri in sorted(os.environ.items()))
    return [match.group(1).lower() for match, uri in found if match and uri.partition(":")[0] in kinds]


def _default_store() -> str:
    from changefeed.cli.variables import find_airflow_problem

    return "kafka" if find_airflow_problem() else "variable"
