"""What transactions and accounting cost: one run, the same records three ways, interleaved.

    python tests/bench/bench_publish.py [--bootstrap HOST:PORT] [--messages N] [--rounds N]

- publisher: `changefeed.kafka.publisher.Publisher`, transactions, progress records and offsets on
- plain: confluent-kafka without transactions, from the same blocks: what the same job would do without them
- send: a bare loop of kafka-python's `send`, over finished keys, values and headers

A broker is started where KAFKA_BOOTSTRAP names none. The whole path is `bench_end_to_end.py`'s.

Wall time on a shared machine varies twofold: compare the ratios, and the CPU seconds of this process.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "include"))

import kafka
from confluent_kafka import Producer

from changefeed.block import Block, Message, Step, pack, sequence_of
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.fencing import fence
from changefeed.kafka.publisher import Publisher
from changefeed.kafka.topics import (
    TopicSettings,
    commit_log_settings,
    commit_log_topic,
    ensure_topics,
    topic_limits,
)
from changefeed.publish_settings import PublishSettings
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.process import started

_SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
_VALUE = (
    b'{"before":null,"after":{"id":%d,"customer_id":%d,"status":"shipped","total":"%d.50","quantity":3,'
    b'"name":"Ada L. %d","details":{"gift":true},"ok":true,"weight":0.25,"created":"2025-01-02T03:04:05.678901"},'
    b'"source":{"db":"shop","table":"orders","file":"binlog.000012","pos":%d,"row":%d,"server_id":1},"op":"c",'
    b'"ts_ms":1735787045000}'
)


def make_blocks(topics: list[str], messages: int, per_block: int = 2500) -> list[Block]:
    """Blocks of about 1 MB, sorted by topic-partition, as the shuffle hands them over."""
    blocks = []
    for topic in topics:
        for number, begin in enumerate(range(0, messages // len(topics), per_block)):
            payload = pack(
                Message(
                    4 + 16384 * (index // 500),
                    sequence_of(index % 500, Step.CHANGE),
                    b'{"id":%d}' % index,
                    _VALUE % (index, index * 7919 % 100_003, index % 997, index, index // 500 * 16384, index % 500),
                    f"{_SERVER}/binlog.000012:{4 + 16384 * (index // 500)}/{index % 500}".encode(),
                    b"",
                )
                for index in range(begin, begin + per_block)
            )
            blocks.append(Block(topic, 0, "binlog.000012", 0, number, payload))
    return blocks


def publish(connection: KafkaConnection, blocks: list[Block], compression: str) -> Callable[[], None]:
    """The publisher, ready: a run's fixed costs (fencing, topics) are not part of the rate."""
    pipeline = f"bench-{uuid.uuid4().hex[:8]}"
    log = commit_log_topic(pipeline)
    ensure_topics(connection, {log: commit_log_settings()})
    limits = topic_limits(connection, {block.topic for block in blocks})
    attempt = fence(connection, pipeline, 1, log)
    publisher = Publisher(
        connection, pipeline, 0, 1, log, limits, PublishSettings(compression=compression), attempt=attempt
    )
    publisher.__enter__()

    def run() -> None:
        publisher.publish(blocks)
        publisher.__exit__(None, None, None)

    return run


