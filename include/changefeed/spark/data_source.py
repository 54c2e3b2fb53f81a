"""`spark.read.format("mysql_binlog")`: a binlog as a DataFrame, one row per row change.

    from changefeed.spark.data_source import BinlogDataSource

    spark.dataSource.register(BinlogDataSource)
    changes = spark.read.format("mysql_binlog").options(connection="mysql_shop", tables="shop.*").load()

Options:

- ``connection``, a connection id (see `changefeed.model.connection`), or ``uri``
- ``start`` and ``end``, FILE:POSITION; by default the complete binlog of the server
- ``tables`` and ``exclude``, patterns separated by commas; by default all tables
- ``slice_bytes``, by default 64 MiB

The readers have no server_id. An update that changes the primary key is two rows, d and c.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import orjson
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from changefeed.binlog.decoder import KernelDecoder
from changefeed.binlog.search.scout import scout
from changefeed.binlog.search.scouting import is_worth_cutting, number_slices
from changefeed.errors import SettingsError
from changefeed.formats.columns import SEPARATOR, ColumnsFormat
from changefeed.model.connection import MysqlConnection, from_environment
from changefeed.model.coordinates import FIRST_POSITION, BinlogCoordinates
from changefeed.model.file_identity import FileIdentity
from changefeed.model.route import Route
from changefeed.model.window import Slice, Window, file_slices
from changefeed.pipeline.connections import mysql_connection
from changefeed.records.block import MessageBlock
from changefeed.settings.pipeline_settings import TableSettings
from changefeed.source.mysql import source
from changefeed.source.mysql.binlogs import window_files
from changefeed.source.mysql.catalog import catalog_lookup
from changefeed.source.mysql.dump import DumpStream
from changefeed.source.mysql.session import Session

__all__ = ["BinlogDataSource"]

SCHEMA = (
    "file string, position long, row long, ts timestamp, server_id long, gtid string, database string, table string, "
    "op string, key string, before string, after string"
)
_ARROW = pa.schema(
    [
        ("file", pa.string()),
        ("position", pa.int64()),
        ("row", pa.int64()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("server_id", pa.int64()),
        ("gtid", pa.string()),
        ("database", pa.string()),
        ("table", pa.string()),
        ("op", pa.string()),
        ("key", pa.string()),
        ("before", pa.string()),
        ("after", pa.string()),
    ]
)
_OPTIONS = {"connection", "uri", "start", "end", "tables", "exclude", "slice_bytes", "path"}
_SLICE_BYTES = 64 << 20


@dataclass
class SlicePartition(InputPartition):
    """One slice, which Spark passes to a task."""

    slice: Slice
    server_uuid: str
    identity: FileIdentity


class BinlogDataSource(DataSource):
    """The `mysql_binlog` format, for batch reads."""

    @classmethod
    def name(cls) -> str:
        """The name for `spark.read.format`."""
        return "mysql_binlog"

    def schema(self) -> str:
        """The columns of a row change."""
        return SCHEMA

    def reader(self, schema: object) -> DataSourceReader:  # noqa: ARG002  # it is always SCHEMA
        """The reader; raises SettingsError for an unknown option."""
        return BinlogDataSourceReader(dict(self.options))


class BinlogDataSourceReader(DataSourceReader):
    """Cuts the range into slices, and decodes each slice with the kernel."""

    def __init__(self, options: Mapping[str, str]) -> None:
        unknown = sorted(set(options) - _OPTIONS)
        if unknown:
            raise SettingsError(
                f"unknown option {unknown[0]!r} of mysql_binlog; expected one of {', '.join(sorted(_OPTIONS))}"
            )
        self._options = options
        uri, connection_id = options.get("uri"), options.get("connection", "mysql_default")
        self._mysql = MysqlConnection.from_uri(uri) if uri else mysql_connection(connection_id, from_environment)
        include = options.get("tables", "*.*").split(",")
        self._tables = TableSettings(include=include, exclude=list(filter(None, options.get("exclude", "").split(","))))

    def partitions(self) -> list[SlicePartition]:
        """The slices between `start` and `end`; raises BinlogGoneError if the server does not have them."""
        slice_bytes = int(self._options.get("slice_bytes", _SLICE_BYTES))
        with Session(self._mysql) as session:
            uuid = source.server_uuid(session)
            files = source.binlog_files(session)
            earliest = BinlogCoordinates(files[0].name, FIRST_POSITION)
            start = self._coordinates("start", earliest)
            end = self._coordinates("end", source.head(session).coordinates)
            source.check_present(start, files, "to read")
        window = Window("mysql_binlog", 1, uuid, start, end, "", "", 0)
        files_read = list(file_slices(window, files))
        identities = window_files(self._mysql, window, (slice.file for slice in files_read))
        slices: list[Slice] = []
        for slice in files_read:
            if is_worth_cutting(slice.size_bytes, slice_bytes):
                dump = self._dump(SlicePartition(slice, uuid, identities[slice.file]))
                slices += scout(dump, slice, slice_bytes).slices
            else:
                slices.append(slice)
        return [SlicePartition(slice, uuid, identities[slice.file]) for slice in number_slices(slices)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The row changes of a slice, one batch for each block."""
        if not isinstance(partition, SlicePartition):
            return  # for no slices Spark passes a partition that is None
        schemas = catalog_lookup(lambda: source.session_on(self._mysql, partition.server_uuid))
        decoder = KernelDecoder(self._route, schemas, ColumnsFormat(), partition.server_uuid)
        for item in decoder.decode(self._dump(partition), partition.slice):
            if isinstance(item, MessageBlock):
                yield _batch(item)

    def _route(self, database: str, table: str) -> Route | None:
        """A route whose "topic" is the table's name."""
        name = orjson.dumps([database, table]).decode()
        return Route(name, 1) if self._tables.matches(database, table) else None

    def _dump(self, partition: SlicePartition) -> DumpStream:
        slice, session = partition.slice, source.session_on(self._mysql, partition.server_uuid)
        return DumpStream(session, file=slice.file, start=slice.start, end=slice.end, identity=partition.identity)

    def _coordinates(self, option: str, default: BinlogCoordinates) -> BinlogCoordinates:
        text = self._options.get(option)
        return BinlogCoordinates.parse(text) if text else default


def _batch(block: MessageBlock) -> pa.RecordBatch:
    database, table = orjson.loads(block.topic)
    rows = []
    for message in block.messages():
        fields = (message.value or b"").split(SEPARATOR)
        op, row, seconds, server_id, before, after = (field.decode() for field in fields)
        rows.append(
            {
                "file": block.origin,
                "position": message.position,
                "row": int(row),
                "ts": int(seconds) * 1_000_000,
                "server_id": int(server_id),
                "gtid": message.gtid.decode() or None,
                "database": database,
                "table": table,
                "op": op,
                "key": message.key.decode() if message.key is not None else None,
                "before": None if before == "null" else before,
                "after": None if after == "null" else after,
            }
        )
    return pa.RecordBatch.from_pylist(rows, schema=_ARROW)
