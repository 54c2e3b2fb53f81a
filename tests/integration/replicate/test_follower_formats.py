"""A follower that reads other formats than Debezium's, which have all rows of an event in a record."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from both_settings import on_stock_servers_first
from integration.followed import Followed, Workload
from integration.kafka_pipeline import committed

from changefeed.errors import SettingsError
from changefeed.settings.limits import check_replayable
from devstack.kafka import KafkaBroker
from devstack.sql_server import SqlServer

SETTINGS: dict[str, dict[str, Any]] = {
    "fluvio": {"format": "fluvio", "values": {}, "publish_ddl": "inline"},
    "event": {"format": "event", "values": {}, "publish_ddl": "inline"},
    "cloudevents": {"format": "cloudevents"},
}
MANY_TYPES = """\
CREATE TABLE {name}_a.types (
  id BIGINT UNSIGNED PRIMARY KEY, b BIT(9), d DATE, t TIME(2), dt DATETIME(3), ts TIMESTAMP(6) NULL, y YEAR, f FLOAT,
  e ENUM('x','y'), s SET('p','q'), j JSON, bin BINARY(4), bl BLOB, p POINT, n DECIMAL(20,5)
)"""
ROWS = """\
INSERT INTO {name}_a.types VALUES
(1, b'101', '0000-00-00', '-12:30:01.5', '2026-02-00 00:00:00', '0000-00-00 00:00:00', 2026, 0.1, 0, '', 'null',
 x'6100', x'00ff', ST_GeomFromText('POINT(1 2)'), -0.00001),
(18446744073709551615, NULL, '2026-01-31', '838:59:59', '9999-12-31 23:59:59.999', '2038-01-19 03:14:07.999999', NULL,
 1e30, 'y', 'p,q', '{{"a": [1, 2.5, null, "é"]}}', x'61626364', NULL, NULL, 123456789012345.00001),
(3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"""


@pytest.fixture(params=["mysql", "mariadb"])
def followed(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> Iterator[Followed]:
    source: SqlServer = request.getfixturevalue(f"source_{request.param}")
    follower: SqlServer = request.getfixturevalue(f"{request.param}_follower")
    made = Followed(unique_name, source, follower, kafka_broker, tmp_path)
    yield made
    made.drop()


@pytest.mark.parametrize(
    "format", ["fluvio", *(pytest.param(each, marks=pytest.mark.extended) for each in ("event", "cloudevents"))]
)
@on_stock_servers_first
@pytest.mark.usefixtures("server_settings")
def test_a_random_workload_in_several_runs_ends_with_both_servers_alike(followed: Followed, format: str) -> None:
    followed.configure(**SETTINGS[format])
    work = Workload(followed, random.Random(f"follow:{format}"), partial=False)
    with followed.source.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute(MANY_TYPES.format(name=followed.name))
        cursor.execute(ROWS.format(name=followed.name))
        cursor.execute(f"UPDATE {followed.name}_a.types SET f = 0.3, bl = x'01' WHERE id IN (1, 3)")
        cursor.execute(f"CREATE TABLE {followed.name}_a.moved (id INT PRIMARY KEY)")
        cursor.execute(f"INSERT INTO {followed.name}_a.moved VALUES (1), (2), (3), (4), (5)")
        cursor.execute(f"UPDATE {followed.name}_a.moved SET id = id + 1 ORDER BY id DESC")  # its rows have an order
    for transactions in (20, 30):
        work.run(transactions)
        followed.publish()
        followed.follow()
        followed.check()
    if format == "fluvio":
        records = committed(followed.kafka.bootstrap, f"{followed.name}_a.types")
        operations = [orjson.loads(record.value)["operation"] for record in records]
        assert [len(each["Add"]["rows"]) for each in operations if "Add" in each] == [3]


def test_format_without_complete_rows_is_refused_by_name(followed: Followed) -> None:
    for format in ("flat", "maxwell"):
        followed.configure(format=format, values={})
        with pytest.raises(SettingsError, match=f"messages of format '{format}' are not read back"):
            check_replayable(followed.pipeline)
    followed.configure(format="fluvio", values={}, statements="publish")
    with pytest.raises(SettingsError, match="`statements: publish`, and messages of format 'fluvio'"):
        check_replayable(followed.pipeline)
    with pytest.raises(SettingsError, match="`partition_by` with columns would distribute them"):
        followed.configure(format="event", values={}, topics={"partitions": 2, "partition_by": ["id"]})
