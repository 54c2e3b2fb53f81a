"""Commands about binlog files: decode and explain."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import orjson
import typer

from changefeed.cli.app import AsJson, app, complete_pipeline, connections_of, print_json
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
        str, typer.Option("--format", help="Wire format, as in a pipeline's `format`.")
    ] = DEFAULT_FORMAT,
    format_options: Annotated[
        list[str] | None,
        typer.Option("--format-option", metavar="NAME=VALUE", help="Option of the format. May be repeated."),
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(help="Pattern of tables, DATABASE.TABLE with * and ?. May be repeated. Default: all tables."),
    ] = None,
    start: Annotated[
        int | None, typer.Option("--from", help="Position of the first event. Default: the beginning.")
    ] = None,
    end: Annotated[int | None, typer.Option("--to", help="Position at which to stop. Default: the end.")] = None,
    stats: Annotated[bool, typer.Option(help="Print the counts of each file as JSON on stderr.")] = False,
) -> None:
    """Print the changes in binlog files as JSON: one line for each row change, and one with `op: "q"` for each
    statement.

    A truncated file is decoded up to its last complete transaction; then the command exits 1 and names the position.
    """
    from changefeed.binlog.file import BinlogFileLines

    format = format_of(format_name, FormatSettings("decode", 0, options=_options(format_options or [])))
    is_shown = _filter_tables(tables)
    for name in files:
        path = None if name == "-" else Path(name)
        if path is not None and not path.is_file():
            raise SettingsError(f"expected a binlog file, found no file {name!r}")
        lines = BinlogFileLines(path, format, stream=sys.stdin.buffer, is_shown=is_shown, start=start, end=end)
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
    table: Annotated[str, typer.Argument(metavar="DATABASE.TABLE", help="The table.")],
    file: Annotated[Path | None, typer.Option(help="Binlog file with rows of the table.")] = None,
    pipeline_name: Annotated[
        str | None,
        typer.Option(
            "--pipeline",
            help="Search the binlog of this pipeline's source, newest file first.",
            autocompletion=complete_pipeline,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a table's row program: its columns in the binlog, and the ops that write its messages.

    With --pipeline also its topic, partitions, key, format and masks, and a message of the newest file with rows.
    """
    if (file is None) == (pipeline_name is None):
        raise SettingsError("expected either --file FILE or --pipeline PIPELINE")
    program = _explain_file(file, table) if file is not None else _explain_source(pipeline_name or "", table)
    if program is None:
        raise SettingsError(f"found no rows of {table!r}, so it has no row program yet")
    if as_json:
        print_json({"table": table, "program": program})
    else:
        print(program, end="")


def _options(given: list[str]) -> Mapping[str, object]:
    for text in given:
        if "=" not in text:
            raise SettingsError(f"--format-option {text!r}: expected NAME=VALUE, as in schemas=true")
    return dict(text.split("=", 1) for text in given)


def _filter_tables(tables: list[str] | None) -> Callable[[str, str], bool]:
    if not tables:
        return lambda _database, _table: True
    without_database = [pattern for pattern in tables if "." not in pattern]
    if without_database:
        raise SettingsError(
            f"{without_database[0]!r} names no database: expected DATABASE.TABLE, as in shop.* or *.orders"
        )
    return TableSettings(include=tables).matches


def _explain_file(path: Path, table: str) -> str | None:
    from changefeed.source.archive.archive import Archive
    from changefeed.source.archive.binlogs import ArchivedBinlogs

    size = path.stat().st_size
    archive = ArchivedBinlogs(Archive(str(path.absolute())))
    name = archive.files()[0].name
    window_slice = Slice(0, name, 4, size)
    format = format_of(DEFAULT_FORMAT, FormatSettings("explain", 0))
    route = Route("-", 1)
    return _explain_chunks(
        table, archive.chunks(name, 4, size), window_slice, format, ALL_SHOWN, route, lambda *_: None
    )


