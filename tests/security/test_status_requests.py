"""Status requests do not end the binlog readers of a run. A server drops the older of two readers with the same
server_id, so status requests use none."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import pytest
from airflow_site import PIPELINE, Site

from changefeed.model.checkpoint import Checkpoint
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.source.mysql import source
from changefeed.source.mysql.dump import DumpStream
from changefeed.source.mysql.session import Session
from devstack.sql_server import SqlServer

ROWS, ROW_BYTES = 60, 400_000
"""More than the buffers of a connection hold, so that the dump is not finished while nobody reads it."""


@pytest.fixture(params=["mysql_server", "mariadb_server"])
def server(request: pytest.FixtureRequest, unique_name: str) -> Iterator[SqlServer]:
    """A server with the rows in one binlog file, in a database with the test's name."""
    server: SqlServer = request.getfixturevalue(request.param)
    row = f"(REPEAT('x', {ROW_BYTES}))"
    server.execute(
        f"CREATE DATABASE {unique_name}",
        f"CREATE TABLE {unique_name}.t (id INT PRIMARY KEY AUTO_INCREMENT, a LONGTEXT)",
        "FLUSH BINARY LOGS",
        *[f"INSERT INTO {unique_name}.t (a) VALUES {', '.join([row] * 20)}"] * (ROWS // 20),
    )
    yield server
    server.execute(f"DROP DATABASE {unique_name}")


def test_status_requests_do_not_end_the_readers_of_a_run(
    airflow_site: Site, server: SqlServer, unique_name: str, server_id: int
) -> None:
    connection = MysqlConnection.from_uri(server.url)
    with Session(connection) as session:
        head, uuid = source.head(session), source.server_uuid(session)
    file, end = head.coordinates.file, head.coordinates.position
    start = BinlogCoordinates(file, 4)
    checkpoint = Checkpoint(unique_name, 1, uuid, start, "", int(time.time() * 1000))
    parts = urlsplit(server.url)
    source_of = {
        "connection_id": unique_name,
        "conn_type": "mysql",
        "host": "127.0.0.1",
        "port": parts.port,
        "login": connection.user,
        "password": connection.password,
    }
    server_ids = f"{server_id}-{server_id + 1}"
    text = PIPELINE.format(name=unique_name, database=unique_name, server_ids=server_ids, more="")
    pipeline = f"/changefeed/api/pipelines/{unique_name}"
    variable = f"changefeed_checkpoint__{unique_name}"
    with airflow_site.client() as admin, airflow_site.client("vera") as viewer:
        assert admin.post("/api/v2/connections", json=source_of).status_code == 201
        assert admin.post("/api/v2/variables", json={"key": variable, "value": checkpoint.to_text()}).status_code == 201
        (airflow_site.pipelines / f"{unique_name}.yaml").write_text(text.replace("mysql_shop", unique_name))
        readers = [
            iter(DumpStream(Session(connection), file=file, start=4, end=end, server_id=of_task))
            for of_task in (server_id, server_id + 1)
        ]
        try:
            with closing(readers[0]), closing(readers[1]):
                read = [len(next(reader)) for reader in readers]
                seen = viewer.get(pipeline).json()["position"]
                assert (seen["checkpoint"], seen["lag_bytes"] > ROWS * ROW_BYTES) == (str(start), True), seen
                assert seen["lag_seconds"] is not None, "the binlog was read"
                for path in ("/changefeed/metrics", "/changefeed/api/pipelines", f"{pipeline}/windows"):
                    assert viewer.get(path).status_code == 200, path
                now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                for path, asked in (
                    ("seek/plan", {"to": "latest"}),
                    ("seek/plan", {"to": now}),
                    ("backfill/plan", {"from_file": file}),
                ):
                    planned = admin.post(f"{pipeline}/{path}", json=asked)
                    assert planned.status_code == 200, planned.text
                read = [size + sum(map(len, reader)) for size, reader in zip(read, readers, strict=True)]
            assert read == [end - 4, end - 4]
        finally:
            (airflow_site.pipelines / f"{unique_name}.yaml").unlink()
            admin.delete(f"/api/v2/connections/{unique_name}")
            admin.delete(f"/api/v2/variables/{variable}")
