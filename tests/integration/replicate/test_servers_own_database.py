"""Users' tables in the database `mysql` are published and followed, also from servers without column names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from integration.followed import Followed
from integration.kafka_pipeline import committed

from changefeed.operations.source_checks import SourceContext
from changefeed.source.mysql.session import Session
from devstack.kafka import KafkaBroker
from devstack.sql_server import SqlServer


@pytest.fixture(params=["mysql", "mariadb"])
def followed(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> Iterator[Followed]:
    source: SqlServer = request.getfixturevalue(f"{request.param}_server")
    follower: SqlServer = request.getfixturevalue(f"{request.param}_follower")
    made = Followed(unique_name, source, follower, kafka_broker, tmp_path)
    made.source.execute(f"CREATE TABLE mysql.{unique_name}_before (id INT PRIMARY KEY, v VARCHAR(9))")
    yield made
    for server in (source, follower):
        server.execute(*(f"DROP TABLE IF EXISTS mysql.{unique_name}_{each}" for each in ("before", "a", "b")))


def test_users_tables_in_the_servers_database_are_published_and_followed(followed: Followed) -> None:
    name = followed.name
    followed.configure(tables={"include": ["mysql.*"]}, topics={"partitions": 1, "template": f"{name}.{{table}}"})
    followed.source.execute(
        f"INSERT INTO mysql.{name}_before VALUES (1, 'one')",
        f"CREATE TABLE mysql.{name}_a (id INT PRIMARY KEY, v VARCHAR(9))",
        f"INSERT INTO mysql.{name}_a VALUES (1, 'one'), (2, 'two')",
        f"ALTER TABLE mysql.{name}_a ADD COLUMN n INT",
        f"UPDATE mysql.{name}_a SET n = id",
        f"RENAME TABLE mysql.{name}_a TO mysql.{name}_b",
        f"DELETE FROM mysql.{name}_b WHERE id = 1",
        "INSERT INTO mysql.time_zone_name VALUES ('Nowhere/At_All', 1)",  # a table of the server itself, logged as rows
        "DELETE FROM mysql.time_zone_name WHERE Name = 'Nowhere/At_All'",
    )
    with Session(followed.connections.mysql) as session:
        listed = {schema.table for schema in SourceContext(followed.connections, session).tables}
    assert {f"{name}_before", f"{name}_b"} <= listed
    assert "time_zone_name" not in listed
    followed.publish()
    changed = [orjson.loads(record.value)["op"] for record in committed(followed.kafka.bootstrap, f"{name}.{name}_a")]
    assert changed == ["c", "c", "u", "u"]
    followed.follow(start=None)
    for server in (followed.source, followed.follower):
        assert server.execute(f"SELECT * FROM mysql.{name}_before") == [(1, "one")]
        assert server.execute(f"SELECT * FROM mysql.{name}_b") == [(2, "two", 2)]
