"""Scouting of several files at once: one task of Spark a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from changefeed.binlog.search.scouting import Scouting
from changefeed.errors import ChangefeedError
from changefeed.model.statement import Statement
from changefeed.model.window import Slice
from changefeed.spark.progress import shown
from changefeed.spark.stages.decoding import shared_out
from changefeed.spark.stages.messages import Failure, TaskMessage
from changefeed.spark.target import SparkTarget


@dataclass(frozen=True)
class ScoutedFile(TaskMessage):
    """What the scout found in a file, which is the piece of that number."""

    number: int
    scouting: Scouting

    @classmethod
    def from_json(cls, values: Any, /) -> Self:
        scouting = values["scouting"]
        slices = tuple(Slice(**piece) for piece in scouting["slices"])
        statements = tuple(Statement(**statement) for statement in scouting["statements"])
        return cls(values["number"], Scouting(slices, statements, scouting["events"]))


def scouted(
    spark: SparkTarget,
    pieces: Sequence[Slice],
    dump: Callable[[Slice], Iterable[bytes]],
    slice_bytes: int,
    most_tasks: int,
    cuts_inside: bool = True,
) -> list[Scouting]:
    """What the scout says of each of ``pieces``. Raises what it raises, and ``dump``, which is called in the tasks."""

    def scout_files(files: Iterable[Slice]) -> Iterator[ScoutedFile | Failure]:
        from changefeed.binlog.search.scout import scout  # only workers scout several files

        for piece in files:
            try:
                scouting = scout(dump(piece), piece, slice_bytes, cuts_inside=cuts_inside)
            except ChangefeedError as error:
                yield Failure.of(error)
            else:
                yield ScoutedFile(piece.number, scouting)

    with shown(spark, "scout", len(pieces)):
        messages = spark.results_of(shared_out(pieces, most_tasks), scout_files)
    scoutings: dict[int, Scouting] = {}
    for message in messages:
        if isinstance(message, Failure):
            raise message.error
        if isinstance(message, ScoutedFile):
            scoutings[message.number] = message.scouting
    return [scoutings[piece.number] for piece in pieces]
