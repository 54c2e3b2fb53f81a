"""The application that the command's modules add to, and what they share."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from changefeed.checkpoint import CheckpointStore
from changefeed.connection import from_environment
from changefeed.errors import SettingsError
from changefeed.pipelines.file import load_pipeline, load_pipelines
from changefeed.pipelines.pipeline import Pipeline
from changefeed.state.stores import checkpoint_store
from changefeed.state.variable_store import MetadataVariables, VariableCheckpointStore

if TYPE_CHECKING:  # at run time each command would wait for the clients of Kafka and MySQL, `--help` too
    from changefeed.endpoints.endpoints import Endpoints

EXIT_ERROR = 1
EXIT_NOTHING_NEW = 3

app = typer.Typer(
    help="changefeed: publish MySQL's row changes to Kafka, without Airflow.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)
out = Console(soft_wrap=True, highlight=False)

PipelineName = Annotated[str, typer.Argument(metavar="PIPELINE", help="Name of a pipeline, as in its YAML.")]
AnyPipeline = Annotated[str | None, typer.Argument(metavar="[PIPELINE]", help="One pipeline; all without it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def chosen(name: str | None) -> list[Pipeline]:
    """The named pipeline, or all of them; raises SettingsError when one of the files is wrong."""
    if name is not None:
        return [load_pipeline(name)]
    pipelines, errors = load_pipelines()
    if errors:
        raise SettingsError("\n".join(str(error) for error in errors.values()))
    return list(pipelines.values())


def endpoints_of(pipeline: Pipeline) -> Endpoints:
    """The pipeline with its connections out of the environment."""
    from changefeed.endpoints.endpoints import Endpoints

    return Endpoints(pipeline, from_environment)


def store_of(pipeline: Pipeline) -> CheckpointStore:
    """The pipeline's checkpoint store, outside of an Airflow task."""
    return checkpoint_store(pipeline, from_environment, VariableCheckpointStore(CommandVariables()))


class CommandVariables(MetadataVariables):
    """Variables whose log goes to stderr: Airflow writes its own to stdout, which is for what a command prints."""

    def get(self, key: str) -> str | None:
        with redirect_stdout(sys.stderr):
            return super().get(key)

    def set(self, key: str, value: str, description: str) -> None:
        with redirect_stdout(sys.stderr):
            super().set(key, value, description)
