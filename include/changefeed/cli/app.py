"""The application that the command's modules add to, and what they share."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from changefeed.cli.variables import variable_store
from changefeed.errors import SettingsError
from changefeed.model.checkpoint import CheckpointStore
from changefeed.model.connection import from_environment
from changefeed.printable import printable
from changefeed.settings.file import load_pipeline, load_pipelines, pipelines_folder
from changefeed.settings.pipeline import Pipeline
from changefeed.state.table_store import TableCheckpointStore

if TYPE_CHECKING:  # at run time each command would wait for the clients of Kafka and MySQL, `--help` too
    from changefeed.pipeline.connections import PipelineConnections

EXIT_ERROR = 1
EXIT_NOTHING_NEW = 3
EXIT_DIFFERS = 4
EXIT_INCOMPLETE = 5

app = typer.Typer(
    help="changefeed: publish MySQL's row changes to Kafka, without Airflow.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"max_content_width": 120},
    rich_markup_mode=None,
)
WIDEST = 10_000
"""Columns of output that is no terminal: whatever reads it gets whole lines."""


class _PrintableConsole(Console):
    """A console on which names of tables, topics and files move no cursor: only its own styles do."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


class PrintableLog(logging.Formatter):
    """As a line of the log is printed: see `printable`."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


out = _PrintableConsole(
    soft_wrap=True, highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else WIDEST
)

PipelineName = Annotated[str, typer.Argument(metavar="PIPELINE", help="Name of a pipeline, as in its YAML.")]
AnyPipeline = Annotated[str | None, typer.Argument(metavar="[PIPELINE]", help="One pipeline; all without it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def chosen(name: str | None) -> tuple[list[Pipeline], dict[Path, SettingsError]]:
    """The named pipeline, or all of them and the error of each file that is no pipeline.

    Raises SettingsError where the named one is wrong, or where there is no file at all.
    """
    if name is not None:
        return [load_pipeline(name)], {}
    pipelines, errors = load_pipelines()
    if pipelines or errors:
        return list(pipelines.values()), errors
    folder = pipelines_folder()
    found = "has no .yaml file" if folder.is_dir() else "does not exist"
    raise SettingsError(
        f"no pipelines: wanted a YAML file each in {str(folder)!r}, which {found}. Write one (the README shows how one "
        "looks), or set CHANGEFEED_PIPELINES to the folder that has them."
    )


def connections_of(pipeline: Pipeline) -> PipelineConnections:
    """The pipeline with its connections out of the environment."""
    from changefeed.pipeline.connections import PipelineConnections

    return PipelineConnections(pipeline, from_environment)


def store_of(pipeline: Pipeline) -> CheckpointStore:
    """The pipeline's checkpoint store, outside of an Airflow task; raises SettingsError where it cannot be had here."""
    if pipeline.checkpoint.connection is None:
        return variable_store(pipeline)
    return TableCheckpointStore(from_environment(pipeline.checkpoint.connection))


def table(*columns: str) -> Table:
    """A table to fill and print. Nothing in it is cut: on a narrow terminal a long value goes on in the next line."""
    shown = Table(box=None)
    for column in columns:
        shown.add_column(column, overflow="fold")
    return shown
