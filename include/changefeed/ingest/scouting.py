"""Scout several binlog files in parallel, one in each Spark task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from changefeed.binlog.search.scouting import Scouting
from changefeed.errors import ChangefeedError
from changefeed.model.statement import Statement
from changefeed.model.window import Slice
from changefeed.spark.progress import show_progress
from changefeed.spark.stages.decoding import divide_slices
from changefeed.spark.stages.messages import Failure, TaskMessage
from changefeed.spark.target import SparkTarget


@dataclass(frozen=True)
class ScoutedFile(TaskMessage):
    """The result of scouting the file whose slice has ``number``."""

    number: int
    scouting: Scouting

    @classmethod
    def from_json(cls, values: Any, /) -> Self:
        scouting = values["scouting"]
        slices = tuple(Slice(**slice) for slice in scouting["slices"])
        statements = tuple(Statement(**statement) for statement in scouting["statements"])
        return cls(values["number"], Scouting(slices, statements, scouting["events"]))


def scout_in_tasks(
    spark: SparkTarget,
    slices: Sequence[Slice],
    dump: Callable[[Slice], Iterable[bytes]],
    slice_bytes: int,
    most_tasks: int,
    cuts_inside: bool = True,
) -> list[Scouting]:
    """The scout's result for each of ``slices``; ``dump`` is called in the tasks. Raises what the scout and ``dump``
    raise."""

    def scout_files(files: Iterable[Slice]) -> Iterator[ScoutedFile | Failure]:
        from changefeed.binlog.search.scout import scout  # only workers import the scout here

        for slice in files:
            try:
                scouting = scout(dump(slice), slice, slice_bytes, cuts_inside=cuts_inside)
            except ChangefeedError as error:
                yield Failure.of(error)
            else:
                yield ScoutedFile(slice.number, scouting)

    with show_progress(spark, "scout", len(slices)):
        messages = spark.results_of(divide_slices(slices, most_tasks), scout_files)
    scoutings: dict[int, Scouting] = {}
    for message in messages:
        if isinstance(message, Failure):
            raise message.error
        if isinstance(message, ScoutedFile):
            scoutings[message.number] = message.scouting
    return [scoutings[slice.number] for slice in slices]
