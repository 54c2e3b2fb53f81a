"""The address leads to another server during a window, or to another binlog of the same server: nothing of it is
published, and the window is finished when the right server is back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from faults.feed import Feed, Runner
from faults.proxy import Proxy
from faults.replica import replicate, stop_replicating, wait_until_caught_up

from changefeed.errors import BinlogGoneError, SourceUnavailableError
from changefeed.ingest import window_run as ingest_module
from changefeed.ingest.cut import cut
from changefeed.ingest.run import run_windows
from changefeed.model.connection import MysqlConnection, from_environment
from changefeed.model.manifest import Manifest
from changefeed.pipeline.checkpoint_store import checkpoint_store
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.plan import plan
from changefeed.settings.file import load_pipeline
from changefeed.settings.requests.run import RunBounds
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.source import server_uuid
from changefeed.spark.connect import connect_session
from changefeed.spark.target import SparkTarget
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.process import run_server
from devstack.spark_connect import SparkConnectServer
from devstack.sql_server import SqlServer

pytestmark = [pytest.mark.extended, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def spark(spark_connect: SparkConnectServer) -> Iterator[SparkTarget]:
    with connect_session(spark_connect.url) as session:
        yield session


class MovedFeed:
    """A feed behind a proxy, run in this process on real Spark, and a second server to which the proxy may lead."""

    def __init__(self, feed: Feed, proxy: Proxy, other: SqlServer, spark: SparkTarget, patch: pytest.MonkeyPatch):
        self.feed, self.proxy, self.other = feed, proxy, other
        self._spark, self._patch = spark, patch

    def run(self, moves: Callable[[], None] | None = None, before: str = "high_water_marks") -> list[Manifest]:
        """Run; ``moves`` is called after the driver has read the source, before this function of its module."""
        with self._patch.context() as patch:
            for name, value in self.feed.env().items():
                patch.setenv(name, value)
            if moves is not None:
                function = getattr(ingest_module, before)

                def moved(*arguments: Any) -> Any:
                    moves()
                    return function(*arguments)

                patch.setattr(ingest_module, before, moved)
            pipeline = load_pipeline(self.feed.name)
            connections = PipelineConnections(pipeline, from_environment)
            store = checkpoint_store(PipelineConnections(pipeline, from_environment), None)  # type: ignore[arg-type]
            run = cut(connections, plan(connections, store), RunBounds())
            return list(run_windows(self._spark, connections, run, store))


@pytest.fixture(params=[MysqlServer, MariadbServer], ids=["mysql", "mariadb"])
def moved(
    request: pytest.FixtureRequest,
    kafka_broker: KafkaBroker,
    unique_name: str,
    tmp_path: Path,
    runner: Runner,
    spark: SparkTarget,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[MovedFeed]:
    options: dict[str, str] = {}
    if request.param is MariadbServer:
        options["log_slave_updates"] = "ON"

    def server(folder: str, server_id: int) -> SqlServer:
        made: SqlServer = request.param(
            tmp_path / folder, options={**options, "server_id": server_id}, owner=ProcessId.own(), quick=True
        )
        return made

    with run_server(server("a", 1)) as source, run_server(server("b", 2)) as other:
        proxy = Proxy(source.port)
        settings = {"source": {"connection": "mysql_faults", "server_ids": f"{source.port}-{source.port + 1}"}}
        feed = Feed(unique_name, source, kafka_broker, tmp_path, runner, settings, mysql_port=proxy.port)
        yield MovedFeed(feed, proxy, other, spark, monkeypatch)
        proxy.close()


def uuid_of(server: SqlServer) -> str:
    with Session(MysqlConnection.from_uri(server.url)) as session:
        return server_uuid(session)


def four_files(feed: Feed) -> None:
    """Four slices, two for each of two tasks, as there are two server_ids."""
    for _ in range(3):
        feed.write(25)
        feed.mysql.execute("FLUSH BINARY LOGS")
    feed.write(10)


def test_slices_of_another_server_are_not_published(moved: MovedFeed) -> None:
    """The address moves to a follower between two slices, or to a diverged server while the driver prepares."""
    feed, proxy = moved.feed, moved.proxy
    replicate(feed.mysql, moved.other)
    four_files(feed)
    wait_until_caught_up(feed.mysql, moved.other)
    moved.other.execute("FLUSH BINARY LOGS")
    with pytest.raises(SourceUnavailableError, match="leads to another server") as error:
        moved.run(lambda: proxy.lead_to(moved.other.port, 2))
    assert uuid_of(feed.mysql) in str(error.value)
    assert uuid_of(moved.other) in str(error.value)
    proxy.lead_to(feed.mysql.port)
    stop_replicating(moved.other)
    for _ in range(6):
        moved.other.execute(f"INSERT INTO `{feed.name}`.journal (text) VALUES ('of another')", "FLUSH BINARY LOGS")
    with pytest.raises(SourceUnavailableError, match="leads to another server"):
        moved.run(lambda: proxy.lead_to(moved.other.port), before="fence")
    proxy.lead_to(feed.mysql.port)
    assert feed.ids() == []
    moved.run()
    feed.check()


def test_files_that_were_written_anew_under_the_same_names_are_not_published(moved: MovedFeed) -> None:
    """The same server after a reset: its UUID is the same, and its files are longer than the window's slices."""
    feed = moved.feed
    four_files(feed)

    def reset() -> None:
        time.sleep(1.1)  # the server notes the second in which a file was begun
        feed.mysql.execute("RESET MASTER" if isinstance(feed.mysql, MariadbServer) else "RESET BINARY LOGS AND GTIDS")
        for _ in range(4):
            feed.write(60)
            feed.mysql.execute("FLUSH BINARY LOGS")

    with pytest.raises(BinlogGoneError, match=r"expected binlog 'binlog.00000\d' begun at .*, found"):
        moved.run(reset)
    assert feed.ids() == []
