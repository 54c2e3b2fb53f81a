"""The publish stage: stored batches -> Kafka, on any worker; and both stages of a window of one slice."""

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
from changefeed.spark.stages.expected import Decoded
from changefeed.spark.stages.messages import DecodedSlice, Failure, Published, StoredBatch, TaskMessage
from changefeed.spark.stages.payload_files import own_folder
from changefeed.spark.stages.publish_task import PublishTask, WindowPublishTask


def publish_batches(task: PublishTask, number: int, stored: Iterable[StoredBatch]) -> Iterator[TaskMessage]:
    """The publish stage in the Spark task of that ``number``: what is in Kafka by then, or a failure.

    Raises FencedError where a copy of this task took over: a message would be the task's result, and Spark would end
    the copy; as it is, the copy's counts.
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
    """The stage before it, where something was given before; it publishes nothing.

    Yields what the publish stage would leave out in the Spark task of that ``number``, or a failure where what was
    given is not what is ``stored`` now.
    """
    try:
        task.check_version()
        messages = task.compare(number, stored)
    except ChangefeedError as error:
        yield Failure.of(error)
    else:
        yield from messages


def check_before_publishing(task: WindowPublishTask, found: Iterable[TaskMessage]) -> None:
    """Compare what `compare_batches` yielded in all tasks with what was given before a failover.

    Raises AccountingError where it is not the same, and the first failure that is among it.
    """
    receipts: list[TopicPartitionReceipt] = []
    for message in found:
        if isinstance(message, Failure):
            raise message.error
        if isinstance(message, Published):
            receipts.append(message.receipt)
    task.check_left_out(receipts)


def decode_and_publish(
    decode: DecodeTask, publish: WindowPublishTask, slices: Sequence[Slice]
) -> Iterator[TaskMessage]:
    """Both stages of a window of one slice in one task, which keeps the batches in a file of its own.

    All is decoded before anything is published, as with many slices: what a transaction became is known at its end.
    """
    stored: list[StoredBatch] = []
    decoded, reports, is_complete = Decoded(), list[SliceReport](), True
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
        fault_point.reached("after_decode")
        try:
            publish = publish.settled(slices, reports, decoded, dict.fromkeys(decoded.messages, 0))
            stored.sort(key=lambda batch: batch.order)
            if publish.must_compare:
                check_before_publishing(publish, compare_batches(publish, 0, stored))
        except ChangefeedError as error:
            yield Failure.of(error)
            return
        yield from publish_batches(publish, 0, stored)
