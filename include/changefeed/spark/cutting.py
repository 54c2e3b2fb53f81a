"""Cutting a window into slices: closed files as they are, larger ones where the scout says.

What is known is decoded while the scout goes on: where one file is to be scouted the driver reads it, and hands out its
slices as they are found. Of several files each is one task's, so that all cores are at it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from threading import Event, Thread

import orjson
import pyarrow as pa
from pyspark.sql import SparkSession

from changefeed.binlog.search.scout import Scouting, is_worth_cutting, numbered, scout, scout_in_parts
from changefeed.errors import ChangefeedError
from changefeed.reader import Statement
from changefeed.spark import frame
from changefeed.spark.dump import dump_of
from changefeed.spark.job import IngestJob
from changefeed.spark.progress import shown
from changefeed.spark.slices import slice_frame
from changefeed.window import Slice


@dataclass(frozen=True)
class Cutting:
    """The next slices of a window, in binlog order and numbered so.

    ``statements`` go on where those of the cutting before end, and reach at least to the start of the last of
    ``slices``; None where not all files of the window are scouted.
    """

    slices: tuple[Slice, ...]
    statements: tuple[Statement, ...] | None
    is_last: bool = True


def cut(
    spark: SparkSession, job: IngestJob, files: Sequence[Slice], slice_bytes: int, *, scout_all: bool = False
) -> Generator[Cutting, None, None]:
    """Cut a window. ``files`` are its whole-file slices, of which the large ones are scouted, or all.

    Close the iterator: it may have a thread. Raises what the scout or the connection raises; where that happens while
    slices are decoded, when the next ones are asked for.
    """
    wanted = [piece for piece in files if scout_all or is_worth_cutting(piece.size_bytes, slice_bytes)]
    if not wanted:
        yield Cutting(tuple(files), None)
    elif len(wanted) == 1:
        yield from _as_known(job, files, wanted[0], slice_bytes)
    else:
        yield _at_once(spark, job, files, wanted, slice_bytes)


def _as_known(job: IngestJob, files: Sequence[Slice], large: Slice, slice_bytes: int) -> Iterator[Cutting]:
    """Scout one file in a thread, and yield all slices that are known whenever the next ones are asked for.

    The number of cuttings is bounded for any number of slices: each has a slice's bytes more than the last had to have.
    """
    news: SimpleQueue[Scouting | BaseException | None] = SimpleQueue()
    stopped = Event()

    def follow() -> None:
        try:
            for part in _parts(job, files, large, slice_bytes):
                if stopped.is_set():
                    return
                news.put(part)
            news.put(None)
        except BaseException as error:  # raised in the thread that asks
            news.put(error)

    thread = Thread(target=follow, name="changefeed-scout", daemon=True)
    thread.start()
    try:
        slices: list[Slice] = []
        statements: list[Statement] = []
        number = cuttings = 0
        is_last = False
        while not is_last:
            cuttings += 1
            while not is_last:
                enough = sum(piece.size_bytes for piece in slices) >= cuttings * slice_bytes
                try:
                    part = news.get(block=not enough)
                except Empty:
                    break
                if isinstance(part, BaseException):
                    raise part
                if part is None:
                    is_last = True
                else:
                    slices += part.slices
                    statements += part.statements
            known = tuple(replace(piece, number=number + index) for index, piece in enumerate(slices))
            yield Cutting(known, tuple(statements) if len(files) == 1 else None, is_last)
            number += len(slices)
            slices, statements = [], []
    finally:
        stopped.set()
        thread.join()


def _parts(job: IngestJob, files: Sequence[Slice], large: Slice, slice_bytes: int) -> Iterator[Scouting]:
    for piece in files:
        if piece is large:
            yield from scout_in_parts(dump_of(job, piece, beside=True), piece, slice_bytes)
        else:
            yield Scouting((piece,), (), 0)


def _at_once(
    spark: SparkSession, job: IngestJob, files: Sequence[Slice], wanted: Sequence[Slice], slice_bytes: int
) -> Cutting:
    scoutings = dict(zip((piece.number for piece in wanted), _scout(spark, job, wanted, slice_bytes), strict=True))
    parts = (scoutings[piece.number].slices if piece.number in scoutings else (piece,) for piece in files)
    slices = numbered(piece for part in parts for piece in part)
    if len(wanted) < len(files):
        return Cutting(tuple(slices), None)
    return Cutting(
        tuple(slices), tuple(statement for scouting in scoutings.values() for statement in scouting.statements)
    )


def _scout(spark: SparkSession, job: IngestJob, large: Sequence[Slice], slice_bytes: int) -> list[Scouting]:
    def scout_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for piece in frame.slices_of(batches):
            try:
                scouting = scout(dump_of(job, piece), piece, slice_bytes)
            except ChangefeedError as error:
                yield frame.published_batch("error", frame.error_text(error))
            else:
                yield frame.published_batch("scouting", orjson.dumps([piece.number, scouting]).decode())

    with shown(spark, "scout", len(large)):
        rows = slice_frame(spark, job, large).mapInArrow(scout_files, frame.PUBLISHED_SCHEMA).collect()
    scoutings: dict[int, Scouting] = {}
    for row in rows:
        if row.kind == "error":
            raise frame.error_from(row.text)
        number, values = orjson.loads(row.text)
        scoutings[number] = Scouting(
            tuple(Slice(**piece) for piece in values["slices"]),
            tuple(Statement(**statement) for statement in values["statements"]),
            values["events"],
        )
    return [scoutings[piece.number] for piece in large]
