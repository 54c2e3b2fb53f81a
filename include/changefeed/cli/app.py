"""The typer application to which the command's modules add commands, and functions that the commands share."""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.highlighter import JSONHighlighter
from rich.segment import Segment
from rich.text import Text

from changefeed import __version__
from changefeed.cli.text_table import Row, text_table
from changefeed.errors import SettingsError
from changefeed.model.checkpoint import CheckpointStore
from changefeed.model.connection import from_environment
from changefeed.printable import printable
from changefeed.settings.file import load_pipeline, load_pipelines, pipeline_names, pipelines_folder
from changefeed.settings.pipeline import Pipeline

if TYPE_CHECKING:  # at run time each command would wait for the clients of Kafka and MySQL, `--help` too
    from changefeed.pipeline.connections import PipelineConnections

EXIT_ERROR = 1
"""An error; a finding of `check`; a pipeline in error in `status` and `lag`; a seek that was not confirmed."""
EXIT_NOTHING_NEW = 3
"""`plan`, `run` and `replicate`: there is nothing new."""
EXIT_DIFFERS = 4
"""`verify`: rows or records differ."""
EXIT_INCOMPLETE = 5
"""`verify`: nothing differs, but not everything could be compared."""

app = typer.Typer(
    help="changefeed: publish MySQL's row changes to Kafka, without Airflow.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"max_content_width": 120},
    rich_markup_mode=None,
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"changefeed {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    """Options of the command itself."""


class _PrintableConsole(Console):
    """A console that escapes control characters in names of tables, topics and files."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


class PrintableLog(logging.Formatter):
    """A formatter that escapes control characters: see `printable`."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


out = _PrintableConsole(soft_wrap=True, highlight=False, markup=False, emoji=False)


def print_table(columns: Row, rows: Iterable[Row]) -> None:
    """Print a table that fits the terminal; without a terminal, each row is one line."""
    out.print(text_table(columns, list(rows), out.width if sys.stdout.isatty() else None))


def print_json(value: object) -> None:
    """Print ``value`` as JSON, in colours on a terminal, with a JSON escape for each character that `printable`
    escapes."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    out.print(JSONHighlighter()(re.sub(r"[^\n -~]", _escape_in_json, text)))


def _escape_in_json(found: re.Match[str]) -> str:
    character = found.group()
    if character.isprintable():
        return character
    return json.dumps(character)[1:-1] if ord(character) > 0x7F else f"\\u{ord(character):04x}"


def complete_pipeline(incomplete: str) -> list[str]:
    """The names of pipelines that begin with ``incomplete``, for a shell's completion."""
    return sorted(name for name in pipeline_names() if name.startswith(incomplete))


PipelineName = Annotated[
    str,
    typer.Argument(metavar="PIPELINE", help="Name of the pipeline, as in its YAML.", autocompletion=complete_pipeline),
]
AnyPipeline = Annotated[
    str | None,
    typer.Argument(
        metavar="[PIPELINE]",
        help="Name of a pipeline. Default: all pipelines.",
        autocompletion=complete_pipeline,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def select_pipelines(name: str | None) -> tuple[list[Pipeline], dict[Path, SettingsError]]:
    """The pipeline ``name``, or all pipelines and the error of each invalid file.

    Raises SettingsError if the file of pipeline ``name`` is invalid, or if there are no files.
    """
    if name is not None:
        return [load_pipeline(name)], {}
    pipelines, errors = load_pipelines()
    if pipelines or errors:
        return list(pipelines.values()), errors
    folder = pipelines_folder()
    found = "has no .yaml file" if folder.is_dir() else "does not exist"
    raise SettingsError(
        f"no pipelines: expected YAML files in {str(folder)!r}, which {found}. Create one (the README has an example), "
        "or set CHANGEFEED_PIPELINES to the folder of pipelines."
    )


def connections_of(pipeline: Pipeline) -> PipelineConnections:
    """The pipeline with its connections, which are read from environment variables."""
    from changefeed.pipeline.connections import PipelineConnections

    return PipelineConnections(pipeline, from_environment)


def store_of(pipeline: Pipeline) -> CheckpointStore:
    """The pipeline's checkpoint store, outside of an Airflow task; raises SettingsError if it is not available."""
    from changefeed.pipeline.checkpoint_store import checkpoint_store

    def open_variables() -> CheckpointStore:
        from changefeed.cli.variables import variable_store

        return variable_store(pipeline)

    return checkpoint_store(connections_of(pipeline), open_variables)
