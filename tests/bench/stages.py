"""The cost of each stage by itself: one process, one core, no Spark; CPU microseconds per row.

`publish` is a task's `Publisher`, transactions, progress and accounts on, with all of the workload's finished batches.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from bench_decode import kernel_items
from live_workloads import Workload

from changefeed.binlog.search.scout import scout
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.publisher import Publisher
from changefeed.kafka.topics import TopicSettings, commit_log_settings, ensure_topics, topic_limits
from changefeed.model.connection import RUN_ANSWER_LIMITS, MysqlConnection
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.publish_settings import PublishSettings
from changefeed.model.topic_name import commit_log_topic
from changefeed.model.window import Slice
from changefeed.records.batch import Batch
from changefeed.records.block import MessageBlock
from changefeed.records.encoder import BatchEncoder
from changefeed.source.mysql.dump import DumpStream
from changefeed.source.mysql.session import Session
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer

SLICE_BYTES = 32 << 20


def stages(mysql: MysqlServer, broker: KafkaBroker, workload: Workload) -> dict[str, float]:
    """Costs by name, in order. Each stage runs twice, and the second run counts."""
    items = kernel_items(mysql.data / workload.file)
    blocks = [item for item in items() if isinstance(item, MessageBlock)]
    connection = KafkaConnection(broker.bootstrap)
    topics = {block.topic for block in blocks}
    partitions = 1 + max(block.partition for block in blocks)
    ensure_topics(connection, dict.fromkeys(topics, TopicSettings(partitions, -1, {})))
    limits = topic_limits(connection, topics)
    encoder = BatchEncoder(PublishSettings(), lambda topic: limits[topic].for_batches())

    def encoded() -> Iterator[Batch]:
        for block in blocks:
            yield from encoder.batches(block)

    figures = {
        "dump": _second(workload, lambda: _dump(mysql, workload)),
        "scout": _second(workload, lambda: _scout(mysql.data / workload.file)),
        "decode": _second(workload, lambda: deque(items(), maxlen=0)),
        "encode and compress": _second(workload, lambda: deque(encoded(), maxlen=0)),
    }
    batches = sorted(encoded(), key=lambda batch: (batch.topic, batch.partition))
    for number in range(2):
        name = f"stages-{workload.name}-{number}"
        log = commit_log_topic(name)
        ensure_topics(connection, {log: commit_log_settings()})
        with Publisher(connection, name, 0, 1, log, limits) as publisher:
            figures["publish"] = _once(workload, partial(publisher.publish, batches))
    return figures


def _second(workload: Workload, run: Callable[[], object]) -> float:
    run()
    return _once(workload, run)


def _once(workload: Workload, run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return (time.process_time() - began) / workload.rows * 1e6


def _dump(mysql: MysqlServer, workload: Workload) -> None:
    """Read the workload from the server, and throw it away."""
    session = Session(MysqlConnection.from_uri(mysql.url, RUN_ANSWER_LIMITS))
    deque(DumpStream(session, file=workload.file, start=workload.start, end=workload.head), maxlen=0)


def _scout(path: Path) -> None:
    """Scout a file that is in the page cache."""
    data = path.read_bytes()
    chunks = (memoryview(data)[at : at + (1 << 20)] for at in range(FIRST_POSITION, len(data), 1 << 20))
    scout(chunks, Slice(0, path.name, FIRST_POSITION, len(data)), SLICE_BYTES)