def plain(connection: KafkaConnection, blocks: list[Block], compression: str) -> Callable[[], None]:
    """A loop over blocks with librdkafka, message by message."""
    options: dict[str, Any] = {
        "bootstrap.servers": connection.bootstrap,
        "enable.idempotence": True,
        "compression.type": compression,
        "linger.ms": 20,
        "batch.size": 1_000_000,
        "batch.num.messages": 100_000,
        "queue.buffering.max.messages": 2_000_000,
        "queue.buffering.max.kbytes": 64 << 10,
    }
    producer = Producer(options)
    producer.list_topics(blocks[0].topic, timeout=10)

    def run() -> None:
        for block in blocks:
            payload, topic, partition = block.payload, block.topic, block.partition
            count = int.from_bytes(payload[:8], "little")
            nulls_at = 8 + 32 * count
            ends = memoryview(payload)[8 + 16 * count : nulls_at].cast("I").tolist()
            data = payload[nulls_at + count :]
            at = 0
            for key_end, value_end, id_end, gtid_end in zip(
                ends[0::4], ends[1::4], ends[2::4], ends[3::4], strict=True
            ):
                while True:
                    try:
                        producer.produce(
                            topic,
                            data[key_end:value_end],
                            data[at:key_end],
                            partition,
                            None,
                            None,
                            0,
                            [("changefeed.id", data[value_end:id_end])],
                        )
                        break
                    except BufferError:
                        producer.poll(0.05)
                at = gtid_end
            producer.poll(0)
        producer.flush()

    return run


def send(connection: KafkaConnection, blocks: list[Block], _compression: str) -> Callable[[], None]:
    producer = kafka.KafkaProducer(**connection.kafka_python())
    records = [
        (block.topic, block.partition, message.key, message.value, [("changefeed.id", message.event_id)])
        for block in blocks
        for message in block.messages()
    ]

    def run() -> None:
        for topic, partition, key, value, headers in records:
            producer.send(topic, value, key, headers, partition)
        producer.flush()
        producer.close()

    return run


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--bootstrap", default=os.environ.get("KAFKA_BOOTSTRAP"))
    arguments.add_argument("--messages", type=int, default=500_000)
    arguments.add_argument("--send-messages", type=int, default=20_000)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--compression", default="lz4")
    given = arguments.parse_args()
    if given.bootstrap:
        _measure(given)
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        started(KafkaBroker(Path(folder) / "kafka", owner=ProcessId.own())) as broker,
    ):
        given.bootstrap = broker.bootstrap
        _measure(given)


def _measure(given: argparse.Namespace) -> None:
    connection = KafkaConnection(given.bootstrap)
    name = uuid.uuid4().hex[:8]
    topics = [f"bench-{name}.table{number}" for number in range(4)]
    small = {"retention.bytes": str(64 << 20), "segment.bytes": str(32 << 20)}
    ensure_topics(connection, dict.fromkeys(topics, TopicSettings(1, -1, small)))
    blocks = make_blocks(topics, given.messages)
    few = make_blocks(topics[:1], given.send_messages)
    ways = {"publisher": (publish, blocks), "plain": (plain, blocks), "send": (send, few)}
    rates: dict[str, list[float]] = {way: [] for way in ways}
    cpus: dict[str, list[float]] = {way: [] for way in ways}
    gc.disable()
    for turn in range(given.rounds):
        order = list(ways) if turn % 2 else list(reversed(ways))
        for way in order:
            make, what = ways[way]
            run = make(connection, what, given.compression)
            messages = sum(int.from_bytes(block.payload[:8], "little") for block in what)
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            rates[way].append(messages / (time.perf_counter() - wall))
            cpus[way].append((time.process_time() - cpu) / messages * 1e6)
    for way in ways:
        low, middle, high = min(rates[way]), statistics.median(rates[way]), max(rates[way])
        cpu = statistics.median(cpus[way])
        print(f"{way:10} records/s min {low:9,.0f} median {middle:9,.0f} max {high:9,.0f}   CPU µs/record {cpu:6.2f}")
    wall_ratio = statistics.median(rates["publisher"]) / statistics.median(rates["plain"])
    best_ratio = max(rates["publisher"]) / max(rates["plain"])
    cpu_ratio = statistics.median(cpus["publisher"]) / statistics.median(cpus["plain"])
    times = statistics.median(rates["publisher"]) / statistics.median(rates["send"])
    print(
        f"transactions and accounting: rate {wall_ratio:.2f} of plain by median, {best_ratio:.2f} by best; "
        f"CPU {cpu_ratio:.2f} times plain (wanted: rate at least 0.85)"
    )
    print(f"publisher is {times:.1f} times kafka-python's send", flush=True)


if __name__ == "__main__":
    main()
