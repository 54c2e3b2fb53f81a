"""Ranges of a table's primary key hold each of its rows once, whatever its type, by the server's own order."""

from __future__ import annotations

import pytest

from changefeed.model.connection import MysqlConnection
from changefeed.model.key_range import Boundary, KeyRange
from changefeed.source.mysql.catalog import table_schema
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.table_key import TableKey
from devstack.mariadb import MariadbServer
from devstack.sql_server import SqlServer

KEYS = {
    "negative": ("a INT", ["-2147483648", "-5", "-4", "0", "1", "7", "2147483647"]),
    "unsigned": ("a BIGINT UNSIGNED", ["0", "9223372036854775807", "9223372036854775808", "18446744073709551615"]),
    "zerofill": ("a INT(5) ZEROFILL", ["1", "9", "10", "100", "12345"]),
    "decimal": ("a DECIMAL(30, 10)", ["-1.5", "-1.4999999999", "0", "12345678901234567890.0000000001"]),
    "double": ("a DOUBLE", ["-1e300", "-0.1", "0", "0.1", "0.30000000000000004", "0.3", "1e-300", "1e22"]),
    "float": ("a FLOAT", ["-0.1", "0.1", "0.2", "16777216", "3.4e38", "1e-30"]),
    "case": (
        "a VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        ["''", "'a'", "'B'", "'c'", "'Ä%s'", "'z'", "'O''Brien'", "'back\\\\slash'", "'%%'", "'日本'"],
    ),
    "blanks": ("a VARCHAR(20) CHARACTER SET utf8mb4 COLLATE {no_pad}", ["'a'", "'a '", "'A'", "'a\\t'", "'b  '", "''"]),
    "char": ("a CHAR(5) CHARACTER SET latin1 COLLATE latin1_swedish_ci", ["'a'", "'ä'", "'b '", "'\\t'", "''"]),
    "ucs2": ("a CHAR(5) CHARACTER SET ucs2", ["'a'", "'b'", "'日本'", "''"]),
    "gbk": ("a VARCHAR(9) CHARACTER SET gbk", ["'a'", "'中文'", "'国'", "''"]),
    "bytes": ("a BINARY(4)", ["x'00'", "x'0001'", "x'61'", "x'FF'", "'%s'"]),
    "varbytes": ("a VARBINARY(9)", ["x''", "x'00'", "x'0000'", "x'27'", "x'5c'", "x'25'", "x'FF'"]),
    "enum": ("a ENUM('z', 'a', 'm')", ["'z'", "'a'", "'m'"]),
    "set": ("a SET('z', 'a', 'm')", ["''", "'z'", "'z,a'", "'m'", "'z,a,m'"]),
    "bit": ("a BIT(64)", ["0", "1", "18446744073709551615"]),
    "date": ("a DATE", ["'0000-00-00'", "'1000-01-01'", "'2026-02-28'", "'2026-02-00'", "'9999-12-31'"]),
    "datetime": ("a DATETIME(6)", ["'2026-01-01'", "'2026-01-01 00:00:00.000001'", "'0000-00-00'", "'9999-12-31'"]),
    "timestamp": (
        "a TIMESTAMP(3)",
        ["'1970-01-01 00:00:01'", "'2026-10-25 00:30:00.123'", "'2026-10-25 01:30:00.123'"],
    ),
    "time": ("a TIME(2)", ["'-838:59:59'", "'-00:00:00.01'", "'0'", "'838:59:59'"]),
    "year": ("a YEAR", ["0", "1901", "2155"]),
}
COMPOSITE = "`a``%s` VARCHAR(9) COLLATE utf8mb4_unicode_ci, b DECIMAL(5, 2), c BINARY(2), PRIMARY KEY (b, `a``%s`, c)"


LABELS = [", ".join(f"'{number}'" for number in range(count)) for count in (53, 64)]
KEYS["long set"] = (f"a SET({LABELS[0]})", ["0", "1", f"{2**53 - 3}", f"{2**53 - 2}", f"{2**53 - 1}"])


@pytest.fixture(params=["mysql_server", "mariadb_server"])
def server(request: pytest.FixtureRequest) -> SqlServer:
    found: SqlServer = request.getfixturevalue(request.param)
    return found


def ranges(key: TableKey, session: Session, rows: int) -> list[KeyRange]:
    after: Boundary | None = None
    found = []
    while (upto := key.next_boundary(session, after, rows)) is not None:
        found.append(KeyRange(after, upto))
        after = upto
    return [*found, KeyRange(after)]


