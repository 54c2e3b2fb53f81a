"""Commands about binlog bytes: decode files, explain a table's row program."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import orjson
import typer

from changefeed.command.app import app, endpoints_of
from changefeed.errors import BinlogFormatError, SettingsError
from changefeed.formats.format import FormatSettings, RowFormat
from changefeed.formats.registry import DEFAULT_FORMAT, FORMATS, format_of
from changefeed.message_key import PRIMARY_KEY, KeyRule
from changefeed.pipelines.column_rules import ALL_SHOWN, ColumnRules
from changefeed.pipelines.pipeline import TableSettings
from changefeed.window import Slice


@app.command()
def decode(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Binlog or relay-log files; - is standard input.")
    ],
    format_name: Annotated[
        str, typer.Option("--format", help=f"Message format: {', '.join(FORMATS)}.")
    ] = DEFAULT_FORMAT,
    format_options: Annotated[
        list[str] | None, typer.Option("--format-option", metavar="NAME=VALUE", help="An option of the format.")
    ] = None,
    tables: Annotated[list[str] | None, typer.Option(help="Only rows of these: DATABASE.TABLE with * and ?.")] = None,
    start: Annotated[int | None, typer.Option("--from", help="Position of the first event.")] = None,
    end: Annotated[int | None, typer.Option("--to", help="Position where to stop.")] = None,
    stats: Annotated[bool, typer.Option(help="At the end of each file its counts, as JSON on stderr.")] = False,
) -> None:
    """Print a binlog file's changes as JSON lines: one a row change, and `op: "q"` for each statement.

    A file that is cut off is decoded up to its last whole transaction; then the command exits 1 and names the position.
    """
    from changefeed.binlog.file import BinlogFileLines

    format = format_of(format_name, FormatSettings("decode", 0, options=_options(format_options or [])))
    wanted = _wanted(tables)
    for name in files:
        path = None if name == "-" else Path(name)
        if path is not None and not path.is_file():
            raise SettingsError(f"wanted a binlog file, found none named {name!r}")
        lines = BinlogFileLines(path, format, stream=sys.stdin.buffer, wanted=wanted, start=start, end=end)
        write = sys.stdout.buffer.write
        try:
            for line in lines.lines():
                write(line)
                write(b"\n")
        finally:
            sys.stdout.buffer.flush()
        if stats and lines.report is not None:
            counts = asdict(lines.report)
            counts["statements"] = len(lines.report.statements)
            print(orjson.dumps({"file": lines.name, **counts}).decode(), file=sys.stderr)


@app.command()
def explain(
    table: Annotated[str, typer.Argument(metavar="DATABASE.TABLE")],
    file: Annotated[Path | None, typer.Option(help="A binlog file that has rows of the table.")] = None,
    pipeline_name: Annotated[
        str | None, typer.Option("--pipeline", help="Look in the binlog of this pipeline's source, newest file first.")
    ] = None,
) -> None:
    """Print a table's row program: its columns on the wire, and the ops that make its messages."""
    if (file is None) == (pipeline_name is None):
        raise SettingsError("wanted where to look for the table: either --file FILE or --pipeline PIPELINE")
    program = _explained_file(file, table) if file is not None else _explained_source(pipeline_name or "", table)
    if program is None:
        raise SettingsError(f"no rows of {table!r} were found there, so it has no row program yet")
    print(program, end="")


def _options(given: list[str]) -> Mapping[str, object]:
    for text in given:
        if "=" not in text:
            raise SettingsError(f"--format-option {text!r}: wanted NAME=VALUE, as in schemas=true")
    return dict(text.split("=", 1) for text in given)


def _wanted(tables: list[str] | None) -> Callable[[str, str], bool]:
    if not tables:
        return lambda _database, _table: True
    without_database = [pattern for pattern in tables if "." not in pattern]
    if without_database:
        raise SettingsError(
            f"{without_database[0]!r} names no database: wanted DATABASE.TABLE, as in shop.* or *.orders"
        )
    return TableSettings(include=tables).matches


def _explained_file(path: Path, table: str) -> str | None:
    from changefeed.archive.archive import Archive
    from changefeed.archive.binlogs import ArchivedBinlogs

    size = path.stat().st_size
    archive = ArchivedBinlogs(Archive(str(path.absolute())))
    name = archive.files()[0].name
    piece = Slice(0, name, 4, size)
    format = format_of(DEFAULT_FORMAT, FormatSettings("explain", 0))
    return _explained(table, archive.chunks(name, 4, size), piece, format, ALL_SHOWN, PRIMARY_KEY)


def _explained_source(pipeline_name: str, table: str) -> str | None:
    from changefeed.mysql import source
    from changefeed.mysql.dump import DumpStream
    from changefeed.pipelines.file import load_pipeline

    pipeline = load_pipeline(pipeline_name)
    endpoints = endpoints_of(pipeline)
    with endpoints.session() as session:
        files = source.binlog_files(session)
    key = pipeline.key_rule(*table.split(".", 1))
    for file in reversed(files):
        dump = DumpStream(endpoints.session(), file=file.name, start=4, end=file.size_bytes)
        piece = Slice(0, file.name, 4, file.size_bytes)
        format, columns = pipeline.message_format(0), endpoints.column_rules
        program = _explained(table, dump, piece, format, columns, key)
        if program is not None:
            return program
    return None


def _explained(
    table: str,
    chunks: Iterable[bytes],
    piece: Slice,
    format: RowFormat,
    columns: ColumnRules,
    key: KeyRule,
) -> str | None:
    from changefeed.binlog.decoder import KernelDecoder
    from changefeed.binlog.programs.explain import explain as program_of
    from changefeed.reader import Route

    decoder = KernelDecoder(
        lambda database, name: Route("-", 1, key) if f"{database}.{name}" == table else None,
        lambda _database, _table: None,
        format,
        "",
        columns=columns,
    )

    def until_found() -> Iterator[bytes]:
        for chunk in chunks:
            yield chunk
            if table in decoder.programs.bound:
                return

    with suppress(BinlogFormatError):  # `until_found` ends before the slice does
        for _ in decoder.decode(until_found(), piece):
            pass
    return program_of(decoder.programs, table) if table in decoder.programs.bound else None
