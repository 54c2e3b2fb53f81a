"""The decode stage: slices -> finished batches, on a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from changefeed.errors import ChangefeedError
from changefeed.kafka.window_topics import WindowTopics
from changefeed.model import fault_point
from changefeed.model.window import Slice
from changefeed.records.block import MessageBlock
from changefeed.settings.pipeline import Pipeline
from changefeed.spark.stages.decode_task import DecodeTask
from changefeed.spark.stages.expected import DecodedCounts
from changefeed.spark.stages.messages import DecodedSlice, Failure, StoredBatch
from changefeed.spark.stages.payload_files import payload_file
from changefeed.spark.warm_up import freeze_modules

if TYPE_CHECKING:
    from changefeed.records.encoder import BatchEncoder


def encoder_of(pipeline: Pipeline, topics: WindowTopics) -> BatchEncoder:
    """The encoder of batches for ``topics``, with the settings of ``pipeline``."""
    from changefeed.records.encoder import BatchEncoder  # only workers load the kernels

    return BatchEncoder(pipeline.kafka.publish_settings, lambda topic: topics.of(topic).for_batches())


def decode_slices(
    task: DecodeTask, slices: Iterable[Slice], count: Callable[[int], None]
) -> Iterator[StoredBatch | DecodedSlice | Failure]:
    """The decode stage: yield the batches of each slice, then its report, or a failure.

    ``count`` is called with the number of messages of each batch.
    """
    try:
        task.check_version()
    except ChangefeedError as error:
        yield Failure.of(error)
        return
    from changefeed.spark.stages.readers import reader_of  # as above

    freeze_modules()
    reader = reader_of(task)
    encoder = encoder_of(task.pipeline, task.topics)
    with payload_file(task.folder) as file:
        for slice in slices:
            decoded, number = DecodedCounts(), 0
            try:
                for item in reader.read(slice):
                    fault_point.reach("in_decode")
                    if isinstance(item, MessageBlock):
                        for batch in encoder.batches(item, number=number):
                            count(batch.messages)
                            yield StoredBatch.of(batch, decoded.add_batch(batch), file)
                            number = batch.number + 1
                    else:
                        yield DecodedSlice(item, decoded.counts())
            except ChangefeedError as error:
                yield Failure.of(error)
