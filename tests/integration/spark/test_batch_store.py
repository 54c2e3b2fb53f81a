"""Decoded batches reach the tasks that publish them, from files as through Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import cast

from faults.inline_spark import InlineSpark

from changefeed.model.window import Slice
from changefeed.records.batch import Batch
from changefeed.spark.stages.batch_store import BatchStore, batch_store
from changefeed.spark.stages.messages import Failure, StoredBatch, TaskMessage
from changefeed.spark.stages.payload_files import payload_file
from changefeed.spark.target import SparkTarget


def make_slice(number: int) -> Slice:
    return Slice(number, "bin.000001", 4, 100)


def stages(folder: str | None):  # type: ignore[no-untyped-def] # of functions that travel to workers by value
    """A decode stage that makes two batches for each of three partitions, and a publish stage that reports its
    batches."""

    def decode(slices: Sequence[Slice]) -> Iterator[StoredBatch | TaskMessage]:
        with payload_file(folder) as file:
            for each in slices:
                for number in range(6):
                    where = ("t", number % 3, "bin.000001", each.number, number)
                    payload = b"%d %d" % (each.number, number)
                    batch = Batch(*where, 1, 2, 3, b"gtid", 1, b"coordinates", payload)
                    yield StoredBatch.of(batch, number // 3, file)
                yield Failure("decoded", str(each.number))

    def publish(number: int, stored: Iterable[StoredBatch]) -> Iterator[TaskMessage]:
        yield Failure("task", str(number))
        for each in stored:
            batch = each.batch()
            yield Failure(f"{number} {batch.partition} {each.before}", batch.records.decode())

    return decode, publish


def failures(messages: Iterable[TaskMessage]) -> list[Failure]:
    """The messages, which are all failures, as a stage may return any message."""
    found = list(messages)
    assert all(isinstance(each, Failure) for each in found)
    return cast(list[Failure], found)


def check(store: BatchStore, folder: str | None) -> None:
    """Batches of five slices from three tasks are published in order."""
    decode, publish = stages(folder)
    tasks = [[make_slice(0), make_slice(3)], [make_slice(1), make_slice(4)], [make_slice(2)]]
    assert sorted(each.message for each in failures(store.decode(tasks, decode))) == list("01234")
    in_place = failures(store.publish(publish))
    assert [each.message for each in in_place if each.name == "task"] == ["0", "1", "2"]
    assert [each.message for each in in_place if each.name != "task"] == [
        f"{each.number} {number}" for task in tasks for each in task for number in range(6)
    ]
    assert store.decode([[make_slice(5)]], decode) == [Failure("decoded", "5")]
    assigned_tasks = {("t", 0): 1, ("t", 1): 0, ("t", 2): 1}
    assert store.publish(publish, assigned_tasks) == [
        message
        for task, partitions in ((0, (1,)), (1, (0, 2)))
        for message in [
            Failure("task", str(task)),
            *(
                Failure(f"{task} {partition} {before}", f"{slice_number} {partition + 3 * before}")
                for partition in partitions
                for slice_number in range(6)
                for before in range(2)
            ),
        ]
    ]
    store.clear()


def test_batches_get_through_spark_to_where_they_are_published(spark: SparkTarget) -> None:
    check(batch_store(spark, None), None)


def test_batches_get_through_files_to_where_they_are_published(tmp_path: Path) -> None:
    check(batch_store(InlineSpark(), str(tmp_path)), str(tmp_path))
    assert any(tmp_path.iterdir())
