"""The publish stage: blocks sorted by topic, partition and binlog order -> Kafka, on any worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict

import orjson
import pyarrow as pa

from changefeed import fault_point
from changefeed.block import Block
from changefeed.block_filter import BlockFilter, FilterChain
from changefeed.errors import ChangefeedError
from changefeed.failover import PublishedFilter
from changefeed.kafka.account import Receipt
from changefeed.kafka.publisher import Publisher
from changefeed.kafka.topics import TopicLimits, commit_log_topic, dead_letter_topic, ensure_topics, topic_limits
from changefeed.manifest import TopicPartitionReceipt
from changefeed.reader import SliceReport
from changefeed.runs.topics import table_topic_settings
from changefeed.spark import frame
from changefeed.spark.decode import read_slices
from changefeed.spark.job import IngestJob


def publisher(job: IngestJob, task: int, limits: Mapping[str, TopicLimits]) -> Publisher:
    """The publisher of one task. ``limits`` may grow while it is open; see `with_topics`."""
    kafka = job.pipeline.kafka
    return Publisher(
        job.endpoints.kafka,
        job.identity,
        task,
        job.window.number,
        commit_log_topic(job.pipeline.name),
        limits,
        kafka.publishing,
        source=job.window.server_uuid,
        attempt=job.attempt,
        dead_letter=dead_letter_topic(job.pipeline.name) if kafka.on_bad_record == "dead_letter" else None,
        on_stage=fault_point.reached,
    )


def filters_of(job: IngestJob) -> list[BlockFilter]:
    """What leaves messages out of the window's blocks, in the order in which they are asked.

    Failover's is the last: it counts messages as the publisher does, which sees what the others leave.
    """
    filters: list[BlockFilter] = []
    if job.window.failover is not None:
        filters.append(PublishedFilter(job.window.failover, job.marks))
    return filters


def with_topics(job: IngestJob, limits: dict[str, TopicLimits], blocks: Iterable[Block]) -> Iterator[Block]:
    """Pass ``blocks`` on, making the topic of a table that is in the binlog and not on the server any more."""
    for block in blocks:
        if block.topic not in limits:
            ensure_topics(job.endpoints.kafka, {block.topic: table_topic_settings(job.pipeline)})
            limits |= topic_limits(job.endpoints.kafka, [block.topic])
        yield block


def publish_batches(
    job: IngestJob, task: int, batches: Iterable[pa.RecordBatch], count: Callable[[int], None]
) -> Iterator[pa.RecordBatch]:
    """`mapInArrow` of the publish stage: a receipt a topic-partition, or an error; ``count`` gets their messages."""
    chain = FilterChain(filters_of(job))
    try:
        limits = dict(job.limits)
        with publisher(job, task, limits) as open_publisher:
            receipts = open_publisher.publish(with_topics(job, limits, chain.rest(frame.blocks_of(batches))))
    except ChangefeedError as error:
        yield frame.published_batch("error", frame.error_text(error))
        return
    count(sum(receipt.messages for receipt in receipts))
    yield from _receipt_batches(receipts, chain)


def decode_and_publish_batches(job: IngestJob, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """`mapInArrow` of a window of one slice: both stages in one task, without a shuffle."""
    reports: list[SliceReport] = []
    sizes = frame.Sizes()
    chain = FilterChain(filters_of(job))

    def blocks() -> Iterator[Block]:
        for item in read_slices(job, frame.slices_of(batches)):
            if isinstance(item, Block):
                sizes.add_block(item)
                yield item
            else:
                reports.append(item)

    try:
        limits = dict(job.limits)
        with publisher(job, 0, limits) as open_publisher:
            receipts = open_publisher.publish(with_topics(job, limits, chain.rest(blocks())))
    except ChangefeedError as error:
        yield frame.published_batch("error", frame.error_text(error))
        return
    for report in reports:
        yield frame.published_batch("report", frame.report_text(report))
    yield frame.published_batch("sizes", sizes.text())
    yield from _receipt_batches(receipts, chain)


def _receipt_batches(receipts: Iterable[Receipt], chain: FilterChain) -> Iterator[pa.RecordBatch]:
    dropped = dict(chain.dropped)
    for receipt in receipts:
        counts = dropped.pop((receipt.topic, receipt.partition), None)
        yield frame.published_batch("receipt", receipt_text(receipt, counts or {}))
    for (topic, partition), counts in dropped.items():
        nothing = TopicPartitionReceipt(topic, partition, 0, 0, 0, 0, None, None, dict(counts))
        yield frame.published_batch("receipt", orjson.dumps(asdict(nothing)).decode())


def receipt_text(receipt: Receipt, dropped: Mapping[str, int]) -> str:
    """A receipt for the driver; offsets are those of the whole window, over all attempts at it."""
    whole = receipt.window if receipt.window and receipt.window.window else None
    given = TopicPartitionReceipt(
        topic=receipt.topic,
        partition=receipt.partition,
        messages=receipt.messages,
        already_there=receipt.already_there,
        value_bytes=receipt.value_bytes,
        dead_letters=receipt.dead_letters,
        first_offset=whole.first_offset if whole else receipt.first_offset,
        last_offset=whole.last_offset if whole else receipt.last_offset,
        dropped=dict(dropped),
    )
    return orjson.dumps(asdict(given)).decode()
