"""Record headers of row messages: those of a format and those that a pipeline names, from the kernel to Kafka."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from encode_batches import encode_batches, encoder
from integration.binlog_of import Binlog, binlog_of
from integration.kafka_pipeline import Pipeline

from changefeed.formats import render
from changefeed.formats.debezium import DebeziumFormat
from changefeed.formats.headers import HEADERS, WithHeaders
from changefeed.formats.render import EventHeader, RowChange
from changefeed.formats.template import WITH_TOMBSTONES, ChangeKind, Messages, Slot
from changefeed.kafka.connection import KafkaConnection
from changefeed.model.table_schema import Column, TableSchema
from changefeed.records.block import MessageBlock
from changefeed.records.block_filter import without
from changefeed.records.filter_chain import FilterChain
from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer

PLAIN = DebeziumFormat("test", 0)
OWN = ("__debezium.newkey", "__debezium.oldkey")
"""Headers of its messages of a key that changed."""
ALL = WithHeaders(PLAIN, tuple(HEADERS))
CHANGES = (
    "CREATE TABLE t (id INT PRIMARY KEY, note TEXT)",
    "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    "UPDATE t SET note = CONCAT(note, '!') WHERE id < 3",
    "UPDATE t SET id = 7 WHERE id = 3",
    "DELETE FROM t WHERE id = 1",
)


@dataclass(frozen=True)
class OtherKeyFormat(DebeziumFormat):
    """A change of key names the other key in headers, as Debezium does it, between two that say nothing of the row."""

    def messages(self, table: TableSchema) -> Messages:  # noqa: ARG002 - the same for each table
        deleted, tombstone, created = WITH_TOMBSTONES[ChangeKind.KEY_CHANGE]
        new, old = ("new", (b"<", Slot.KEY_AFTER, b">")), ("old", (Slot.KEY_BEFORE,))
        fixed, at = ("fixed", (b"x" * 100,)), ("at", (Slot.POSITION, b"y" * 100))
        return {
            **WITH_TOMBSTONES,
            ChangeKind.KEY_CHANGE: (
                replace(deleted, headers=(fixed, new, at)),
                replace(tombstone, headers=(new,)),
                replace(created, headers=(at, old, fixed)),
            ),
        }


def test_a_header_names_the_key_of_the_other_image_of_whatever_length(
    full_mysql_server: MysqlServer, unique_name: str
) -> None:
    sizes = (1, 45, 46, 47, 60, 3000)
    binlog = binlog_of(
        full_mysql_server,
        unique_name,
        "CREATE TABLE t (k VARCHAR(3010) CHARACTER SET latin1 PRIMARY KEY, n INT)",
        *(f"INSERT INTO t VALUES (REPEAT('{number}', {size}), 1)" for number, size in enumerate(sizes)),
        "UPDATE t SET k = CONCAT('new ', k)",
    )
    format = OtherKeyFormat("test", 0)
    table = replace(_schema(binlog.database), primary_key=(0,))
    messages = [message for message in binlog.messages(format) if message.headers]
    assert len(messages) == 3 * len(sizes)
    for number, (size, of_row) in enumerate(zip(sizes, zip(*[iter(messages)] * 3, strict=True), strict=True)):
        before: dict[str, object] = {"k": str(number) * size, "n": 1}
        after = {**before, "k": f"new {before['k']}"}
        change = RowChange("u", before, after, binlog.name, of_row[0].position, number, "", 1, 0)
        rendered = list(render.messages(format, table, change))
        assert [message.headers for message in of_row] == [message.headers for message in rendered]
        assert [message.key for message in of_row] == [message.key for message in rendered]
        assert dict(of_row[0].headers)["new"] == b'<{"k":"%b"}>' % str(after["k"]).encode()


def _schema(database: str) -> TableSchema:
    return TableSchema(database, "t", (Column("k", "varchar"), Column("n", "int")), (0,))


def test_the_other_key_is_refused_where_there_is_no_other_image(
    full_mysql_server: MysqlServer, unique_name: str
) -> None:
    class OnCreate(OtherKeyFormat):
        def messages(self, table: TableSchema) -> Messages:
            (created,) = WITH_TOMBSTONES[ChangeKind.CREATE]
            return {
                **super().messages(table),
                ChangeKind.CREATE: (replace(created, headers=(("o", (Slot.KEY_BEFORE,)),)),),
            }

    binlog = binlog_of(full_mysql_server, unique_name, *CHANGES)
    with pytest.raises(ValueError, match="a header of a create has key_before or key_after"):
        binlog.messages(OnCreate("test", 0))


def _event_of(server: Any, binlog: Binlog, position: int) -> tuple[str, int, int]:
    """Type, server_id and end of the event at ``position``, as the server shows them: MariaDB leaves the end at 0, and
    so it is where the next event begins."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SHOW BINLOG EVENTS IN '{binlog.name}' FROM {position} LIMIT 2")
        (_, at, kind, server_id, _, _), (_, end, *_) = cursor.fetchall()
    assert at == position
    return kind, server_id, end


