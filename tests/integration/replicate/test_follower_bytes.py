"""Undefined bytes of a charset: a follower never stores U+FFFD in their place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.followed import Followed

from changefeed.errors import SettingsError
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.sql_server import SqlServer


@pytest.fixture(params=["mysql", "mariadb"])
def followed(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> Iterator[Followed]:
    source: SqlServer = request.getfixturevalue(f"source_{request.param}")
    follower: SqlServer = request.getfixturevalue(f"{request.param}_follower")
    made = Followed(unique_name, source, follower, kafka_broker, tmp_path)
    source.execute(f"CREATE DATABASE {unique_name}")
    yield made
    made.drop()


def test_charset_that_stores_the_replacement_character_stops_the_follower(followed: Followed) -> None:
    """UCS-2 and GB18030 have U+FFFD, so the follower's server would accept it."""
    bytes_of = {"ucs2": "D800"} | ({"gb18030": "8431A530"} if isinstance(followed.source, MysqlServer) else {})
    for charset, code in bytes_of.items():
        followed.source.execute(
            f"USE {followed.name}",
            f"CREATE TABLE {charset} (id INT PRIMARY KEY, c VARCHAR(5) CHARACTER SET {charset})",
            f"INSERT INTO {charset} VALUES (1, 'a'), (2, _{charset} x'{code}')",
        )
        followed.publish()
        with pytest.raises(SettingsError, match=rf"{charset}` has bytes that are undefined.*Correct it on the s"):
            followed.follow()
        assert followed.follower.execute(f"SELECT COUNT(*) FROM {followed.name}.{charset}") == [(0,)]
        at_head = f"coordinates = '{followed.source.head()}'"
        followed.follower.execute(f"UPDATE changefeed.followed SET {at_head} WHERE pipeline = '{followed.name}'")


def test_inserted_and_deleted_row_needs_no_correction(followed: Followed) -> None:
    """Only its AUTO_INCREMENT value matters."""
    tables = {"keyed": "id INT AUTO_INCREMENT PRIMARY KEY", "keyless": "id INT AUTO_INCREMENT, KEY (id)"}
    for table, key in tables.items():
        followed.source.execute(
            f"USE {followed.name}",
            f"CREATE TABLE {table} (c VARCHAR(5) CHARACTER SET cp1251, {key})",
            f"INSERT INTO {table} VALUES (_cp1251 x'61', 1), (_cp1251 x'9861', 7)",
            f"DELETE FROM {table} WHERE id = 7",
        )
    followed.publish()
    followed.follow()
    followed.check()
    for table in tables:
        followed.follower.execute(f"INSERT INTO {followed.name}.{table} (c) VALUES ('b')")
        assert followed.follower.execute(f"SELECT MAX(id) FROM {followed.name}.{table}") == [(8,)]
