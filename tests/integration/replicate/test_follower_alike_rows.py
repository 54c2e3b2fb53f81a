"""If a server treats two rows as equal, the follower changes the one that the source changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.followed import Followed

from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.sql_server import SqlServer

PAIRS = {
    "d DOUBLE": ("0e0", "-0e0"),
    "d FLOAT": ("-0e0", "0e0"),
    "d DOUBLE(9,3)": ("0e0", "-0e0"),
    "d FLOAT(9,3)": ("-0e0", "0e0"),
    "d VARCHAR(9) COLLATE utf8mb4_general_ci": ("'a'", "'A '"),
    "d ENUM('a', 'b')": ("'a'", "'b'"),
    "d YEAR": ("0", "2000"),
    "d TIME(2)": ("'00:00:00'", "'24:00:00.01'"),
}
JSON_PAIRS = {
    "d JSON": ("'1'", "'1.0'"),
    "d JSON ": ("'1.0'", "'1'"),
    "d JSON  ": ("""'{"a": [0.0, "x"]}'""", """'{"a": [-0.0, "x"]}'"""),
    "d JSON   ": ("""'{"a": 10000000000000000000000}'""", """'{"a": 1e22}'"""),
    "d JSON    ": ("CAST(DATE'2026-01-02' AS JSON)", """'"2026-01-02"'"""),
    "d JSON     ": ("CAST(1.0 AS JSON)", "'1'"),
}
"""By column, two values that compare as equal; the row with the second is changed."""


@pytest.fixture(params=["mysql", "mariadb"])
def followed(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> Iterator[Followed]:
    source: SqlServer = request.getfixturevalue(f"source_{request.param}")
    follower: SqlServer = request.getfixturevalue(f"{request.param}_follower")
    made = Followed(unique_name, source, follower, kafka_broker, tmp_path)
    yield made
    made.drop()


def test_change_of_one_of_two_alike_rows_changes_that_row_on_the_follower(followed: Followed) -> None:
    name = f"{followed.name}_alike"
    pairs = PAIRS | ({} if isinstance(followed.source, MariadbServer) else JSON_PAIRS)
    followed.source.execute(f"CREATE DATABASE {name}")
    for number, (column, (first, second)) in enumerate(pairs.items()):
        for what in ("updated", "deleted"):
            table = f"{name}.{what}{number}"
            followed.source.execute(
                "SET sql_mode = ''",
                f"CREATE TABLE {table} ({column}, n INT)",
                f"INSERT INTO {table} VALUES ({first}, 1), ({second}, 1), ({first}, 2), ({second}, 2)",
            )
    followed.publish()
    followed.follow()
    followed.check()
    for number, column in enumerate(pairs):
        where = f"{second_of(pairs, column)} LIMIT 1"
        followed.source.execute(
            f"UPDATE {name}.updated{number} SET n = 3 WHERE {where}",
            f"DELETE FROM {name}.deleted{number} WHERE {where}",
        )
    followed.publish()
    followed.follow()
    expected, found = followed.tables(followed.source), followed.tables(followed.follower)
    assert {table: shown[2] for table, shown in found.items() if shown != expected[table]} == {}


def second_of(pairs: dict[str, tuple[str, str]], column: str) -> str:
    """The condition that matches the row with the second value, by the text that the server shows."""
    _, second = pairs[column]
    shown = f"CAST({second} AS JSON)" if "JSON" in column else second
    return f"CAST(d AS CHAR) COLLATE utf8mb4_bin = CAST({shown} AS CHAR) COLLATE utf8mb4_bin"