def check(server: SqlServer, database: str, table: str, rows: int) -> None:
    """Each row is in one range, in the order of the key, and no range but the last has fewer than it was to have."""
    with Session(MysqlConnection.from_uri(server.root_url)) as session:
        schema = table_schema(session, database, table)
        assert schema is not None
        key = TableKey.of(schema)
        assert key is not None
        assert key.is_walked
        names = ", ".join(f"HEX(`{schema.columns[n].name.replace('`', '``')}`)" for n in schema.primary_key)
        order = ", ".join(f"`{schema.columns[n].name.replace('`', '``')}`" for n in schema.primary_key)
        expected = session.rows(f"SELECT {names} FROM {database}.{table} ORDER BY {order}")
        cut = [
            session.rows(f"SELECT {names} FROM {key.source} WHERE {key.condition(each)} ORDER BY {order}")
            for each in ranges(key, session, rows)
        ]
        assert [row for part in cut for row in part] == expected
        assert all(len(part) == rows for part in cut[:-1])
        assert len(cut[-1]) < rows


@pytest.mark.parametrize("kind", KEYS)
def test_ranges_of_a_key_hold_each_row_once(server: SqlServer, unique_name: str, kind: str) -> None:
    column, values = KEYS[kind]
    no_pad = "utf8mb4_nopad_bin" if isinstance(server, MariadbServer) else "utf8mb4_0900_as_cs"
    inserted = ", ".join(f"({value})" for value in values)
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
        cursor.execute(f"CREATE DATABASE {unique_name}")
        cursor.execute(f"CREATE TABLE {unique_name}.t ({column.format(no_pad=no_pad)} PRIMARY KEY, v INT)")
        cursor.execute(f"INSERT INTO {unique_name}.t (a) VALUES {inserted}")
    for rows in (1, 2):
        check(server, unique_name, "t", rows)


def test_set_that_servers_compare_as_double_is_one_range(server: SqlServer, unique_name: str) -> None:
    server.execute(
        f"CREATE DATABASE {unique_name}", f"CREATE TABLE {unique_name}.t (a SET({LABELS[1]}) PRIMARY KEY, v INT)"
    )
    with Session(MysqlConnection.from_uri(server.root_url)) as session:
        schema = table_schema(session, unique_name, "t")
        assert schema is not None
        key = TableKey.of(schema)
        assert key is not None
        assert not key.is_walked


def test_ranges_of_a_key_of_several_columns_follow_its_own_order(server: SqlServer, unique_name: str) -> None:
    values = [
        f"({text}, {number}, {code})"
        for text in ("'a'", "'B'", "'é '", "'it''s'")
        for number in ("-1.5", "0", "99.99")
        for code in ("'x'", "x'0000'", "x'ff'")
    ]
    server.execute(
        f"CREATE DATABASE {unique_name} CHARACTER SET utf8mb4",
        f"CREATE TABLE {unique_name}.t ({COMPOSITE})",
        f"INSERT INTO {unique_name}.t VALUES {', '.join(values)}",
    )
    for rows in (1, 5, 40):
        check(server, unique_name, "t", rows)


def test_a_range_of_several_columns_is_read_along_the_index(server: SqlServer, unique_name: str) -> None:
    server.execute(
        f"CREATE DATABASE {unique_name}",
        f"CREATE TABLE {unique_name}.t (a INT, b VARCHAR(9), c INT, PRIMARY KEY (a, b))",
        f"INSERT INTO {unique_name}.t WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900) "
        "SELECT i % 2, CONCAT('k', i), i FROM n"
        if not isinstance(server, MariadbServer)
        else f"INSERT INTO {unique_name}.t SELECT seq % 2, CONCAT('k', seq), seq FROM {unique_name}.seq_1_to_900",
        f"ANALYZE TABLE {unique_name}.t",
    )
    with Session(MysqlConnection.from_uri(server.root_url)) as session:
        schema = table_schema(session, unique_name, "t")
        assert schema is not None
        key = TableKey.of(schema)
        assert key is not None
        cut = ranges(key, session, 100)
        assert len(cut) == 10
        for each in cut[:-1]:
            session.rows("FLUSH STATUS")
            assert len(session.rows(f"SELECT * FROM {key.source} WHERE {key.condition(each)}")) == 100
            read = {name: int(count) for name, count in session.rows("SHOW SESSION STATUS LIKE 'Handler_read%'")}
            assert sum(read.values()) <= 110, (each, read)


def test_table_without_key_or_with_prefix_key_is_one_chunk(server: SqlServer, unique_name: str) -> None:
    server.execute(
        f"CREATE DATABASE {unique_name}",
        f"CREATE TABLE {unique_name}.bare (a INT UNIQUE NOT NULL)",
        f"CREATE TABLE {unique_name}.prefix (a TEXT, PRIMARY KEY (a(10)))",
    )
    with Session(MysqlConnection.from_uri(server.root_url)) as session:
        bare, prefix = (table_schema(session, unique_name, name) for name in ("bare", "prefix"))
        assert bare is not None
        assert prefix is not None
        assert TableKey.of(bare) is None
        key = TableKey.of(prefix)
        assert key is not None
        assert not key.is_walked
