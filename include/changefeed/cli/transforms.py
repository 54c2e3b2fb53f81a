"""The command test-transform, which applies a function to changes without Spark, a source or Kafka."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from changefeed.cli.app import EXIT_ERROR, app, complete_pipeline
from changefeed.errors import SettingsError, did_you_mean
from changefeed.model.connection import from_environment
from changefeed.settings.file import load_pipeline
from changefeed.settings.transform_settings import TransformCall
from changefeed.settings.transform_source import transform_source


@app.command("test-transform")
def try_transform(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Name of the function: a file in include/transforms, or one that comes with changefeed.",
        ),
    ],
    file: Annotated[
        Path, typer.Option(help="File of changes, one JSON line each, as `changefeed decode` prints them.")
    ],
    arguments: Annotated[str, typer.Option(help="Arguments of the function as a JSON object.")] = "{}",
    pipeline: Annotated[
        str | None,
        typer.Option(help="Pipeline whose YAML has the arguments and tables.", autocompletion=complete_pipeline),
    ] = None,
    key: Annotated[str | None, typer.Option(help="Columns of the key, separated by commas. Default: id.")] = None,
) -> None:
    """Print the changes that a function returns, one JSON line each, and on stderr the numbers of dropped and failed
    ones.

    Exits 1 if the function failed on a change.
    """
    from changefeed.transforms.chain import Chain
    from changefeed.transforms.lines import change_of, line_of
    from changefeed.transforms.loading import Transform

    call = _call_of_pipeline(name, pipeline) if pipeline is not None else _call(name, arguments)
    dropped: Counter[str] = Counter()
    chain = Chain([Transform.of(call)], dropped)
    columns = tuple(key.split(",")) if key else None
    taken = made = failures = 0
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise SettingsError(f"{str(file)!r} cannot be read: {error.strerror}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip() or b'"op":"q"' in line:
            continue
        change = change_of(line, number, columns)
        if not call.matches(change.database, change.table):
            continue
        taken += 1
        returned, failed = chain.of_change(change)
        for failure in failed.values():
            failures += 1
            print(f"line {number}: {failure.error(change_of(line, number, columns))}", file=sys.stderr)
        for result in returned:
            print(line_of(result).decode())
            made += 1
    print(f"{taken} changes in, {made} out, {dropped[name]} dropped, {failures} failed", file=sys.stderr)
    if failures:
        raise typer.Exit(EXIT_ERROR)


def _call(name: str, arguments: str) -> TransformCall:
    try:
        given: Any = json.loads(arguments)
    except ValueError as error:
        raise SettingsError(f"--arguments is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise SettingsError(f"--arguments: expected a JSON object, found {type(given).__name__}")
    source = transform_source(name)
    source.check_arguments(given)
    return TransformCall("*.*", source, given)


def _call_of_pipeline(name: str, pipeline: str) -> TransformCall:
    calls = load_pipeline(pipeline).transform_calls(from_environment)
    names = [call.source.name for call in calls]
    if name not in names:
        raise SettingsError(
            f"pipeline {pipeline!r} has no transform {name!r}{did_you_mean(name, names)}: it has "
            f"{', '.join(names) or 'none'}"
        )
    return calls[names.index(name)]