def _explain_source(pipeline_name: str, table: str) -> str | None:
    from changefeed.operations.routed_tables import routed_tables
    from changefeed.settings.file import load_pipeline
    from changefeed.source.mysql import source
    from changefeed.source.mysql.catalog import catalog_lookup
    from changefeed.source.mysql.dump import DumpStream
    from changefeed.source.mysql.server_schemas import collation_names
    from changefeed.source.mysql.session import Session, server_of

    pipeline = load_pipeline(pipeline_name)
    connections = connections_of(pipeline)
    database, _, name = table.partition(".")
    found, schemas = connections.routes.of(database, name), catalog_lookup(lambda: Session(connections.mysql))
    if found is None:
        raise SettingsError(f"pipeline {pipeline_name!r} does not capture {table!r}: see its `tables`")
    with connections.session() as session:
        files, logs_column_names = source.binlog_files(session), source.logs_column_names(session)
        reads = _DdlReader(TableName(database, name), server_of(session), collation_names(session))
    schema = schemas(database, name)
    show = routed_tables(connections, [schema] if schema else [], server_names_keys=logs_column_names)
    head = "".join(f"{each}\n" for each in show)
    for file in reversed(files):
        dump = DumpStream(Session(connections.mysql), file=file.name, start=4, end=file.size_bytes)
        last = reads.last(dump, Slice(0, file.name, 4, file.size_bytes))
        start = 4 if last is None else last.position + last.size_bytes
        if start < file.size_bytes:
            dump = DumpStream(Session(connections.mysql), file=file.name, start=start, end=file.size_bytes)
            window_slice = Slice(0, file.name, start, file.size_bytes)
            format, columns = connections.routes.format(0), connections.column_rules
            program = _explain_chunks(
                table, dump, window_slice, format, columns, found.route, schemas, connections.transform_calls
            )
            if program is not None:
                return head + program
        if last is not None and schema is not None:
            at = f"{last.file}:{last.position}"
            return f"{head}it has no rows after its DDL at {at}, so it has no row program yet\n"
    return None


@dataclass(frozen=True)
class _DdlReader:
    """Finds DDL statements that create or change table ``name``. Rows before such a statement have other columns."""

    name: TableName
    server: Server
    collations: Mapping[int, str]

    def last(self, chunks: Iterable[bytes], window_slice: Slice) -> Statement | None:
        """The last of these DDL statements in a slice; None if there is none."""
        from changefeed.binlog.decoder import KernelDecoder
        from changefeed.ddl.ddl_statement import Kind
        from changefeed.ddl.history import read_logged

        found: list[Statement] = []

        def look(statement: Statement) -> None:
            read = read_logged(statement, self.server, self.collations)
            if read.kind is Kind.DDL and self.name in read.tables:
                found[:] = [statement]

        format = format_of(DEFAULT_FORMAT, FormatSettings("explain", 0))
        decoder = KernelDecoder(lambda *_: None, lambda *_: None, format, "", on_statement=look)
        for _ in decoder.decode(chunks, window_slice):
            pass
        return found[0] if found else None


def _explain_chunks(
    table: str,
    chunks: Iterable[bytes],
    window_slice: Slice,
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

    def read_until_found() -> Iterator[bytes]:
        chunks_with_table = 0
        for chunk in chunks:
            yield chunk
            chunks_with_table += table in decoder.programs.bound
            if chunks_with_table == 2:  # the first rows may be in the chunk after the TABLE_MAP
                return

    decoding = decoder.slice_decoder(window_slice)
    items: list[object] = []
    with suppress(BinlogFormatError):  # `read_until_found` ends before the slice
        items += decoding.decode(read_until_found())
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
        "" if first is None else _format_message(first, of_table(format, *table.split(".", 1)))
    )


def _format_message(message: Message, format: RowFormat) -> str:
    show = format.show if isinstance(format, Shown) else bytes
    parts = {name: part and show(part) for name, part in {"key": message.key, "value": message.value}.items()}
    parts |= {f"header {name}": value for name, value in message.headers}
    lines = (
        f"  {name}: {'null' if part is None else part.decode('utf-8', 'backslashreplace')}"
        for name, part in parts.items()
    )
    return "\n".join(("a message:", *lines)) + "\n"
