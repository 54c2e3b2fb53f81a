"""Commands about binlog bytes: decode files, explain a table's row program."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import orjson
import typer

from changefeed.cli.app import app, connections_of
from changefeed.ddl.names import TableName
from changefeed.ddl.session import Server
from changefeed.errors import BinlogFormatError, SettingsError
from changefeed.formats.by_table import of_table
from changefeed.formats.format import FormatSettings, RowFormat, Shown
from changefeed.formats.registry import DEFAULT_FORMAT, format_of
from changefeed.model.column_rules import ALL_SHOWN, ColumnRules
from changefeed.model.route import Route, SchemaLookup
from changefeed.model.statement import Statement
from changefeed.model.window import Slice
from changefeed.records.block import Message, MessageBlock
from changefeed.settings.pipeline_settings import TableSettings
from changefeed.settings.transform_settings import TransformCall


@app.command()
def decode(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Binlog or relay-log files; - is standard input.")
    ],
    format_name: Annotated[
        str, typer.Option("--format", help="Message format, as a pipeline's `format` names it.")
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
    """Print a table's row program: its columns on the wire, and the ops that make its messages.

    With --pipeline also where its changes go, and the first message of the newest file that has any.
    """
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
    from changefeed.source.archive.archive import Archive
    from changefeed.source.archive.binlogs import ArchivedBinlogs

    size = path.stat().st_size
    archive = ArchivedBinlogs(Archive(str(path.absolute())))
    name = archive.files()[0].name
    piece = Slice(0, name, 4, size)
    format = format_of(DEFAULT_FORMAT, FormatSettings("explain", 0))
    route = Route("-", 1)
    return _explained(table, archive.chunks(name, 4, size), piece, format, ALL_SHOWN, route, lambda *_: None)


def _explained_source(pipeline_name: str, table: str) -> str | None:
    from changefeed.operations.routed_tables import routed_tables
    from changefeed.settings.file import load_pipeline
    from changefeed.source.mysql import source
    from changefeed.source.mysql.catalog import catalog_lookup
    from changefeed.source.mysql.dump import DumpStream
    from changefeed.source.mysql.server_schemas import collation_names
    from changefeed.source.mysql.session import server_of

    pipeline = load_pipeline(pipeline_name)
    connections = connections_of(pipeline)
    database, _, name = table.partition(".")
    found, schemas = connections.routes.of(database, name), catalog_lookup(connections.session)
    if found is None:
        raise SettingsError(f"pipeline {pipeline_name!r} does not capture {table!r}: see its `tables`")
    with connections.session() as session:
        files, names_come_along = source.binlog_files(session), source.names_come_along(session)
        reads = _DefinitionReader(TableName(database, name), server_of(session), collation_names(session))
    schema = schemas(database, name)
    shown = routed_tables(connections, [schema] if schema else [], server_names_keys=names_come_along)
    head = "".join(f"{each}\n" for each in shown)
    for file in reversed(files):
        dump = DumpStream(connections.session(), file=file.name, start=4, end=file.size_bytes)
        last = reads.last(dump, Slice(0, file.name, 4, file.size_bytes))
        start = 4 if last is None else last.position + last.size_bytes
        if start < file.size_bytes:
            dump = DumpStream(connections.session(), file=file.name, start=start, end=file.size_bytes)
            piece = Slice(0, file.name, start, file.size_bytes)
            format, columns = connections.routes.format(0), connections.column_rules
            program = _explained(table, dump, piece, format, columns, found.route, schemas, connections.transform_calls)
            if program is not None:
                return head + program
        if last is not None and schema is not None:
            at = f"{last.file}:{last.position}"
            return f"{head}no rows of it were logged since it was defined at {at}, so it has no row program yet\n"
    return None


@dataclass(frozen=True)
class _DefinitionReader:
    """Finds the statements that define ``name``, as ``server`` reads them: rows before one are of another table."""

    name: TableName
    server: Server
    collations: Mapping[int, str]

    def last(self, chunks: Iterable[bytes], piece: Slice) -> Statement | None:
        """The last of a slice, None without any."""
        from changefeed.binlog.decoder import KernelDecoder
        from changefeed.ddl.ddl_statement import Kind
        from changefeed.ddl.history import read_logged

        found: list[Statement] = []

        def look(statement: Statement) -> None:
            read = read_logged(statement, self.server, self.collations)
            if read.kind is Kind.DEFINITION and self.name in read.tables:
                found[:] = [statement]

        format = format_of(DEFAULT_FORMAT, FormatSettings("explain", 0))
        decoder = KernelDecoder(lambda *_: None, lambda *_: None, format, "", on_statement=look)
        for _ in decoder.decode(chunks, piece):
            pass
        return found[0] if found else None


def _explained(
    table: str,
    chunks: Iterable[bytes],
    piece: Slice,
    format: RowFormat,
    columns: ColumnRules,
    route: Route,
    schemas: SchemaLookup,
    transforms: Sequence[TransformCall] = (),
) -> str | None:
    from changefeed.binlog.decoder import KernelDecoder
    from changefeed.binlog.programs.explain import explain as program_of
    from changefeed.transforms.finisher import TransformFinisher

    decoder = KernelDecoder(
        lambda database, name: route if f"{database}.{name}" == table else None,
        schemas,
        format,
        "",
        columns=columns,
        finisher=TransformFinisher(transforms, format, columns, lambda _topic: route.partitions)
        if transforms
        else None,
    )

    def until_found() -> Iterator[bytes]:
        behind = 0
        for chunk in chunks:
            yield chunk
            behind += table in decoder.programs.bound
            if behind == 2:  # its first rows may stand in the chunk behind its TABLE_MAP
                return

    decoding = decoder.slice(piece)
    items: list[object] = []
    with suppress(BinlogFormatError):  # `until_found` ends before the slice does
        items += decoding.decode(until_found())
    if table not in decoder.programs.bound:
        return None
    messages = (
        message
        for item in (*items, *decoding.finish())
        if isinstance(item, MessageBlock)
        for message in item.messages()
    )
    first = min(messages, key=lambda message: (message.position, message.sequence), default=None)
    return program_of(decoder.programs, table) + (
        "" if first is None else _shown(first, of_table(format, *table.split(".", 1)))
    )


def _shown(message: Message, format: RowFormat) -> str:
    shown = format.shown if isinstance(format, Shown) else bytes
    parts = {name: part and shown(part) for name, part in {"key": message.key, "value": message.value}.items()}
    parts |= {f"header {name}": value for name, value in message.headers}
    lines = (
        f"  {name}: {'null' if part is None else part.decode('utf-8', 'backslashreplace')}"
        for name, part in parts.items()
    )
    return "\n".join(("a message:", *lines)) + "\n"
