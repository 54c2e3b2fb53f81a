"""`ingest` in its own process, whose JVM and Python workers stay warm from one window to the next."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Self

from live_workloads import DATABASE, Workload

from changefeed.ingest.window_run import ingest
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.manifest import Manifest
from changefeed.model.window import Window
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import KafkaSettings, SourceSettings, SparkSettings, TableSettings
from changefeed.settings.topic_settings import TopicSettings
from changefeed.spark.session import start_session
from changefeed.spark.target import LocalSpark


@dataclass(frozen=True)
class Servers:
    """Where the workloads are read and where the records go."""

    mysql: str
    server_uuid: str
    bootstrap: str

    def lookup(self, connection: str) -> str:
        """The connection of an id in `pipeline`."""
        return {"mysql": self.mysql, "kafka": f"kafka://{self.bootstrap}"}[connection]


def pipeline(master: str, partitions: int, slice_mb: int) -> Pipeline:
    """All of the benchmark's tables; schema changes are not published, as no workload has any."""
    name = re.sub(r"\W", "", f"bench{os.getpid()}{master}")
    return Pipeline(
        name=name,
        source=SourceSettings(connection="mysql"),
        kafka=KafkaSettings(connection="kafka"),
        tables=TableSettings(include=[f"{DATABASE}.*"]),
        topics=TopicSettings(template=f"{name}.{{table}}", partitions=partitions),
        spark=SparkSettings(master=master, slice_bytes=slice_mb << 20, conf={"spark.driver.memory": "2g"}),
        publish_ddl="off",
    )


class WarmProcess:
    """A driver with a Spark session, which processes messages until it gets None; a context manager that ends it."""

    def __init__(self, serve: Callable[..., None], *given: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, *given))

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # it has ended by itself
            self._pipe.send(None)
        self._process.join()

    @property
    def pid(self) -> int:
        """Pid of the driver, from which JVM and workers descend."""
        return self._process.pid or 0


class WarmIngest(WarmProcess):
    """A driver with a Spark session on the pipeline's master. Each `publish` is one window.

    The first time a workload is published as its pipeline's window, which learns its schemas; each later time under
    another identity, for which nothing is published yet, into the same topics.
    """

    def __init__(self, pipeline: Pipeline, servers: Servers) -> None:
        super().__init__(_serve, pipeline, servers)
        self.pipeline, self.servers = pipeline, servers
        self._passes = 0

    def publish(self, workload: Workload) -> tuple[float, Manifest]:
        """Publish ``workload`` once more: the seconds of the call, and the manifest.

        SystemExit unless the rows are exactly those that were written.
        """
        self._pipe.send((self._window(workload), f"{self.pipeline.name}-{self._passes}" if self._passes else None))
        self._passes += 1
        seconds, manifest = self._pipe.recv()
        if manifest is None:
            raise SystemExit(f"{workload.name} at {self.pipeline.spark.master} failed")
        if (manifest.row_count, manifest.message_count) != (workload.rows, workload.messages):
            raise SystemExit(
                f"{workload.name} has {workload.rows} rows for {workload.messages} messages, and "
                f"{manifest.row_count} rows in {manifest.message_count} messages were published"
            )
        return seconds, manifest

    def _window(self, workload: Workload) -> Window:
        start, head = (BinlogCoordinates(workload.file, at) for at in (workload.start, workload.head))
        gtids = (workload.start_gtids, workload.head_gtids)
        uuid, now = self.servers.server_uuid, int(time.time() * 1000)
        return Window(self.pipeline.name, 1, uuid, start, head, *gtids, frozen_at_ms=now)


def _serve(pipe: Connection, pipeline: Pipeline, servers: Servers) -> None:
    """Publish what comes through ``pipe`` until None comes: a window, and the identity to publish it as."""
    connections = PipelineConnections(pipeline, servers.lookup)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"  # or Spark looks for another, and warns of what it takes
    with start_session(pipeline) as spark:
        while (expected := pipe.recv()) is not None:
            window, identity = expected
            began = time.perf_counter()
            try:
                manifest = ingest(LocalSpark(spark), connections, window, identity=identity)
            except Exception:
                traceback.print_exc()
                manifest = None
            pipe.send((time.perf_counter() - began, manifest))
