"""Message keys: chosen columns, a unique key, or all columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from changefeed.binlog.decoder import KernelDecoder
from changefeed.errors import BinlogFormatError, SettingsError
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.route import Route, SchemaLookup
from changefeed.model.window import Slice
from changefeed.operations.finding import Level
from changefeed.operations.source_checks import SourceContext, check_source
from changefeed.pipeline.connections import PipelineConnections
from changefeed.records.block import Message, MessageBlock
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import compile_routes
from changefeed.source.mysql.catalog import table_schema
from changefeed.source.mysql.session import Session
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer

Keys = list[dict[str, Any] | None]


def pipeline_of(**settings: Any) -> Pipeline:
    plain = {"name": "keys", "source": {"connection": "s"}, "kafka": {"connection": "k"}}
    return Pipeline.model_validate(plain | settings)


class Decoded:
    """Decodes the binlog of statements with a pipeline's settings."""

    def __init__(self, server: MysqlServer, database: str) -> None:
        self.server, self.database = server, database

    def messages(self, pipeline: Pipeline, *statements: str, lookup: SchemaLookup | None = None) -> list[Message]:
        self.server.execute("FLUSH BINARY LOGS")
        (name, *_) = self.server.execute("SHOW BINARY LOGS")[-1]
        self.server.execute(*statements, "FLUSH BINARY LOGS", database=self.database)
        data = (self.server.data / name).read_bytes()
        decoder = KernelDecoder(
            lambda database, table: Route("t", 3, compile_routes(pipeline).key_rule(database, table)),
            lookup or self.schema,
            compile_routes(pipeline).format(0),
            "uuid",
            columns=pipeline.column_rules({}.__getitem__),
        )
        window_slice = Slice(0, name, FIRST_POSITION, len(data))
        blocks = [
            item for item in decoder.decode([data[FIRST_POSITION:]], window_slice) if isinstance(item, MessageBlock)
        ]
        found = [message for block in blocks for message in block.messages()]
        return sorted(found, key=lambda message: (message.position, message.sequence))

    def keys(self, pipeline: Pipeline, *statements: str) -> Keys:
        return keys_of(self.messages(pipeline, *statements))

    def schema(self, database: str, table: str) -> Any:
        with Session(MysqlConnection.from_uri(self.server.url)) as session:
            return table_schema(session, database, table)


def keys_of(messages: Sequence[Message]) -> Keys:
    return [None if message.key is None else json.loads(message.key) for message in messages]


@pytest.fixture
def decoded(full_mysql_server: MysqlServer, database: str) -> Decoded:
    return Decoded(full_mysql_server, database)


def test_chosen_key_columns_replace_the_primary_key_in_order(decoded: Decoded) -> None:
    create = "CREATE TABLE orders (id INT PRIMARY KEY, Customer INT, shop VARCHAR(9), n INT)"
    pipeline = pipeline_of(keys={"*.nothing": ["id"], "*.ord*": ["shop", "customer"], "*.orders": ["id"]})
    keys = decoded.keys(pipeline, create, "INSERT INTO orders VALUES (1, 7, 'a', 0)", "UPDATE orders SET n = 1")
    assert keys == [{"shop": "a", "Customer": 7}] * 2
    moved = decoded.messages(pipeline, "UPDATE orders SET customer = 8")
    assert keys_of(moved) == [{"shop": "a", "Customer": 7}] * 2 + [{"shop": "a", "Customer": 8}]
    ops = [message.value and json.loads(message.value)["op"] for message in moved]
    assert ops == ["d", None, "c"], "a change of the chosen columns is a change of key"
    assert decoded.keys(pipeline, "DELETE FROM orders") == [{"shop": "a", "Customer": 8}] * 2


@pytest.mark.parametrize(
    ("server", "keyless", "keys"),
    [
        ("full_mysql_server", "none", [{"a": 1}, None]),
        ("full_mysql_server", "unique", [{"a": 1}, None]),
        ("full_mysql_server", "all", [{"a": 1}, {"n": 5}]),
        ("full_mariadb_server", "none", [{"a": 1}, None]),
        ("full_mariadb_server", "all", [{"a": 1}, {"n": 5}]),
        ("mysql_server", "none", [None, None]),
        ("mysql_server", "unique", [{"a": 1}, None]),
        ("mysql_server", "all", [{"a": 1}, {"n": 5}]),
    ],
)
def test_table_without_primary_key_has_the_unique_key_or_keyless(
    request: pytest.FixtureRequest, unique_name: str, server: str, keyless: str, keys: Keys
) -> None:
    source: MysqlServer = request.getfixturevalue(server)
    source.execute(f"CREATE DATABASE `{unique_name}`")
    found = Decoded(source, unique_name).keys(
        pipeline_of(keyless=keyless),
        "CREATE TABLE u (a INT NOT NULL, b INT NOT NULL, c INT, UNIQUE z (a), UNIQUE k (b, a), UNIQUE a_first (c))",
        "CREATE TABLE bare (n INT)",
        "CREATE TABLE keyed (id INT PRIMARY KEY, n INT NOT NULL UNIQUE)",
        "INSERT INTO u VALUES (1, 2, NULL)",
        "INSERT INTO bare VALUES (5)",
        "INSERT INTO keyed VALUES (1, 2)",
    )
    assert found == [*keys, {"id": 1}]