def test_headers_are_those_of_the_event_as_the_server_shows_it(
    full_mysql_server: MysqlServer, unique_name: str
) -> None:
    binlog = binlog_of(full_mysql_server, unique_name, *CHANGES)
    messages = binlog.messages(ALL)
    types = {"Write_rows": 30, "Update_rows": 31, "Delete_rows": 32}
    assert len(messages) == 3 + 2 + 3 + 2
    for message in messages:
        kind, server_id, end = _event_of(full_mysql_server, binlog, message.position)
        headers = dict(message.headers)
        assert [name for name in headers if name not in OWN] == list(HEADERS)
        assert json.loads(headers["mysql_binlog_headers"]) == {
            "timestamp": message.seconds,
            "event_type": types[kind],
            "server_id": server_id,
            "event_size": end - message.position,
            "log_file": binlog.name,
            "log_pos": end,
            "flags": 0,
        }
        assert headers["table"] == f"{unique_name}.t".encode()
        assert headers["op"].decode() == (json.loads(message.value)["op"] if message.value else "d")
        assert headers["transaction_id"] == message.gtid != b""
        assert headers["xid"] == b""
        assert headers["ts_ms"] == b"%d" % (message.seconds * 1000)
    assert [message.value for message in messages].count(None) == 2, "tombstones have them too"


@pytest.mark.parametrize("kind", ["full_mysql_server", "full_mariadb_server"])
def test_rows_of_xa_transactions_have_the_xid_as_the_server_spells_it(
    kind: str, request: pytest.FixtureRequest, unique_name: str
) -> None:
    server: MysqlServer | MariadbServer = request.getfixturevalue(kind)
    long = "L" * 64
    binlog = binlog_of(
        server,
        unique_name,
        "CREATE TABLE t (id INT PRIMARY KEY, note TEXT)",
        *("XA START 'Soon', 'b', 7", "INSERT INTO t VALUES (1, 'a')", "XA END 'Soon', 'b', 7"),
        *("XA PREPARE 'Soon', 'b', 7", "XA COMMIT 'Soon', 'b', 7"),
        *("INSERT INTO t VALUES (2, 'no XA')", f"XA START '{long}', '{long}'", "INSERT INTO t VALUES (3, 'b')"),
        *(f"XA END '{long}', '{long}'", f"XA PREPARE '{long}', '{long}'", f"XA COMMIT '{long}', '{long}'"),
        "INSERT INTO t VALUES (4, 'no XA')",
    )
    xids = {json.loads(message.value or b"")["after"]["id"]: dict(message.headers)["xid"].decode()
            for message in binlog.messages(ALL)}  # fmt: skip
    hexed = long.encode().hex()
    assert xids == {1: "X'536f6f6e',X'62',7", 2: "", 3: f"X'{hexed}',X'{hexed}',1", 4: ""}
    shown = "\n".join(row[5] for row in server.execute(f"SHOW BINLOG EVENTS IN '{binlog.name}'"))
    assert all(f"XA COMMIT {xid}" in shown for xid in xids.values() if xid)


def test_messages_are_the_same_with_headers_and_without(full_mysql_server: MysqlServer, unique_name: str) -> None:
    binlog = binlog_of(full_mysql_server, unique_name, *CHANGES)
    plain, given = (list(binlog.blocks(format, partitions=3)) for format in (PLAIN, ALL))
    assert [block.partition for block in plain] == [block.partition for block in given]
    own = [[replace(m, headers=m.headers[: -len(HEADERS)]) for m in block.messages()] for block in given]
    assert own == [list(block.messages()) for block in plain]
    bare = [m for block in plain for m, null in zip(block.messages(), block.arrays().nulls, strict=True) if null < 4]
    assert len(bare) == 7, "without headers nothing is written for them"
    assert not any(message.headers for message in bare)


def test_inside_of_a_compressed_transaction_headers_are_those_before_compression(
    full_mysql_server: MysqlServer, unique_name: str
) -> None:
    rows = "INSERT INTO t VALUES " + ", ".join(f"({number}, '{number}')" for number in range(10, 1000))
    plain = binlog_of(full_mysql_server, unique_name, CHANGES[0], rows, "DELETE FROM t")
    packed = binlog_of(full_mysql_server, unique_name, "SET binlog_transaction_compression = ON", rows)
    (first, *_), (of_plain, *_) = packed.messages(ALL), plain.messages(ALL)
    kind, _, end = _event_of(full_mysql_server, packed, first.position)
    assert kind == "Transaction_payload"
    header, of_plain_header = (
        json.loads(dict(message.headers)["mysql_binlog_headers"]) for message in (first, of_plain)
    )
    assert header["log_pos"] == end
    assert header["event_type"] == of_plain_header["event_type"]
    assert header["event_size"] == of_plain_header["event_size"] - 4, "events inside have no checksum"


