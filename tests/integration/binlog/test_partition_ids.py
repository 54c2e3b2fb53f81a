"""The partition of the table that rows are in, as events of MySQL say it; mysqlbinlog says the same."""

from __future__ import annotations

import re
import subprocess
import zlib
from dataclasses import replace
from typing import Any

import orjson
import pytest
from integration.binlog_of import Binlog, binlog_of

from changefeed.binlog.events.framing import HEADER, EventType
from changefeed.errors import BinlogFormatError
from changefeed.formats.format import FormatSettings
from changefeed.formats.registry import format_of
from changefeed.model.coordinates import FIRST_POSITION
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer

TABLE = "(id INT PRIMARY KEY, a JSON) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES "
TABLE += "LESS THAN (1000), PARTITION p2 VALUES LESS THAN MAXVALUE)"
STATEMENTS = (
    f"CREATE TABLE t {TABLE}",
    "CREATE TABLE plain (id INT PRIMARY KEY)",
    """INSERT INTO t VALUES (1, '{"a": 1}'), (2, '{}'), (20, '{}'), (2000, '{}')""",
    "INSERT INTO plain VALUES (1)",
    "UPDATE t SET id = id + 10 WHERE id IN (2, 20)",
    """UPDATE t SET a = JSON_SET(a, '$.a', 2)""",
    "DELETE FROM t",
)
_SAID = re.compile(r"Extra row info for partitioning: (.*)")


@pytest.fixture(params=["", "binlog_row_value_options = PARTIAL_JSON", "binlog_transaction_compression = ON"])
def binlog(request: pytest.FixtureRequest, full_mysql_server: MysqlServer, unique_name: str) -> Binlog:
    session = [f"SET SESSION {request.param}"] if request.param else []
    return binlog_of(full_mysql_server, unique_name, *session, *STATEMENTS)


def events(binlog: Binlog) -> list[dict[str, Any]]:
    format = format_of("event", FormatSettings("p", 0))
    return [orjson.loads(message.value) for message in binlog.messages(format) if message.value]


def said_by_server(server: MysqlServer, binlog: Binlog) -> list[list[int]]:
    """The numbers of each event with partitions, as mysqlbinlog prints them, its source before its target."""
    command = [*server.client("mysqlbinlog"), "-vv", str(server.data / binlog.name)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [[int(number) for number in re.findall(r"\d+", line)] for line in _SAID.findall(text)]


def test_events_have_the_partitions_that_mysqlbinlog_prints(full_mysql_server: MysqlServer, binlog: Binlog) -> None:
    found = events(binlog)
    names = "source_partition_id", "partition_id"
    ours = [[event[name] for name in names if name in event] for event in found if event["table"] == "t"]
    assert ours == said_by_server(full_mysql_server, binlog)
    assert [0, 1] in ours
    assert [event for event in found if event["table"] == "plain" and "partition_id" in event] == []


def test_mariadb_says_no_partition(full_mariadb_server: MariadbServer, unique_name: str) -> None:
    binlog = binlog_of(full_mariadb_server, unique_name, STATEMENTS[0], STATEMENTS[2])
    assert [event for event in events(binlog) if "partition_id" in event] == []
    assert sum(len(event["rows"]) for event in events(binlog)) == 4


def test_extra_data_that_ends_before_the_partition_is_damage(full_mysql_server: MysqlServer, unique_name: str) -> None:
    """An update has two partitions: extra data that has room for one is refused."""
    binlog = binlog_of(full_mysql_server, unique_name, *STATEMENTS[:3], "UPDATE t SET id = 30 WHERE id = 1")
    data, at = bytearray(binlog.data), FIRST_POSITION
    while at < len(data):
        _, kind, _, size, _, _ = HEADER.unpack_from(data, at)
        if kind == EventType.UPDATE_ROWS:
            extra = at + HEADER.size + 8
            assert data[extra : extra + 3] == b"\x07\x00\x01"
            data[extra] = 5
            data[at + size - 4 : at + size] = zlib.crc32(data[at : at + size - 4]).to_bytes(4, "little")
        at += size
    with pytest.raises(BinlogFormatError, match="rows"):
        events(replace(binlog, data=bytes(data)))
