"""Cutting a window into slices: closed files as they are, larger ones where the scout says.

What is known is decoded while the scout goes on: where one file is to be scouted the driver reads it, and hands out its
slices as they are found. Of several files each is one task's, so that all cores are at it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from threading import Event, Thread

from changefeed.binlog.search.scouting import Scouting, is_worth_cutting, numbered
from changefeed.ingest.scouting import scouted
from changefeed.model.statement import Statement
from changefeed.model.window import Slice
from changefeed.spark.stages.decode_task import DecodeTask
from changefeed.spark.stages.dump import dump_of, kept_dump_of
from changefeed.spark.target import SparkTarget


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
    spark: SparkTarget, task: DecodeTask, files: Sequence[Slice], slice_bytes: int, *, scout_all: bool = False
) -> Generator[Cutting, None, None]:
    """Cut a window. ``files`` are its whole-file slices, of which the large ones are scouted, or all.

    Close the iterator: it may have a thread. Raises what the scout or the connection raises; where that happens while
    slices are decoded, when the next ones are asked for.
    """
    cuts = not task.reads_one_by_one  # or slices are read one after another, and the scout would read all once more
    wanted = [piece for piece in files if scout_all or (cuts and is_worth_cutting(piece.size_bytes, slice_bytes))]
    if not wanted:
        yield Cutting(tuple(files), None)
    elif len(wanted) == 1 and cuts:
        yield from _as_known(task, files, wanted[0], slice_bytes)
    else:
        yield _at_once(spark, task, files, wanted, slice_bytes)


def _as_known(task: DecodeTask, files: Sequence[Slice], large: Slice, slice_bytes: int) -> Iterator[Cutting]:
    """Scout one file in a thread, and yield all slices that are known whenever the next ones are asked for.

    The cuttings, of which each costs a Spark job, have to hold one slice's bytes at least, then four, nine and so on.
    """
    news: SimpleQueue[Scouting | BaseException | None] = SimpleQueue()
    stopped = Event()

    def follow() -> None:
        try:
            for part in _parts(task, files, large, slice_bytes):
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
                enough = sum(piece.size_bytes for piece in slices) >= cuttings**2 * slice_bytes
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


def _cuts_inside(task: DecodeTask) -> bool:
    """Whether a slice may begin inside a transaction: not where its messages are numbered."""
    return task.connections.routes.transaction_topic is None


def _parts(task: DecodeTask, files: Sequence[Slice], large: Slice, slice_bytes: int) -> Iterator[Scouting]:
    from changefeed.binlog.search.scout import scout_in_parts  # not before a file is cut: it loads the kernels

    for piece in files:
        if piece is large:
            yield from scout_in_parts(kept_dump_of(task, piece), piece, slice_bytes, cuts_inside=_cuts_inside(task))
        else:
            yield Scouting((piece,), (), 0)


def _at_once(
    spark: SparkTarget, task: DecodeTask, files: Sequence[Slice], wanted: Sequence[Slice], slice_bytes: int
) -> Cutting:
    found = scouted(
        spark,
        wanted,
        lambda piece: dump_of(task, piece),
        slice_bytes,
        task.readers(len(wanted)),
        _cuts_inside(task),
    )
    scoutings = dict(zip((piece.number for piece in wanted), found, strict=True))
    parts = (scoutings[piece.number].slices if piece.number in scoutings else (piece,) for piece in files)
    slices = tuple(numbered(piece for part in parts for piece in part))
    if len(wanted) < len(files):
        return Cutting(slices, None)
    return Cutting(slices, tuple(statement for scouting in found for statement in scouting.statements))
