"""The servers of an example: MySQL and Kafka in a temporary folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.process import run_server
from devstack.sql_server import Options


@dataclass(frozen=True)
class ExampleServers:
    """Running servers, whose data are in *folder*."""

    folder: Path
    mysql: MysqlServer
    kafka: KafkaBroker


@contextmanager
def example_servers(
    example: Path, *, database: str = "", release: str = "9.7", options: Options | None = None
) -> Iterator[ExampleServers]:
    """MySQL and Kafka, until the end of the block.

    This process and the commands that it starts get the folder *example*/pipelines, and the connections MYSQL (as root,
    with *database*), KAFKA and STATE.
    """
    with TemporaryDirectory(prefix="changefeed-") as path:
        folder, owner = Path(path), ProcessId.own()
        with (
            run_server(
                MysqlServer(folder / "mysql", options=options, owner=owner, quick=True, release=release)
            ) as mysql,
            run_server(KafkaBroker(folder / "kafka", owner=owner, quick=True)) as kafka,
        ):
            os.environ |= {
                "CHANGEFEED_PIPELINES": str(example / "pipelines"),
                "AIRFLOW_CONN_MYSQL": f"{mysql.root_url}/{database}" if database else mysql.root_url,
                "AIRFLOW_CONN_KAFKA": f"kafka://{kafka.bootstrap}",
                "AIRFLOW_CONN_STATE": f"sqlite:///{folder / 'state.db'}",
            }
            yield ExampleServers(folder, mysql, kafka)
