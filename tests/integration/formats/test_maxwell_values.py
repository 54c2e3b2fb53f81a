"""Values by Maxwell's rules are what the server says of them in a session in UTC."""

from __future__ import annotations

import json
from decimal import Decimal

from integration.binlog_of import binlog_of

from changefeed.formats.format import FormatSettings
from changefeed.formats.registry import format_of
from devstack.mysql import MysqlServer

COLUMNS = {
    "plain": ("DATETIME", "'9999-12-31 23:59:59'", "'0000-00-00'", "'2026-00-31 01:02:03'"),
    "fraction": ("DATETIME(3)", "'2026-01-31 12:00:00.05'", "'0000-00-00'", "'1000-01-01'"),
    "micros": ("TIMESTAMP(6) NULL", "'2038-01-19 03:14:07.999999'", "'1970-01-01 00:00:01'", "0"),
    "stamp": ("TIMESTAMP NULL", "'2026-06-30 23:59:59'", "0", "'1970-01-01 00:00:01'"),
    "day": ("DATE", "'2026-01-31'", "'0000-00-00'", "'1999-12-00'"),
    "clock": ("TIME(2)", "'-838:59:58.99'", "'00:00:00'", "'123:04:05.6'"),
    "labels": ("SET('a', 'b\"c', 'ü')", "'a,ü'", "''", "'b\"c'"),
    "label": ("ENUM('x', 'y')", "'y'", "'x'", "'no'"),
    "exact": ("DECIMAL(65, 30)", "'12345678901234567890123456789012345.123456789012345678901234567890'", "-0.5", "0"),
    "big": ("BIGINT UNSIGNED", "18446744073709551615", "0", "9223372036854775808"),
    "bits": ("BIT(64)", "b'1'", "18446744073709551615", "b'0'"),
    "since": ("YEAR", "2155", "0", "1901"),
}


def test_values_are_what_select_says_in_utc(full_mysql_server: MysqlServer, database: str) -> None:
    rows = [
        ", ".join(values) for values in zip(*(values for _, *values in COLUMNS.values()), strict=True)
    ]  # fmt: skip
    binlog = binlog_of(
        full_mysql_server,
        database,
        "SET sql_mode = '', time_zone = '+00:00'",
        f"CREATE TABLE t (id INT PRIMARY KEY, {', '.join(f'{name} {kind}' for name, (kind, *_) in COLUMNS.items())})",
        *(f"INSERT INTO t VALUES ({number}, {row})" for number, row in enumerate(rows)),
    )
    values = [
        json.loads(message.value or b"", parse_float=Decimal)["data"]
        for message in binlog.messages(format_of("maxwell", FormatSettings("shop", 0)))
    ]
    with full_mysql_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        selected = ", ".join(
            f"CAST({name} + 0 AS CHAR)" if name == "bits" else f"CAST({name} AS CHAR)" for name in COLUMNS
        )
        cursor.execute(f"SELECT {selected} FROM {database}.t ORDER BY id")
        server = cursor.fetchall()
    assert len(values) == 3
    for value, row in zip(values, server, strict=True):
        for name, text in zip(COLUMNS, row, strict=True):
            found = value[name]
            if isinstance(found, list):
                found = ",".join(found)
            if isinstance(found, Decimal):
                assert (found, str(found).rstrip("0")) == (Decimal(text), str(Decimal(text)).rstrip("0"))
            else:
                assert (name, f"{found:04}" if name == "since" else str(found)) == (name, text)
