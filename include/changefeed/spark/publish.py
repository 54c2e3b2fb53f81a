"""The publish stage: batches in the order of topic, partition and binlog -> Kafka, on any worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from changefeed import fault_point
from changefeed.batches.batch import Batch
from changefeed.batches.filter_chain import FilterChain
from changefeed.block_filter import BlockFilter
from changefeed.errors import ChangefeedError, FencedError
from changefeed.failover import PublishedFilter
from changefeed.kafka.account import Receipt
from changefeed.kafka.publisher import Publisher
from changefeed.kafka.topics import TopicLimits, commit_log_topic, dead_letter_topic
from changefeed.manifest import TopicPartitionReceipt
from changefeed.pipelines.pipeline import Pipeline
from changefeed.runs.unfinished import check_given
from changefeed.spark import frame
from changefeed.spark.decode import decode_batches, encoder_of
from changefeed.spark.expected import Decoded, SliceCounts, WholeBatches
from changefeed.spark.job import IngestJob
from changefeed.spark.spool import Spool
from changefeed.window import Slice


def publisher(job: IngestJob, task: int, limits: Mapping[str, TopicLimits]) -> Publisher:
    """The publisher of one task."""
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
        dead_letter=dead_letters_of(job.pipeline),
        on_stage=fault_point.reached,
    )


def dead_letters_of(pipeline: Pipeline) -> str | None:
    """The topic for what cannot be published; None where such a record or change stops the run."""
    return dead_letter_topic(pipeline.name) if pipeline.kafka.on_bad_record == "dead_letter" else None


def filters_of(job: IngestJob) -> list[BlockFilter]:
    """What leaves messages out of the window's batches, in the order in which they are asked.

    Failover's is the last: it counts messages as the publisher does, which sees what the others leave.
    """
    filters = job.settlement.filters
    if job.window.failover is not None:
        filters.append(PublishedFilter(job.window.failover, job.marks))
    return filters


def publish_batches(
    job: IngestJob,
    task: int,
    batches: Iterable[tuple[Batch, int]],
    count: Callable[[int], None],
    expected: SliceCounts,
) -> Iterator[tuple[str, str]]:
    """The publish stage: kind and text of a receipt a topic-partition, or of an error; ``count`` gets their messages.

    ``batches`` come with how many messages of their slice and topic-partition stand before each. ``expected`` is what
    the slices were decoded into for this task's topic-partitions: nothing is published behind a message that is
    missing. Raises FencedError where a copy of this task took over: a row would be the task's result, and Spark would
    end the copy; as it is, the copy's counts.
    """
    chain = FilterChain(filters_of(job), encoder_of(job))
    whole = WholeBatches(expected)
    try:
        job.topics.learn({topic for topic, _ in expected})
        with publisher(job, task, job.topics.known) as open_publisher:
            receipts = open_publisher.publish(chain.rest(whole.passed(batches)))
    except ChangefeedError as error:
        if isinstance(error, FencedError) and job.copies and _is_latest(job):
            raise
        yield "error", frame.error_text(error)
        return
    count(sum(receipt.messages for receipt in receipts))
    yield from _receipts(receipts, chain)


def _is_latest(job: IngestJob) -> bool:
    """Whether no newer attempt has begun, so that it can only be a copy of this task that took over."""
    return job.endpoints.commit_log(job.identity).read().attempt == job.attempt


def decode_and_publish_batches(job: IngestJob, slices: Iterable[Slice]) -> Iterator[pa.RecordBatch]:
    """Of a window of one slice: both stages in one task, without a shuffle.

    All is decoded before anything is published, as with many slices: what a transaction became is known at its end.
    """
    decoded = Decoded()
    with Spool() as spool:
        results: list[tuple[str, str]] = []
        spool.write(_without_results(decode_batches(job, slices, lambda _messages: None), results))
        for kind, text in results:
            yield frame.published_batch(kind, text)
            if kind == "sizes":
                decoded.add_text(text)
        if any(kind == "error" for kind, _ in results):
            return
        fault_point.reached("after_decode")
        try:
            check_given(job.window, job.given, decoded.messages)
            job = job.settled([frame.report_from(text) for kind, text in results if kind == "report"])
        except ChangefeedError as error:
            yield frame.published_batch("error", frame.error_text(error))
            return
        batches = frame.finished_batches(spool.read())
        for kind, text in publish_batches(job, 0, batches, lambda _messages: None, decoded.by_slice):
            yield frame.published_batch(kind, text)


def _without_results(batches: Iterable[pa.RecordBatch], results: list[tuple[str, str]]) -> Iterator[pa.RecordBatch]:
    """The finished batches among decoded rows; reports, sizes and errors go to ``results``."""
    for batch in batches:
        is_batch = pc.equal(batch["kind"], "batch")
        results += [(row["kind"], row["text"]) for row in batch.filter(pc.invert(is_batch)).to_pylist()]
        yield batch.filter(is_batch)


def _receipts(receipts: Iterable[Receipt], chain: FilterChain) -> Iterator[tuple[str, str]]:
    dropped = dict(chain.dropped)
    for receipt in receipts:
        counts = dropped.pop((receipt.topic, receipt.partition), None)
        yield "receipt", receipt_text(receipt, counts or {})
    for (topic, partition), counts in dropped.items():
        nothing = TopicPartitionReceipt(topic, partition, 0, 0, 0, 0, None, None, dict(counts))
        yield "receipt", orjson.dumps(asdict(nothing)).decode()


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