def test_events_that_python_rewrites_keep_their_own_header(
    full_mysql_server: MysqlServer, full_mariadb_server: MariadbServer, unique_name: str
) -> None:
    partial = binlog_of(
        full_mysql_server,
        unique_name,
        "CREATE TABLE t (id INT PRIMARY KEY, j JSON)",
        "INSERT INTO t VALUES (1, JSON_OBJECT('a', 1, 'b', REPEAT('b', 300)))",
        "SET binlog_row_value_options = PARTIAL_JSON",
        "UPDATE t SET j = JSON_SET(j, '$.a', 2)",
    )
    packed = binlog_of(
        full_mariadb_server,
        unique_name,
        "CREATE TABLE t (id INT PRIMARY KEY, a TEXT, c VARCHAR(1000) COMPRESSED)",
        "SET GLOBAL log_bin_compress = ON, log_bin_compress_min_len = 10",
        "INSERT INTO t SELECT seq, REPEAT('abc', 200), REPEAT('d', 500) FROM seq_1_to_300",
        "SET GLOBAL log_bin_compress = OFF",
        "INSERT INTO t VALUES (1000, 'a', REPEAT('d', 500))",
    )
    for server, binlog, types in ((full_mysql_server, partial, [30, 39]), (full_mariadb_server, packed, [166, 23])):
        found = {}
        for message in binlog.messages(ALL):
            header = json.loads(dict(message.headers)["mysql_binlog_headers"])
            _, _, end = _event_of(server, binlog, message.position)
            assert (header["log_pos"], header["event_size"]) == (end, end - message.position)
            found[message.position] = header["event_type"]
        assert list(dict.fromkeys(found.values())) == types


def test_the_plain_rendering_gives_the_kernels_headers(full_mysql_server: MysqlServer, unique_name: str) -> None:
    binlog = binlog_of(
        full_mysql_server, unique_name, "CREATE TABLE t (k INT PRIMARY KEY, n INT)", "INSERT INTO t VALUES (1, 2)"
    )
    (message,) = binlog.messages(ALL)
    (size, end) = (
        json.loads(dict(message.headers)["mysql_binlog_headers"])[name] for name in ("event_size", "log_pos")
    )
    server_id = full_mysql_server.execute("SELECT @@server_id")[0][0]
    change = RowChange(
        "c", None, {"k": 1, "n": 2}, binlog.name, message.position, 0, message.gtid.decode(), server_id,
        message.seconds, event=EventHeader(30, size, end),
    )  # fmt: skip
    (rendered,) = render.messages(ALL, _schema(unique_name), change)
    assert rendered.headers == message.headers


class _FirstRows:
    """Leaves out the first two messages of each block."""

    reason = "first"

    def concerns(self, _origin: str, _first: int, _last: int) -> bool:
        return True

    def rest(self, block: MessageBlock) -> MessageBlock | None:
        seen = list(block.messages())[:2]
        return without(block, lambda message: message in seen)


def test_librdkafka_reads_headers_of_complete_and_filtered_batches(
    full_mysql_server: MysqlServer, kafka_broker: KafkaBroker, unique_name: str
) -> None:
    pipeline = Pipeline(KafkaConnection(kafka_broker.bootstrap), unique_name, partitions=2)
    binlog = binlog_of(full_mysql_server, unique_name, *CHANGES)
    messages = binlog.messages(ALL)
    (block,) = (replace(block, topic=pipeline.topic) for block in binlog.blocks(ALL))
    cut = list(FilterChain([_FirstRows()], encoder()).rest(encode_batches([replace(block, partition=1)])))
    with pipeline.publisher() as publisher:
        publisher.publish([*encode_batches([block]), *cut])
    for partition, expected in ((0, messages), (1, messages[2:])):
        assert _headers(pipeline, partition, len(expected)) == [
            [("changefeed.id", each.event_id), ("changefeed.gtid", each.gtid), *each.headers] for each in expected
        ]


def _headers(pipeline: Pipeline, partition: int, count: int) -> list[Any]:
    consumer = Consumer(
        {"bootstrap.servers": pipeline.connection.bootstrap, "group.id": "none", "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(pipeline.topic, partition, 0)])
    read = consumer.consume(count, timeout=120)
    consumer.close()
    return [record.headers() for record in read]
