"""A real binlog file of more than four gigabytes, by one transaction: `make test-huge-file`. It needs 10 GB of disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from changefeed.binlog.decoder import KernelDecoder
from changefeed.binlog.search.finder import Finder
from changefeed.binlog.search.scout import scout
from changefeed.formats.debezium import DebeziumFormat
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import LAST_DUMP_POSITION, BinlogCoordinates
from changefeed.model.route import Route
from changefeed.model.slice_report import SliceReport
from changefeed.model.window import Slice
from changefeed.records.block import MessageBlock
from changefeed.source.mysql import source
from changefeed.source.mysql.binlogs import ServerBinlogs
from changefeed.source.mysql.session import Session
from devstack.identity import ProcessId
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.process import run_server
from devstack.sql_server import SqlServer

pytestmark = pytest.mark.timeout(1800)
STATEMENTS, TEXT_BYTES = 150, 30_000_000


@pytest.fixture(params=[MysqlServer, MariadbServer], ids=["mysql", "mariadb"])
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SqlServer]:
    options = {"binlog_row_metadata": "FULL", "max_allowed_packet": "64M"}
    if request.param is MysqlServer:
        options["binlog_rows_query_log_events"] = "ON"  # as MariaDB does by default
    with run_server(request.param(tmp_path / "server", options=options, owner=ProcessId.own(), quick=True)) as running:
        yield running


def test_file_larger_than_4_gb_is_cut_and_read_in_slices(server: SqlServer) -> None:
    """The texts of the statements make it large, which costs the server less than rows."""
    server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "FLUSH BINARY LOGS")
    with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for number in range(STATEMENTS):
            cursor.execute(f"INSERT INTO d.t VALUES ({number}) /* {'x' * TEXT_BYTES} */")
        connection.commit()
    server.execute("INSERT INTO d.t VALUES (1000)")
    with Session(MysqlConnection.from_uri(server.url)) as session:
        binlogs = ServerBinlogs(session)
        file = next(file for file in source.binlog_files(session) if file.size_bytes > LAST_DUMP_POSITION)
        complete_file = Slice(0, file.name, 4, file.size_bytes)
        slices = scout(binlogs.chunks(file.name, 4, complete_file.end), complete_file, 64 << 20).slices
        assert len(slices) > 40
        assert slices[-1].start <= LAST_DUMP_POSITION < slices[-1].end
        decoder = KernelDecoder(lambda *_: Route("t", 1), lambda *_: None, DebeziumFormat("p", 0), "uuid")
        rows, last, positions = 0, 0, []
        for slice in slices[-2:]:
            for item in decoder.decode(binlogs.chunks(slice.file, slice.start, slice.end), slice):
                if isinstance(item, MessageBlock):
                    for message in item.messages():
                        assert message.event_id == f"uuid/{file.name}:{message.position}/0".encode()
                        assert message.value is not None
                        value = orjson.loads(message.value)
                        assert value["source"]["pos"] == message.position
                        positions.append(message.position)
                        last = value["after"]["id"]
                else:
                    assert isinstance(item, SliceReport)
                    rows += sum(item.rows.get("d.t", {}).values())
        assert rows == len(positions) > 2
        assert positions == sorted(set(positions))
        assert positions[-1] > LAST_DUMP_POSITION
        assert last == STATEMENTS - 1
        # From a position that no dump can start at, on: the transaction's end, and what follows it.
        finder = Finder(binlogs)
        end = finder.end_of(file.name)
        assert finder.at(BinlogCoordinates(file.name, file.size_bytes)).gtids == end.gtids
        tail = list(binlogs.chunks(file.name, positions[-1], file.size_bytes))
        assert sum(map(len, tail[1:])) == file.size_bytes - positions[-1]
        assert source.head(session).gtids
