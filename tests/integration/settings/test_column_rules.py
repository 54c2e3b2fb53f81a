"""Excluded and masked columns, and notations of values, compared with the server's own functions."""

from __future__ import annotations

import base64
import hmac
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from changefeed.binlog.decoder import KernelDecoder
from changefeed.binlog.programs.explain import explain
from changefeed.errors import SettingsError
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.route import Route
from changefeed.model.window import Slice
from changefeed.operations.finding import Level
from changefeed.operations.source_checks import SourceContext, check_source
from changefeed.pipeline.connections import PipelineConnections
from changefeed.records.block import Message, MessageBlock
from changefeed.settings.file import read_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import compile_routes
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer

HEAD = """\
name: shop
source: {connection: s}
kafka: {connection: k}
format: {name: debezium, decimal.handling.mode: string, include.query: true}
"""
MASKS = """\
columns:
  exclude: ["*.people.SECRET", "*.people.token_*"]
  mask:
    "*.people.email": {sha256: {connection: pepper}}
    '/.*\\.people\\.(latin|amount)/': {sha256: {connection: pepper}}
    "*.people.number": {hmac_sha256: {environment: MASK_KEY}}
    "*.people.note": {characters: 5}
    "*.people.kind": {characters: 1}
    "*.people.phone": {text: '+** "hidden"'}
    "*.people.born": {text: null}
"""
TABLE = """
CREATE TABLE people (
  id INT PRIMARY KEY, email TEXT CHARACTER SET utf8mb4, latin VARCHAR(100) CHARACTER SET latin1, amount DECIMAL(20, 4),
  number BIGINT, note TEXT CHARACTER SET utf8mb4, kind ENUM('new', 'öld'), phone VARCHAR(40), born DATE,
  secret TEXT, token_a VARBINARY(40), shown TEXT CHARACTER SET utf8mb4
)
"""
HIDDEN = "s3cr3t"
KEY = "a key of HMAC's, longer than the block of 64 bytes that it is made to fit into"
LOOKUP = {"pepper": "generic://:pepper@"}.__getitem__


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASK_KEY", KEY)


@pytest.fixture
def pipeline(tmp_path: Path) -> Callable[[str], Pipeline]:
    def of(text: str) -> Pipeline:
        path = tmp_path / "shop.yaml"
        path.write_text(HEAD + text)
        return read_pipeline(path)

    return of


def decoder_of(pipeline: Pipeline) -> KernelDecoder:
    return KernelDecoder(
        lambda database, table: Route(f"{database}.{table}", 3),
        lambda _database, _table: None,
        compile_routes(pipeline).format(0),
        "uuid",
        columns=pipeline.column_rules(LOOKUP),
    )