def test_changes_of_a_row_with_a_unique_key_share_a_partition(decoded: Decoded) -> None:
    create = "CREATE TABLE r (id INT NOT NULL UNIQUE, n INT)"
    changes = ("INSERT INTO r VALUES (1, 0)", *(f"UPDATE r SET n = {n}" for n in range(1, 9)))
    messages = decoded.messages(pipeline_of(keyless="unique"), create, *changes)
    assert {message.key for message in messages} == {b'{"id":1}'}
    assert len(messages) == 9


@pytest.mark.parametrize("server", ["mysql_server", "mariadb_server"])
def test_unique_key_is_in_rows_of_minimal_row_images(
    request: pytest.FixtureRequest, unique_name: str, server: str
) -> None:
    source: MysqlServer = request.getfixturevalue(server)
    source.execute(f"CREATE DATABASE `{unique_name}`")
    found = Decoded(source, unique_name).keys(
        pipeline_of(),
        "CREATE TABLE u (a INT NOT NULL, b INT NOT NULL, n INT, UNIQUE z (b), UNIQUE y (a))",
        "SET SESSION binlog_row_image = MINIMAL",
        "INSERT INTO u VALUES (1, 2, 3)",
        "UPDATE u SET n = 4",
        "DELETE FROM u",
    )
    assert found == [{"b": 2}] * 4, "two of them are of the delete"


def test_unknown_key_column_stops_the_run_and_names_the_nearest(decoded: Decoded) -> None:
    pipeline = pipeline_of(keys={"*.typo": ["custmer_id"]})
    with pytest.raises(SettingsError, match=r"'\*\.typo' in keys chooses column 'custmer_id'.*mean 'customer_id'"):
        decoded.keys(pipeline, "CREATE TABLE typo (customer_id INT)", "INSERT INTO typo VALUES (1)")


def test_rows_without_a_chosen_key_column_stop_the_run(decoded: Decoded) -> None:
    pipeline = pipeline_of(keys={"*.m": ["n"]})
    create, insert = "CREATE TABLE m (id INT PRIMARY KEY, n INT, text TEXT)", "INSERT INTO m VALUES (1, 2, 'x')"
    minimal = "SET SESSION binlog_row_image = MINIMAL"
    assert decoded.keys(pipeline, create, insert, minimal) == [{"n": 2}]
    with pytest.raises(BinlogFormatError, match=r"without a column of the key .*binlog_row_image = 'FULL'"):
        decoded.keys(pipeline, minimal, "UPDATE m SET text = 'y'")
    by_primary_key = decoded.keys(pipeline_of(), minimal, "UPDATE m SET text = 'z'")
    assert by_primary_key == [{"id": 1}]


def test_column_of_a_chosen_key_may_not_be_masked(decoded: Decoded) -> None:
    pipeline = pipeline_of(keyless="all", columns={"exclude": ["*.secrets.word"]})
    with pytest.raises(SettingsError, match=r"covers .*secrets\.word, which belongs to .*`keyless`"):
        decoded.keys(pipeline, "CREATE TABLE secrets (word INT)", "INSERT INTO secrets VALUES (1)")


def test_check_reports_tables_without_keys_and_invalid_keys(
    full_mysql_server: MysqlServer, kafka_broker: KafkaBroker, database: str
) -> None:
    uris = {"s": full_mysql_server.url, "k": f"kafka://{kafka_broker.bootstrap}"}
    full_mysql_server.execute("CREATE TABLE bare (n INT)", "CREATE TABLE u (n INT NOT NULL UNIQUE)", database=database)

    def findings(**settings: Any) -> tuple[str, list[str]]:
        """The findings of check: those without errors, and errors."""
        pipeline = pipeline_of(tables={"include": [f"{database}.*"]}, **settings)
        connections = PipelineConnections(pipeline, uris.__getitem__)
        with connections.session() as session:
            found = list(check_source(SourceContext(connections, session)))
        wrong = [each.text for each in found if each.level is Level.FAIL]
        return "\n".join(each.text for each in found if each.level is not Level.FAIL), wrong

    right, wrong = findings()
    assert f"1 tables with a key other than their primary key: {database}.u (n)" in right
    assert f"1 tables without a key: {database}.bare; their records have a null key" in right
    assert not wrong
    right, wrong = findings(keyless="all", keys={f"{database}.bar": ["n"]})
    assert f"2 tables with a key other than their primary key: {database}.bare (n); {database}.u (n)" in right
    assert f"'{database}.bar' in keys of pipeline 'keys' matches no table" in wrong[0]
    _, wrong = findings(keys={f"{database}.bare": ["m"]})
    assert "chooses column 'm'" in wrong[0]
