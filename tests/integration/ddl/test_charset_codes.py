"""Every code of every charset: the tables, both servers and the kernel agree on its character."""

from __future__ import annotations

import json

import pytest
from integration.binlog_of import binlog_of
from integration.random_tables import charsets_of

from changefeed.formats.debezium import DebeziumFormat
from changefeed.model.charset_codes import characters, decode_text, is_multi_byte
from devstack.mariadb import MariadbServer
from devstack.sql_server import SqlServer

UNICODE = {"ascii", "ucs2", "utf16", "utf16le", "utf32", "utf8mb3", "utf8mb4"}
"""Charsets that have no table of their own."""

BYTES = "WITH RECURSIVE b AS (SELECT 0 AS n UNION ALL SELECT n + 1 FROM b WHERE n < 255)"


def charsets_with_tables(server: SqlServer) -> list[str]:
    return [charset for charset in charsets_of(isinstance(server, MariadbServer)) if charset not in UNICODE]


def codes(charset: str) -> list[tuple[str, str]]:
    """SQL for the bytes of all codes of a charset, and where its parts come from."""
    listed = [("CHAR(x.n)", "b x")]
    if is_multi_byte(charset):
        listed.append(("CHAR(x.n, y.n)", "b x, b y WHERE x.n >= 128"))
    if charset in ("ujis", "eucjpms"):
        listed.append(("CHAR(143, x.n, y.n)", "b x, b y WHERE x.n >= 160 AND y.n >= 160"))
    if charset == "gb18030":
        fours = "b w, b x, b y, b z WHERE x.n BETWEEN 48 AND 57 AND y.n BETWEEN 129 AND 254 AND z.n BETWEEN 48 AND 57"
        listed.append(("CHAR(w.n, x.n, y.n, z.n)", f"{fours} AND w.n IN (129, 130, 131, 132, 144)"))
    return listed


@pytest.mark.parametrize("kind", ["full_mysql_server", "full_mariadb_server"])
def test_every_code_of_every_charset_equals_the_servers_conversion(kind: str, request: pytest.FixtureRequest) -> None:
    server: SqlServer = request.getfixturevalue(kind)
    wrong = []
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        for charset in charsets_with_tables(server):
            known = characters(charset)
            for sequence, source in codes(charset):
                text = f"CONVERT({sequence} USING {charset})"
                listed = f"{sequence}, LENGTH({text}), CONVERT({text} USING utf8mb4)"
                cursor.execute(f"{BYTES} SELECT {listed} FROM {source}")
                for code, kept, there in cursor.fetchall():
                    if len(code) == 1 and code not in known:
                        continue  # the begin of others
                    # MySQL cuts a text where it is not well formed; MariaDB reads on at the next byte, as we do.
                    own, cut = decode_text(code[:kept], charset), code[kept:]
                    known_is_cut = any(cut[:size] in known for size in range(1, len(cut) + 1))
                    if own.replace("\ufffd", "?") != there.replace("\ufffd", "?") or known_is_cut:
                        wrong.append(f"{charset} {code.hex()}: {there!r}, and not {own!r} and {cut.hex()!r}")
    assert not wrong, f"{len(wrong)} codes: " + "; ".join(wrong[:20])


@pytest.mark.parametrize("kind", ["full_mysql_server", "full_mariadb_server"])
def test_text_of_all_characters_of_a_charset_equals_the_servers_conversion(
    kind: str, request: pytest.FixtureRequest, unique_name: str
) -> None:
    server: SqlServer = request.getfixturevalue(kind)
    charsets = charsets_with_tables(server)
    columns = ", ".join(f"{charset} LONGTEXT CHARACTER SET {charset}" for charset in charsets)
    texts = [b"".join(sequence + b"|" for sequence in characters(charset)) for charset in charsets]
    if "gb18030" in charsets:  # the last of them is well formed, and no character
        texts[charsets.index("gb18030")] += "𐀀𠮷😀\U0010ffff".encode("gb18030") + bytes.fromhex("fe39fe39")
    values = ", ".join(
        f"CONVERT(X'{text.hex()}' USING {charset})" for charset, text in zip(charsets, texts, strict=True)
    )
    binlog = binlog_of(
        server,
        unique_name,
        f"CREATE TABLE t (id INT PRIMARY KEY, {columns})",
        f"INSERT INTO t VALUES (1, {values})",
    )
    converted = ", ".join(f"CONVERT({charset} USING utf8mb4)" for charset in charsets)
    there = dict(zip(charsets, server.execute(f"SELECT {converted} FROM {unique_name}.t")[0], strict=True))
    (message,) = binlog.messages(DebeziumFormat("t", 0))
    row = json.loads(message.value or b"")["after"]
    for charset in charsets:
        assert len(there[charset]) > 200
        assert row[charset].replace("\ufffd", "?") == there[charset].replace("\ufffd", "?"), charset
