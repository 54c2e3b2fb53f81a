"""Scouting of several files at once: one task of Spark a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import orjson
import pyarrow as pa
from pyspark.sql import SparkSession

from changefeed.binlog.search.scouting import Scouting
from changefeed.endpoints.endpoints import Endpoints
from changefeed.errors import ChangefeedError
from changefeed.mysql.dump import DumpStream
from changefeed.mysql.source import session_on
from changefeed.reader import Statement
from changefeed.spark import frame
from changefeed.spark.failures import named_failures
from changefeed.spark.progress import shown
from changefeed.spark.slices import shared_out
from changefeed.spark.tasks import in_tasks
from changefeed.window import Slice, Window

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


def statements_of(
    spark: SparkSession, endpoints: Endpoints, window: Window
) -> Callable[[Sequence[Slice]], Iterator[Statement]]:
    """A reader of the statements in files of ``window``'s server, for what is learned of them before it is read."""

    mysql, heartbeat_seconds = endpoints.mysql, endpoints.pipeline.source.heartbeat_seconds

    def dump(piece: Slice) -> Iterable[bytes]:
        session = session_on(mysql, window.server_uuid)
        return DumpStream(
            session, file=piece.file, start=piece.start, end=piece.end, heartbeat_seconds=heartbeat_seconds
        )

    def statements(pieces: Sequence[Slice]) -> Iterator[Statement]:
        with named_failures(window):
            scoutings = scouted(spark, pieces, dump, _NO_CUTS, len(pieces))
        for scouting in scoutings:
            yield from scouting.statements

    return statements
