"""`spark.session.read.format("mysql_binlog")`: a binlog as a DataFrame, with slices of any size."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.errors import PySparkException

from changefeed.errors import BinlogGoneError, SettingsError
from changefeed.spark.data_source import SCHEMA, BinlogDataSource, BinlogDataSourceReader
from changefeed.spark.target import SparkTarget
from devstack.mariadb import MariadbServer
from devstack.sql_server import SqlServer

BIG = 400


def coordinates(server: SqlServer) -> str:
    status = "SHOW MASTER STATUS" if isinstance(server, MariadbServer) else "SHOW BINARY LOG STATUS"
    return "{}:{}".format(*server.execute(status)[0][:2])


@pytest.fixture(params=["mysql_server", "mariadb_server"])
def server(request: pytest.FixtureRequest) -> SqlServer:
    server: SqlServer = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def options(server: SqlServer, unique_name: str) -> dict[str, str]:
    """The options that read all changes of a database, over two binlog files."""
    server.execute("FLUSH BINARY LOGS")
    start = coordinates(server)
    with server.connect() as connection, connection.cursor() as cursor:
        for sql in (
            f"CREATE DATABASE {unique_name}",
            f"USE {unique_name}",
            "CREATE TABLE t (id INT PRIMARY KEY, note VARCHAR(20), big BIGINT UNSIGNED)",
            "CREATE TABLE keyless (n INT)",
            "CREATE TABLE other (id INT PRIMARY KEY)",
            "INSERT INTO t VALUES (1, 'ä', 18446744073709551615), (2, NULL, 0)",
            "INSERT INTO other VALUES (1)",
            *(f"INSERT INTO t VALUES ({number}, REPEAT('x', 20), {number})" for number in range(10, 10 + BIG)),
            "FLUSH BINARY LOGS",
            "INSERT INTO keyless VALUES (5)",
            "UPDATE t SET note = 'b' WHERE id = 1",
            "UPDATE t SET id = 3 WHERE id = 2",
            "DELETE FROM t WHERE id < 200",
        ):
            cursor.execute(sql)
    return {"uri": server.url, "start": start, "end": coordinates(server), "tables": f"{unique_name}.*"}


def read(spark: SparkTarget, **options: str) -> list[Any]:
    spark.session.dataSource.register(BinlogDataSource)
    rows = spark.session.read.format("mysql_binlog").options(**options).load().collect()
    return sorted(rows, key=lambda row: (row.file, row.position, row.row, row.op == "c"))


def test_the_rows_make_the_tables_that_select_gives(
    spark: SparkTarget, server: SqlServer, options: dict[str, str], unique_name: str
) -> None:
    rows = read(spark, **options)
    assert {row.database for row in rows} == {unique_name}
    tables: dict[str, dict[Any, Any]] = {"t": {}, "other": {}}
    for row in (row for row in rows if row.table in tables):
        table = tables[row.table]
        if row.op in "ud":
            assert table.pop(json.loads(row.key)["id"] if row.op == "d" else json.loads(row.before)["id"]) == row.before
        if row.op in "cu":
            table[json.loads(row.key)["id"]] = row.after
    for name, table in tables.items():
        selected = server.execute(f"SELECT * FROM {unique_name}.{name} ORDER BY 1")
        assert [tuple(json.loads(table[key]).values()) for key in sorted(table)] == selected
    (keyless,) = (row for row in rows if row.table == "keyless")
    assert (keyless.op, keyless.key, keyless.before, keyless.after) == ("c", None, None, '{"n":5}')


def test_event_columns_of_a_row_are_as_the_server_shows_them(
    spark: SparkTarget, server: SqlServer, options: dict[str, str]
) -> None:
    rows = read(spark, **options)
    assert {row.server_id for row in rows} == {server.execute("SELECT @@server_id")[0][0]}
    for row in (rows[0], rows[-1]):
        ((_, at, kind, *_),) = server.execute(f"SHOW BINLOG EVENTS IN '{row.file}' FROM {row.position} LIMIT 1")
        assert at == row.position
        assert kind.startswith("Write_rows" if row.op == "c" else "Delete_rows")
    assert len({row.file for row in rows}) == 2
    has_gtids = isinstance(server, MariadbServer)
    assert all(bool(row.gtid) == has_gtids and row.ts.year >= 2024 for row in rows)
    moved = [(row.op, row.key) for row in rows if row.key in ('{"id":2}', '{"id":3}')]
    assert moved == [("c", '{"id":2}'), ("d", '{"id":2}'), ("c", '{"id":3}'), ("d", '{"id":3}')], "its key changed"


def test_slices_of_any_size_give_the_same_rows(spark: SparkTarget, options: dict[str, str]) -> None:
    uncut, cut = ({**options, "slice_bytes": size} for size in ("1000000000", "8000"))
    assert len(BinlogDataSourceReader(uncut).partitions()) == 2
    assert len(BinlogDataSourceReader(cut).partitions()) > 4
    assert read(spark, **uncut) == read(spark, **cut)


def test_tables_are_chosen_by_patterns(spark: SparkTarget, options: dict[str, str], unique_name: str) -> None:
    rows = read(spark, **options, exclude=f"{unique_name}.t,{unique_name}.key*")
    assert [(row.table, row.op) for row in rows] == [("other", "c")]
    none = read(spark, **{**options, "end": options["start"]})
    assert none == [], "from the start to the start there is nothing"


def test_unreadable_options_are_refused_before_a_task_begins(spark: SparkTarget, options: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=r"unknown option 'tabels' of mysql_binlog; expected one of .*tables"):
        BinlogDataSourceReader({**options, "tabels": "a.b"})
    with pytest.raises(BinlogGoneError, match="000000"):
        BinlogDataSourceReader({**options, "start": "binlog.000000:4"}).partitions()
    with pytest.raises(PySparkException, match="unknown option 'tabels'"):
        read(spark, **options, tabels="a.b")
    assert BinlogDataSource({}).schema() == SCHEMA
