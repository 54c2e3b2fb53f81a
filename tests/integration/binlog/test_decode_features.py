"""The context of rows in the kernel's messages: transactions of all kinds, images, metadata."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from changefeed.binlog.decoder import KernelDecoder
from changefeed.errors import BinlogFormatError, SchemaError
from changefeed.formats.debezium import DebeziumFormat
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.route import Route
from changefeed.model.slice_report import SliceReport
from changefeed.model.table_schema import Column, TableSchema
from changefeed.model.window import Slice
from changefeed.records.block import Message, MessageBlock, Step
from changefeed.records.partition import partition_of
from changefeed.source.mysql.catalog import table_schema
from changefeed.source.mysql.session import Session
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.sql_server import SqlServer

UUID = "00000000-0000-0000-0000-00000000cafe"


class Decoded:
    """Messages of a file in binlog order, with partitions, and the report."""

    def __init__(self, messages: list[tuple[str, int, Message]], report: SliceReport, name: str) -> None:
        self.messages = sorted(messages, key=lambda item: (item[2].position, item[2].sequence))
        self.report = report
        self.name = name

    @property
    def values(self) -> list[dict[str, Any]]:
        return [json.loads(message.value) for _, _, message in self.messages if message.value is not None]


def none(_database: str, _table: str) -> None:
    return None


def decoded(
    server: SqlServer, database: str, work: Callable[[Any], None], lookup: Any = none, **arguments: Any
) -> Decoded:
    """Do ``work`` in a binlog file of its own, and decode that file."""
    with server.connect(**arguments) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE IF NOT EXISTS {database}")
        cursor.execute(f"USE {database}")
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SHOW MASTER STATUS" if isinstance(server, MariadbServer) else "SHOW BINARY LOG STATUS")
        name = cursor.fetchone()[0]
        work(cursor)
        cursor.execute("FLUSH BINARY LOGS")
    return decode_bytes((server.data / name).read_bytes(), name, database, lookup)


def decode_bytes(data: bytes, name: str, database: str, lookup: Any = none, **options: Any) -> Decoded:
    decoder = KernelDecoder(
        lambda db, table: Route(f"{db}.{table}", 3) if db == database else None,
        lookup,
        DebeziumFormat("test", 0, queries=True),
        UUID,
        **options,
    )
    messages, report = [], None
    for item in decoder.decode([data[FIRST_POSITION:]], Slice(0, name, FIRST_POSITION, len(data))):
        if isinstance(item, MessageBlock):
            messages += [(item.topic, item.partition, message) for message in item.messages()]
        else:
            report = item
    assert report is not None
    assert report.size_bytes == len(data) - FIRST_POSITION
    return Decoded(messages, report, name)


def run(*statements: str) -> Callable[[Any], None]:
    def work(cursor: Any) -> None:
        for statement in statements:
            cursor.execute(statement)

    return work


def test_a_change_of_the_primary_key_is_delete_tombstone_and_create(
    full_mysql_server: MysqlServer, unique_name: str
) -> None:
    found = decoded(
        full_mysql_server,
        unique_name,
        run(
            "CREATE TABLE t (id INT PRIMARY KEY, a INT)",
            "INSERT INTO t VALUES (1, 5)",
            "UPDATE t SET id = 2",
            "DELETE FROM t",
        ),
    )
    steps = [(m.sequence & 3, m.key, m.value and json.loads(m.value)["op"]) for _, _, m in found.messages]
    assert steps == [
        (Step.CHANGE, b'{"id":1}', "c"),
        (Step.CHANGE, b'{"id":1}', "d"),
        (Step.TOMBSTONE, b'{"id":1}', None),
        (Step.CREATE, b'{"id":2}', "c"),
        (Step.CHANGE, b'{"id":2}', "d"),
        (Step.TOMBSTONE, b'{"id":2}', None),
    ]
    position = found.messages[1][2].position
    ids = [m.event_id.decode() for _, _, m in found.messages[1:4]]
    assert ids == [f"{UUID}/{found.name}:{position}/0{step}" for step in ("", "/1", "/2")]
    assert found.report.rows == {f"{unique_name}.t": {"c": 1, "u": 1, "d": 1}}


def test_snapshot_rows_have_op_r_and_the_snapshot_name(full_mysql_server: MysqlServer, unique_name: str) -> None:
    work = run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2)", "DELETE FROM t WHERE id = 1")
    inserted = decoded(full_mysql_server, unique_name, work)
    data = (full_mysql_server.data / inserted.name).read_bytes()
    read = decode_bytes(data, inserted.name, unique_name, snapshot="incremental")
    assert [(value["op"], value["source"]["snapshot"]) for value in inserted.values] == [
        ("c", "false"), ("c", "false"), ("d", "false"),
    ]  # fmt: skip
    assert [(value["op"], value["source"]["snapshot"]) for value in read.values] == [
        ("r", "incremental"), ("r", "incremental"), ("d", "false"),
    ]  # fmt: skip
    assert [m.key for _, _, m in read.messages] == [m.key for _, _, m in inserted.messages]
    assert (read.values[0]["before"], read.values[0]["after"]) == (None, {"id": 1})
    assert read.report.rows == {f"{unique_name}.t": {"r": 2, "d": 1}}


def test_partitions_are_those_of_kafkas_own_partitioner(full_mysql_server: MysqlServer, unique_name: str) -> None:
    values = ", ".join(f"({number}, 'x{number}')" for number in range(300))
    found = decoded(
        full_mysql_server,
        unique_name,
        run(
            "CREATE TABLE t (id INT PRIMARY KEY, a TEXT)",
            "CREATE TABLE n (id INT, a TEXT)",
            f"INSERT INTO t VALUES {values}",
            f"INSERT INTO n VALUES {values}",
        ),
    )
    assert len(found.messages) == 600
    for row, (_, partition, message) in enumerate(found.messages):
        expected = partition_of(message.key, message.event_id, 3, gtid=message.gtid, statement_row=row % 300)
        assert partition == expected
    assert {partition for topic, partition, _ in found.messages if topic.endswith(".n")} == {0, 1, 2}


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB", "FULL"])
def test_after_images_hold_what_did_not_change_too(
    full_mysql_server: MysqlServer, unique_name: str, image: str
) -> None:
    found = decoded(
        full_mysql_server,
        unique_name,
        run(
            f"SET binlog_row_image = {image}",
            "CREATE TABLE t (id INT PRIMARY KEY, a INT, b TEXT)",
            "INSERT INTO t VALUES (1, 5, 'text')",
            "UPDATE t SET a = 6",
            "UPDATE t SET b = NULL",
        ),
    )
    first, second = found.values[1:]
    assert first["after"]["id"] == 1
    assert first["after"]["a"] == 6
    assert second["after"]["id"] == 1
    assert second["after"]["b"] is None
    if image == "FULL":
        assert first["before"] == {"id": 1, "a": 5, "b": "text"}


def test_a_compressed_transaction_numbers_its_rows_together(full_mysql_server: MysqlServer, unique_name: str) -> None:
    values = ", ".join(f"({number}, REPEAT('x', 100))" for number in range(2000))
    found = decoded(
        full_mysql_server,
        unique_name,
        run(
            "CREATE TABLE t (id INT PRIMARY KEY, a TEXT)",
            "SET binlog_transaction_compression = ON",
            "BEGIN",
            f"INSERT INTO t VALUES {values}",
            "UPDATE t SET a = 'y' WHERE id < 10",
            "COMMIT",
        ),
    )
    assert len({m.position for _, _, m in found.messages}) == 1
    assert [m.sequence >> 2 for _, _, m in found.messages] == list(range(2010))
    assert [value["after"]["id"] for value in found.values[:2000]] == list(range(2000))
    assert all(m.gtid for _, _, m in found.messages) == bool(found.report.gtids)


def test_partial_json_updates_yield_the_complete_document(full_mysql_server: MysqlServer, unique_name: str) -> None:
    states: list[Any] = []

    def work(cursor: Any) -> None:
        cursor.execute("SET binlog_row_value_options = PARTIAL_JSON, binlog_row_image = FULL")
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, k JSON, j JSON, x INT)")
        document = json.dumps({"a": [1, {"b c": "long " * 50}, 3.5], 'q"': None, "z": "y" * 300})
        cursor.execute("INSERT INTO t VALUES (1, '[1]', %s, 0)", (document,))
        for change in (
            """JSON_SET(j, '$.a[1]."b c"', 'short')""",
            "JSON_SET(j, '$.a[0]', 77, '$.n', 18446744073709551615)",
            """JSON_REMOVE(j, '$.a[2]', '$."q\\\\""')""",
            "JSON_ARRAY_INSERT(j, '$.a[1]', JSON_OBJECT('d', 1.25))",
            "JSON_REPLACE(j, '$.z', CAST('2026-01-02' AS DATE))",
        ):
            cursor.execute(f"UPDATE t SET x = x + 1, j = {change}")
            cursor.execute("SELECT j FROM t")
            states.append(json.loads(cursor.fetchone()[0]))

    found = decoded(full_mysql_server, unique_name, work)
    assert [json.loads(value["after"]["j"]) for value in found.values if value["op"] == "u"] == states
    assert [json.loads(value["before"]["j"]) for value in found.values if value["op"] == "u"][1:] == states[:-1]


def test_partial_document_without_its_base_is_refused_with_a_remedy(
    full_mysql_server: MysqlServer, unique_name: str
) -> None:
    work = run(
        "CREATE TABLE t (id INT PRIMARY KEY, j JSON)",
        "INSERT INTO t VALUES (1, JSON_OBJECT('a', 1, 'b', REPEAT('x', 200)))",
        "SET binlog_row_value_options = PARTIAL_JSON, binlog_row_image = MINIMAL",
        "UPDATE t SET j = JSON_SET(j, '$.a', 2)",
    )
    with pytest.raises(BinlogFormatError, match=r"binlog\.\d+:\d+, .*binlog_row_image=FULL.*seek the pipeline"):
        decoded(full_mysql_server, unique_name, work)


def test_rows_of_xa_transactions_come_once_when_prepared(full_mysql_server: MysqlServer, unique_name: str) -> None:
    found = decoded(
        full_mysql_server,
        unique_name,
        run(
            "CREATE TABLE t (id INT PRIMARY KEY)",
            "XA START 'one', 'b', 7",
            "INSERT INTO t VALUES (1)",
            "XA END 'one', 'b', 7",
            "XA PREPARE 'one', 'b', 7",
            "XA COMMIT 'one', 'b', 7",
            "XA START 'two'",
            "INSERT INTO t VALUES (2)",
            "XA END 'two'",
            "XA COMMIT 'two' ONE PHASE",
        ),
    )
    assert [value["after"]["id"] for value in found.values] == [1, 2]
    assert [s.sql.split()[:2] for s in found.report.statements if s.sql.startswith("XA")] == [["XA", "COMMIT"]]


def test_tagged_gtids_are_carried_and_counted(full_mysql_server: MysqlServer, unique_name: str) -> None:
    if full_mysql_server.execute("SELECT @@gtid_mode")[0][0] != "ON":
        pytest.skip("the server runs without GTIDs")
    uuid = full_mysql_server.execute("SELECT @@server_uuid")[0][0]
    found = decoded(
        full_mysql_server,
        unique_name,
        run(
            "CREATE TABLE t (id INT PRIMARY KEY)",
            "SET gtid_next = 'AUTOMATIC:batch_7'",
            "INSERT INTO t VALUES (1)",
            "INSERT INTO t VALUES (2)",
            "SET gtid_next = 'AUTOMATIC'",
        ),
    )
    gtids = [m.gtid.decode() for _, _, m in found.messages]
    assert gtids == [f"{uuid}:batch_7:1", f"{uuid}:batch_7:2"]
    assert "batch_7:1-2" in found.report.gtids


def test_without_full_metadata_names_come_from_the_schema(mysql_server: MysqlServer, unique_name: str) -> None:
    work = run(
        "CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY, e ENUM('a', 'ß'), s TEXT CHARACTER SET latin1)",
        "INSERT INTO t VALUES (18446744073709551615, 'ß', 'grün')",
    )
    columns = (
        Column("id", "bigint", True),
        Column("e", "enum", collation="utf8mb4_0900_ai_ci", labels=("a", "ß")),
        Column("s", "text", collation="latin1_swedish_ci"),
    )
    schema = TableSchema(unique_name, "t", columns, (0,))
    found = decoded(mysql_server, unique_name, work, lambda _database, _table: schema)
    assert found.values[0]["after"] == {"id": 2**64 - 1, "e": "ß", "s": "grün"}
    assert found.messages[0][2].key == b'{"id":18446744073709551615}'
    data = (mysql_server.data / found.name).read_bytes()
    unnamed = decode_bytes(data, found.name, unique_name)
    assert unnamed.values[0]["after"] == {"@1": 2**64 - 1, "@2": 2, "@3": "grün"}
    assert unnamed.messages[0][2].key is None
    other = TableSchema(unique_name, "t", columns[:2], (0,))
    with pytest.raises(SchemaError, match=r"expected 2 columns, found 3.*\(bigint.* text\[2\]\); known is \(id bigint"):
        decode_bytes(data, found.name, unique_name, lambda _database, _table: other)


def test_without_any_metadata_bytes_are_not_lost(mariadb_server: MariadbServer, unique_name: str) -> None:
    work = run(
        "CREATE TABLE t (id INT PRIMARY KEY, b BLOB, v VARBINARY(300), s TEXT CHARSET utf8mb4, c BINARY(4))",
        "INSERT INTO t VALUES (1, x'89504e470d0a1a0a', x'ff00', 'grün', x'c3280000'), (2, 'ab', '', '東京', 'cd')",
    )
    found = decoded(mariadb_server, unique_name, work)
    data = (mariadb_server.data / found.name).read_bytes()
    first, second = (value["after"] for value in decode_bytes(data, found.name, unique_name).values)
    assert first == {"@1": 1, "@2": "iVBORw0KGgo=", "@3": "/wA=", "@4": "grün", "@5": "wyg="}
    assert second == {"@1": 2, "@2": "ab", "@3": "", "@4": "東京", "@5": "cd"}


def test_mariadb_minimal_metadata_takes_names_from_the_schema(mariadb_server: MariadbServer, unique_name: str) -> None:
    server = mariadb_server
    work = run(
        "CREATE TABLE t (id BIGINT UNSIGNED PRIMARY KEY, n TINYINT, s TEXT CHARSET latin1, u VARCHAR(9) CHARSET ucs2, "
        "b BLOB, e ENUM('a', 'ß') CHARSET latin1, w TIME(3))",
        "INSERT INTO t VALUES (18446744073709551615, -1, 'grün', '東京', x'ff00', 'ß', '-01:02:03.25')",
        "UPDATE t SET n = 127",
    )
    (before,) = server.execute("SELECT @@GLOBAL.binlog_row_metadata")[0]
    server.execute("SET GLOBAL binlog_row_metadata = 'MINIMAL'")
    try:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {unique_name}")

        def lookup(database: str, table: str) -> TableSchema | None:
            with Session(MysqlConnection.from_uri(server.url)) as session:
                return table_schema(session, database, table)

        found = decoded(server, unique_name, work, lookup)
    finally:
        server.execute(f"SET GLOBAL binlog_row_metadata = '{before}'")
    row = {"id": 2**64 - 1, "n": -1, "s": "grün", "u": "東京", "b": "/wA=", "e": "ß", "w": "-01:02:03.250"}
    assert [value["after"] for value in found.values] == [row, {**row, "n": 127}]
    assert found.messages[0][2].key == b'{"id":18446744073709551615}'
    data = (server.data / found.name).read_bytes()
    unnamed = decode_bytes(data, found.name, unique_name).values[0]["after"]
    assert unnamed == {**{f"@{number}": value for number, value in enumerate(row.values(), 1)}, "@6": 2}


def test_statements_and_their_texts_are_reported(full_mysql_server: MysqlServer, unique_name: str) -> None:
    found = decoded(
        full_mysql_server,
        unique_name,
        run(
            "CREATE TABLE t (id INT PRIMARY KEY)",
            "SET binlog_rows_query_log_events = ON",
            'INSERT INTO t VALUES (1) /* grüße "q" */',
            "SET binlog_rows_query_log_events = OFF",
            "INSERT INTO t VALUES (2)",
            "TRUNCATE t",
            "SET binlog_format = STATEMENT",
            "INSERT INTO t VALUES (3)",
        ),
    )
    queries = [value["source"]["query"] for value in found.values]
    assert queries == ['INSERT INTO t VALUES (1) /* grüße "q" */', None]
    statements = [statement.sql for statement in found.report.statements]
    assert statements == ["CREATE TABLE t (id INT PRIMARY KEY)", "TRUNCATE t", "INSERT INTO t VALUES (3)"]
    assert found.report.statements[0].database == unique_name


def test_every_broken_byte_is_refused_by_the_checksum(full_mysql_server: MysqlServer, unique_name: str) -> None:
    found = decoded(
        full_mysql_server, unique_name, run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    )
    data = (full_mysql_server.data / found.name).read_bytes()
    for at in range(200, len(data), 7):
        broken = bytearray(data)
        broken[at] ^= 0x10
        with pytest.raises(BinlogFormatError, match=f"{found.name}:"):
            decode_bytes(bytes(broken), found.name, unique_name)


def test_mariadb_compressed_events_and_gtids(full_mariadb_server: MariadbServer, unique_name: str) -> None:
    found = decoded(
        full_mariadb_server,
        unique_name,
        run(
            "CREATE TABLE t (id INT PRIMARY KEY, a TEXT, c VARCHAR(1000) COMPRESSED)",
            "SET GLOBAL log_bin_compress = ON, log_bin_compress_min_len = 10",
            "INSERT INTO t SELECT seq, REPEAT('abc', 200), REPEAT('d', 500) FROM seq_1_to_300",
            "UPDATE t SET a = 'x' WHERE id <= 100",
            "DELETE FROM t WHERE id > 200",
            f"ALTER TABLE t COMMENT '{'long ' * 100}'",
            "SET GLOBAL log_bin_compress = OFF",
        ),
    )
    assert found.report.rows == {f"{unique_name}.t": {"c": 300, "u": 100, "d": 100}}
    assert [value["after"] for value in found.values[:300]] == [
        {"id": number, "a": "abc" * 200, "c": "d" * 500} for number in range(1, 301)
    ]
    assert [statement.sql[:11] for statement in found.report.statements][-1] == "ALTER TABLE"
    server_id = full_mariadb_server.execute("SELECT @@server_id")[0][0]
    assert found.report.gtids.startswith(f"0-{server_id}-")
    assert all(m.gtid.startswith(b"0-") for _, _, m in found.messages)


def test_rows_of_many_tables_are_counted_in_each_slice_of_a_decoder(
    full_mysql_server: MysqlServer, database: str
) -> None:
    """The next slice knows a table of an earlier slice, and needs room for its counts."""
    tables = [f"t{number}" for number in range(80)]

    def work(cursor: Any) -> None:
        for table in tables:
            cursor.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
            cursor.execute(f"INSERT INTO {table} VALUES (1), (2)")

    first = decoded(full_mysql_server, database, work)
    data = (full_mysql_server.data / first.name).read_bytes()
    decoder = KernelDecoder(lambda db, table: Route(f"{db}.{table}", 3), none, DebeziumFormat("test", 0), UUID)
    for number in range(2):
        slice = Slice(number, first.name, FIRST_POSITION, len(data))
        (report,) = (one for one in decoder.decode([data[FIRST_POSITION:]], slice) if isinstance(one, SliceReport))
        assert report.rows == {f"{database}.{table}": {"c": 2} for table in tables}
