"""The publish stage: stored batches -> Kafka, on a worker; and both stages of a window with one slice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace

from changefeed.errors import ChangefeedError, FencedError
from changefeed.model import fault_point
from changefeed.model.manifest import TopicPartitionReceipt
from changefeed.model.slice_report import SliceReport
from changefeed.model.window import Slice
from changefeed.spark.stages.decode import decode_slices
from changefeed.spark.stages.decode_task import DecodeTask
from changefeed.spark.stages.expected import DecodedCounts
from changefeed.spark.stages.messages import DecodedSlice, Failure, PublishedPartition, StoredBatch, TaskMessage
from changefeed.spark.stages.payload_files import own_folder
from changefeed.spark.stages.publish_task import PublishTask, WindowPublishTask


def publish_batches(task: PublishTask, number: int, stored: Iterable[StoredBatch]) -> Iterator[TaskMessage]:
    """The publish stage in Spark task ``number``: yield a receipt for each topic-partition, or a failure.

    Raises FencedError if a speculative copy of this task took over. A yielded failure would be the task's result, and
    Spark would end the copy; after an exception the copy's result counts.
    """
    try:
        task.check_version()
        messages = task.publish(number, stored)
    except ChangefeedError as error:
        if isinstance(error, FencedError) and task.copies and task.is_latest:
            raise
        yield Failure.of(error)
    else:
        yield from messages


def compare_batches(task: WindowPublishTask, number: int, stored: Iterable[StoredBatch]) -> Iterator[TaskMessage]:
    """The compare stage, which runs before the publish stage of a retry; it publishes nothing.

    Yields the messages that the publish stage would leave out in Spark task ``number``, or a failure if the published
    messages differ from the ``stored`` ones.
    """
    try:
        task.check_version()
        messages = task.compare(number, stored)
    except ChangefeedError as error:
        yield Failure.of(error)
    else:
        yield from messages


def check_before_publishing(task: WindowPublishTask, messages: Iterable[TaskMessage]) -> None:
    """Check the messages that `compare_batches` yielded in all tasks; call it before the publish stage.

    Raises AccountingError if they are not the messages that were published before a failover, and the error of the
    first failure.
    """
    receipts: list[TopicPartitionReceipt] = []
    for message in messages:
        if isinstance(message, Failure):
            raise message.error
        if isinstance(message, PublishedPartition):
            receipts.append(message.receipt)
    task.check_left_out(receipts)


def decode_and_publish(
    decode: DecodeTask, publish: WindowPublishTask, slices: Sequence[Slice]
) -> Iterator[TaskMessage]:
    """Decode and publish a window with one slice in one task, which stores the batches in its own file.

    As with many slices, everything is decoded before anything is published, because the outcome of a transaction is
    known only at its end.
    """
    stored: list[StoredBatch] = []
    decoded, reports, is_complete = DecodedCounts(), list[SliceReport](), True
    with nullcontext(decode.folder) if decode.folder is not None else own_folder() as folder:
        for item in decode_slices(replace(decode, folder=folder), slices, lambda _messages: None):
            match item:
                case StoredBatch():
                    stored.append(item)
                    continue
                case DecodedSlice():
                    decoded.add(item.counts)
                    reports.append(item.report)
                case Failure():
                    is_complete = False
            yield item
        if not is_complete:
            return
        fault_point.reach("after_decode")
        try:
            publish = publish.with_decoded(slices, reports, decoded, dict.fromkeys(decoded.messages, 0))
            stored.sort(key=lambda batch: batch.order)
            if publish.must_compare:
                check_before_publishing(publish, compare_batches(publish, 0, stored))
        except ChangefeedError as error:
            yield Failure.of(error)
            return
        yield from publish_batches(publish, 0, stored)
