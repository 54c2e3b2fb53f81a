"""The keys that a snapshot leaves to windows: all changed keys, if windows publish their complete rows."""

from __future__ import annotations

from typing import Any

import pytest

from changefeed.errors import BinlogFormatError
from changefeed.model.connection import MysqlConnection
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.pipeline import Pipeline
from changefeed.snapshot.changed_keys import ChangedKeys, TooManyChangedKeysError
from changefeed.source.mysql import source
from changefeed.source.mysql.catalog import table_schema
from changefeed.source.mysql.session import Session
from devstack.kafka import KafkaBroker
from devstack.sql_server import SqlServer

pytestmark = pytest.mark.extended


@pytest.fixture(params=["mysql_server", "mariadb_server"])
def server(request: pytest.FixtureRequest) -> SqlServer:
    found: SqlServer = request.getfixturevalue(request.param)
    return found


def read_changed_keys(
    server: SqlServer, kafka: KafkaBroker, database: str, *statements: str, most_keys: int = 100
) -> set[bytes]:
    """The keys of table t that ``statements`` change."""
    plain: dict[str, Any] = {"name": "keys", "source": {"connection": "mysql"}, "kafka": {"connection": "kafka"}}
    uris = {"mysql": server.root_url, "kafka": f"kafka://{kafka.bootstrap}"}
    connections = PipelineConnections(Pipeline.model_validate(plain), uris.__getitem__)
    with Session(MysqlConnection.from_uri(server.root_url)) as session:
        schema = table_schema(session, database, "t")
        assert schema is not None
        uuid, start = source.server_uuid(session), source.head(session).coordinates
        server.execute(*statements, database=database)
        keys = ChangedKeys(connections, uuid, start, {(database, "t"): schema}, most_keys)
        keys.read_to(source.head(session).coordinates)
    return keys.keys(f"{database}.t")


@pytest.fixture
def filled(server: SqlServer, unique_name: str) -> str:
    server.execute(f"CREATE DATABASE {unique_name}")
    columns = "id INT PRIMARY KEY, a VARCHAR(20), b TEXT, up INT AS (id + 1) VIRTUAL"
    rows = "(1, 'x', 'y'), (2, 'x', 'y'), (3, 'x', 'y')"
    server.execute(f"CREATE TABLE t ({columns})", f"INSERT INTO t (id, a, b) VALUES {rows}", database=unique_name)
    return unique_name


def test_each_key_that_a_change_has_before_or_after_it(
    server: SqlServer, kafka_broker: KafkaBroker, filled: str
) -> None:
    statements = [
        "UPDATE t SET a = 'z' WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
        "UPDATE t SET id = 30 WHERE id = 3",
    ]
    keys = {b'{"id":%d}' % number for number in (1, 2, 3, 30)}
    assert read_changed_keys(server, kafka_broker, filled, *statements) == keys


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
def test_change_without_all_columns_is_refused(
    server: SqlServer, kafka_broker: KafkaBroker, filled: str, image: str
) -> None:
    statements = [f"SET SESSION binlog_row_image = {image}", "UPDATE t SET a = 'z' WHERE id = 1"]
    with pytest.raises(BinlogFormatError, match=r"does not hold all columns.*binlog_row_image = FULL"):
        read_changed_keys(server, kafka_broker, filled, *statements)


def test_a_delete_needs_no_more_than_its_key(server: SqlServer, kafka_broker: KafkaBroker, filled: str) -> None:
    statements = ["SET SESSION binlog_row_image = MINIMAL", "DELETE FROM t WHERE id = 1"]
    assert read_changed_keys(server, kafka_broker, filled, *statements) == {b'{"id":1}'}


def test_keys_are_read_file_by_file_up_to_the_limit(server: SqlServer, kafka_broker: KafkaBroker, filled: str) -> None:
    update, flush = "UPDATE t SET a = CONCAT(a, '!') WHERE id = {}", "FLUSH BINARY LOGS"
    statements = [update.format(1), flush, update.format(2), update.format(1), flush, flush, update.format(3)]
    assert read_changed_keys(server, kafka_broker, filled, *statements, most_keys=4) == {
        b'{"id":%d}' % number for number in (1, 2, 3)
    }
    with pytest.raises(TooManyChangedKeysError, match=r"at most 3 changed keys.*changed_keys"):
        read_changed_keys(server, kafka_broker, filled, *statements, most_keys=3)