def messages_of(
    server: MysqlServer, database: str, decoder: KernelDecoder, *statements: tuple[str, tuple[Any, ...]]
) -> list[Message]:
    """The messages of ``statements``, which are in a binlog file of their own."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"USE {database}")
        cursor.execute("SET binlog_rows_query_log_events = ON")
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SHOW BINARY LOG STATUS")
        name = cursor.fetchone()[0]
        for statement, values in statements:
            cursor.execute(statement, values)
        connection.commit()
        cursor.execute("FLUSH BINARY LOGS")
    data = (server.data / name).read_bytes()
    window_slice = Slice(0, name, FIRST_POSITION, len(data))
    blocks = [item for item in decoder.decode([data[FIRST_POSITION:]], window_slice) if isinstance(item, MessageBlock)]
    return sorted((one for block in blocks for one in block.messages()), key=lambda one: (one.position, one.sequence))


def afters(messages: list[Message]) -> list[dict[str, Any]]:
    values = (json.loads(message.value) for message in messages if message.value is not None)
    return [value["after"] for value in values if value["after"] is not None]


TEXTS = ["", "a", "Zoë 😀😀😀", 'q"uo\\te\n\t\x01', "x" * 48, "x" * 49, "x" * 57, "x" * 58, "x" * 64, "long ß " * 3000]


def test_masked_values_equal_those_of_the_servers_functions(
    full_mysql_server: MysqlServer, database: str, pipeline: Callable[[str], Pipeline]
) -> None:
    with full_mysql_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"USE {database}")
        cursor.execute(TABLE)
    insert = "INSERT INTO people VALUES (" + ", ".join(["%s"] * 12) + ")"
    rows = [
        (
            insert,
            (n, text, text[:9].replace("😀", "é"), f"-{n}.25", -n, text, "öld", "0123", "2000-02-03", "", b"", text),
        )
        for n, text in enumerate(TEXTS)
    ]
    rows.append((insert, (100, *[None] * 11)))
    found = afters(messages_of(full_mysql_server, database, decoder_of(pipeline(MASKS)), *rows))
    with full_mysql_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"USE {database}")
        cursor.execute(
            "SELECT id, SHA2(CONCAT('pepper', email), 256), SHA2(CONCAT('pepper', CONVERT(latin USING utf8mb4)), 256), "
            "SHA2(CONCAT('pepper', amount), 256), CAST(number AS CHAR), LEFT(note, 5), LEFT(kind, 1), "
            "IF(phone IS NULL, NULL, '+** \"hidden\"'), NULL, shown FROM people ORDER BY id"
        )
        names = ("id", "email", "latin", "amount", "number", "note", "kind", "phone", "born", "shown")
        selected = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    for row in selected:  # the server has no HMAC
        row["number"] = row["number"] and hmac.new(KEY.encode(), row["number"].encode(), "sha256").hexdigest()
    assert found == selected


def test_hidden_values_are_in_no_record(
    full_mysql_server: MysqlServer, database: str, pipeline: Callable[[str], Pipeline]
) -> None:
    with full_mysql_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"USE {database}")
        cursor.execute(TABLE)
    insert, delete = f"INSERT INTO people (id, secret) VALUES (9, '{HIDDEN}')", "DELETE FROM people"
    plain = messages_of(full_mysql_server, database, decoder_of(pipeline("")), (insert, ()), (delete, ()))
    assert json.loads(plain[0].value or b"")["source"]["query"] == insert, "without rules the statement is there"
    values = (1, HIDDEN, HIDDEN, 77.7, 7777, f"12345{HIDDEN}", "new", HIDDEN, "1977-07-07", HIDDEN, HIDDEN, "shown")
    messages = messages_of(
        full_mysql_server,
        database,
        decoder_of(pipeline(MASKS)),
        ("INSERT INTO people VALUES (" + ", ".join(["%s"] * 12) + ")", values),
        (f"UPDATE people SET shown = 'again', email = '{HIDDEN}{HIDDEN}', secret = '{HIDDEN}2' WHERE id = 1", ()),
        (f"UPDATE people SET id = 2 WHERE email = '{HIDDEN}{HIDDEN}'", ()),
        (delete, ()),
    )
    ops = [json.loads(message.value)["op"] for message in messages if message.value is not None]
    assert ops == ["c", "u", "d", "c", "d"]
    for message in messages:
        text = (message.key or b"") + (message.value or b"") + message.event_id
        for hidden in (HIDDEN, base64.b64encode(HIDDEN.encode()).decode(), "77.7", "7777", "1977", "token_a"):
            assert hidden.encode() not in text
        assert b'"shown":' in text or message.value is None
    assert [message.key for message in messages] == [b'{"id":1}'] * 4 + [b'{"id":2}'] * 3


@pytest.mark.parametrize("rule", ['exclude: ["*.keyed.B"]', 'mask: {"*.keyed.?": {text: x}}'])
def test_key_column_may_not_be_excluded_or_masked(
    full_mysql_server: MysqlServer, database: str, pipeline: Callable[[str], Pipeline], rule: str
) -> None:
    with full_mysql_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {database}.keyed (value INT, b INT, PRIMARY KEY (b))")
    decoder = decoder_of(pipeline(f"columns: {{{rule}}}\n"))
    with pytest.raises(SettingsError, match=rf"shop\.yaml: .* covers {database}\.keyed\.b, which belongs to the prim"):
        messages_of(full_mysql_server, database, decoder, ("INSERT INTO keyed VALUES (1, 2)", ()))


def test_mask_of_characters_needs_a_text_column(
    full_mysql_server: MysqlServer, database: str, pipeline: Callable[[str], Pipeline]
) -> None:
    with full_mysql_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {database}.numbers (id INT PRIMARY KEY, n INT)")
    decoder = decoder_of(pipeline('columns: {mask: {"*.numbers.n": {characters: 2}}}\n'))
    with pytest.raises(SettingsError, match=r"shop\.yaml: .*numbers\.n.* is not text"):
        messages_of(full_mysql_server, database, decoder, ("INSERT INTO numbers VALUES (1, 2)", ()))


def test_row_program_shows_excluded_and_masked_columns(
    full_mysql_server: MysqlServer, database: str, pipeline: Callable[[str], Pipeline]
) -> None:
    with full_mysql_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"USE {database}")
        cursor.execute(TABLE)
    decoder = decoder_of(pipeline(MASKS))
    messages_of(full_mysql_server, database, decoder, ("INSERT INTO people (id) VALUES (1)", ()))
    shown_rules = {
        line.split("'")[1]: line
        for line in explain(decoder.programs, f"{database}.people").splitlines()
        if "->" in line
    }
    assert shown_rules["secret"].endswith("left out")
    assert shown_rules["email"].endswith("masked: its salted SHA-256")
    assert shown_rules["number"].endswith("masked: its keyed HMAC-SHA256")
    assert shown_rules["note"].endswith("masked: its first 5 characters")
    assert "constant" in shown_rules["phone"]
    assert "hidden" in shown_rules["phone"]
    assert shown_rules["born"].endswith("masked: always null")
    assert "mask" not in shown_rules["shown"]
    assert "pepper" not in explain(decoder.programs, f"{database}.people")


def test_explain_shows_rules_and_values_of_the_pipeline(
    full_mysql_server: MysqlServer, database: str, server_id: int, tmp_path: Path
) -> None:
    with full_mysql_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"USE {database}")
        cursor.execute(TABLE)
        cursor.execute("INSERT INTO people (id) VALUES (1)")
        connection.commit()
    source = f"source: {{connection: s, server_ids: {server_id}-{server_id + 8}}}\n"
    text = HEAD.replace("source: {connection: s}\n", source) + MASKS + "values: {decimal: double, binary: hex}\n"
    (tmp_path / "shop.yaml").write_text(text)
    command = [sys.executable, "-m", "changefeed.cli.main", "explain", f"{database}.people", "--pipeline", "shop"]
    environment = {
        "AIRFLOW_CONN_S": full_mysql_server.url,
        "AIRFLOW_CONN_PEPPER": LOOKUP("pepper"),
        "CHANGEFEED_PIPELINES": str(tmp_path),
    }
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shown_rules = {line.split("'")[1]: line for line in done.stdout.splitlines() if "->" in line}
    assert shown_rules["secret"].endswith("left out")
    assert shown_rules["email"].endswith("masked: its salted SHA-256")
    assert "decimal_number" in shown_rules["amount"]
    assert "hex" in shown_rules["token_a"]
    assert "pepper" not in done.stdout + done.stderr


def test_check_reports_what_column_rules_match(
    full_mysql_server: MysqlServer, kafka_broker: KafkaBroker, database: str, pipeline: Callable[[str], Pipeline]
) -> None:
    uris = {"s": full_mysql_server.url, "k": f"kafka://{kafka_broker.bootstrap}"}
    with full_mysql_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {database}.checked (id INT PRIMARY KEY, email TEXT)")

    def found(pattern: str, level: Level) -> list[str]:
        text = f"tables: {{include: ['{database}.*']}}\ncolumns: {{exclude: ['{pattern}']}}\n"
        connections = PipelineConnections(pipeline(text), uris.__getitem__)
        with connections.session() as session:
            return [each.text for each in check_source(SourceContext(connections, session)) if each.level is level]

    assert f"1 columns left out or masked: {database}.checked.email" in found("*.checked.email", Level.OK)
    for pattern, words in (
        ("*.checked.mail", "'*.checked.mail' in columns.exclude of pipeline 'shop' matches no column"),
        ("*.checked.*", f"{database}.checked.id, which belongs to the primary key"),
    ):
        (wrong,) = found(pattern, Level.FAIL)
        assert wrong.startswith("SettingsError: ")
        assert words in wrong


VALUES = """
CREATE TABLE modes (
  id INT PRIMARY KEY, amount DECIMAL(20, 4), big BIGINT UNSIGNED, raw VARBINARY(20), fixed BINARY(4), day DATE,
  moment DATETIME(6), milli DATETIME(3), clock TIME, doc JSON
)
"""


@pytest.mark.parametrize("decimal", ["double", "precise"])
def test_values_are_written_by_the_pipelines_settings(
    full_mysql_server: MysqlServer, database: str, pipeline: Callable[[str], Pipeline], decimal: str
) -> None:
    with full_mysql_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"USE {database}")
        cursor.execute(VALUES)
    text = f"values: {{decimal: {decimal}, temporal: epoch, binary: hex, bigint_unsigned: string, documents: inline}}\n"
    moments = ("1969-12-31", "2026-02-03 04:05:06.789012", "2026-02-03 04:05:06.789", "-01:02:03", '{"a": [1, 2.5]}')
    insert = "INSERT INTO modes VALUES (" + ", ".join(["%s"] * 10) + ")"
    row = (1, "-123456.7890", 2**64 - 1, b"\x00\xffab", b"a", *moments)
    (found,) = afters(messages_of(full_mysql_server, database, decoder_of(pipeline(text)), (insert, row)))
    with full_mysql_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"USE {database}")
        cursor.execute(
            "SELECT id, amount, CAST(big AS CHAR), LOWER(HEX(raw)), LOWER(HEX(fixed)), DATEDIFF(day, '1970-01-01'), "
            "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', moment), "
            "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', milli) DIV 1000, TIME_TO_SEC(clock) * 1000, doc FROM modes"
        )
        expected = dict(zip(found, cursor.fetchone(), strict=True))
    amount = expected.pop("amount")
    said = found.pop("amount")
    if decimal == "precise":
        said = int.from_bytes(base64.b64decode(said), "big", signed=True) / 10000
    assert said == float(amount)
    expected["doc"] = json.loads(expected["doc"])
    assert found == expected
