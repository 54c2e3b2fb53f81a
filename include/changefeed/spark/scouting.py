"""Scouting of several files at once: one task of Spark a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import orjson
import pyarrow as pa
from pyspark.sql import SparkSession

from changefeed.binlog.search.scouting import Scouting
from changefeed.errors import ChangefeedError
from changefeed.reader import Statement
from changefeed.spark import frame
from changefeed.spark.progress import shown
from changefeed.spark.slices import shared_out
from changefeed.spark.tasks import in_tasks
from changefeed.window import Slice

_NO_CUTS = 1 << 62


def scouted(
    spark: SparkSession,
    pieces: Sequence[Slice],
    dump: Callable[[Slice], Iterable[bytes]],
    slice_bytes: int,
    most_tasks: int,
    cuts_inside: bool = True,
) -> list[Scouting]:
    """What the scout says of each of ``pieces``. Raises what it raises, and ``dump``, which is called in the tasks."""

    def scout_files(files: Iterable[Slice]) -> Iterator[pa.RecordBatch]:
        from changefeed.binlog.search.scout import scout  # only workers scout several files

        for piece in files:
            try:
                scouting = scout(dump(piece), piece, slice_bytes, cuts_inside=cuts_inside)
            except ChangefeedError as error:
                yield frame.published_batch("error", frame.error_text(error))
            else:
                yield frame.published_batch("scouting", orjson.dumps([piece.number, scouting]).decode())

    with shown(spark, "scout", len(pieces)):
        rows = in_tasks(spark, shared_out(pieces, most_tasks), scout_files)
    scoutings: dict[int, Scouting] = {}
    for kind, text in rows:
        if kind == "error":
            raise frame.error_from(text)
        number, values = orjson.loads(text)
        scoutings[number] = Scouting(
            tuple(Slice(**piece) for piece in values["slices"]),
            tuple(Statement(**statement) for statement in values["statements"]),
            values["events"],
        )
    return [scoutings[piece.number] for piece in pieces]
