"""Cut a window into slices: a small binlog file is one slice, a large one is cut at positions that the scout finds.

If one file is large, the driver scouts it in a thread, and its first slices are decoded meanwhile. Several large files
are scouted in parallel, one in each Spark task.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from threading import Event, Thread

from changefeed.binlog.search.scouting import Scouting, is_worth_cutting, number_slices
from changefeed.ingest.scouting import scout_in_tasks
from changefeed.model.statement import Statement
from changefeed.model.window import Slice
from changefeed.spark.stages.decode_task import DecodeTask
from changefeed.spark.stages.dump import open_dump, open_stored_dump
from changefeed.spark.target import SparkTarget


@dataclass(frozen=True)
class Cutting:
    """The next slices of a window, numbered in binlog order.

    ``statements`` are the statements after those of the previous cutting, at least up to the start of the last slice;
    None if not all files of the window are scouted.
    """

    slices: tuple[Slice, ...]
    statements: tuple[Statement, ...] | None
    is_last: bool = True


def cut_slices(
    spark: SparkTarget, task: DecodeTask, files: Sequence[Slice], slice_bytes: int, *, scout_all: bool = False
) -> Generator[Cutting, None, None]:
    """Yield the slices of a window. ``files`` has one slice for each file; large files are scouted, or all with
    ``scout_all``.

    The caller must close the iterator, because it may run a thread. Raises what the scout or the connection raises,
    when the next slices are requested.
    """
    cuts = not task.reads_one_by_one  # else scouting would only read the file a second time
    to_scout = [slice for slice in files if scout_all or (cuts and is_worth_cutting(slice.size_bytes, slice_bytes))]
    if not to_scout:
        yield Cutting(tuple(files), None)
    elif len(to_scout) == 1 and cuts:
        yield from _cut_while_scouting(task, files, to_scout[0], slice_bytes)
    else:
        yield _cut_after_scouting(spark, task, files, to_scout, slice_bytes)


def _cut_while_scouting(task: DecodeTask, files: Sequence[Slice], large: Slice, slice_bytes: int) -> Iterator[Cutting]:
    """Scout one file in a thread, and yield the slices that are known so far whenever the next ones are requested.

    Each cutting costs a Spark job, so the first has at least ``slice_bytes``, the second four times as much, then nine
    times and so on.
    """
    queue: SimpleQueue[Scouting | BaseException | None] = SimpleQueue()
    stopped = Event()

    def follow() -> None:
        try:
            for part in _scout_parts(task, files, large, slice_bytes):
                if stopped.is_set():
                    return
                queue.put(part)
            queue.put(None)
        except BaseException as error:  # raised in the thread of the caller
            queue.put(error)

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
                enough = sum(slice.size_bytes for slice in slices) >= cuttings**2 * slice_bytes
                try:
                    part = queue.get(block=not enough)
                except Empty:
                    break
                if isinstance(part, BaseException):
                    raise part
                if part is None:
                    is_last = True
                else:
                    slices += part.slices
                    statements += part.statements
            known = tuple(replace(slice, number=number + index) for index, slice in enumerate(slices))
            yield Cutting(known, tuple(statements) if len(files) == 1 else None, is_last)
            number += len(slices)
            slices, statements = [], []
    finally:
        stopped.set()
        thread.join()


def _cuts_inside(task: DecodeTask) -> bool:
    """Whether a slice may begin inside a transaction. It may not if the pipeline has a transaction topic, because then
    the messages of a transaction are numbered."""
    return task.connections.routes.transaction_topic is None


def _scout_parts(task: DecodeTask, files: Sequence[Slice], large: Slice, slice_bytes: int) -> Iterator[Scouting]:
    from changefeed.binlog.search.scout import scout_in_parts  # imported only to cut a file, as it loads the kernels

    for slice in files:
        if slice is large:
            yield from scout_in_parts(open_stored_dump(task, slice), slice, slice_bytes, cuts_inside=_cuts_inside(task))
        else:
            yield Scouting((slice,), (), 0)


def _cut_after_scouting(
    spark: SparkTarget, task: DecodeTask, files: Sequence[Slice], to_scout: Sequence[Slice], slice_bytes: int
) -> Cutting:
    found = scout_in_tasks(
        spark,
        to_scout,
        lambda slice: open_dump(task, slice),
        slice_bytes,
        task.readers(len(to_scout)),
        _cuts_inside(task),
    )
    scoutings = dict(zip((slice.number for slice in to_scout), found, strict=True))
    parts = (scoutings[slice.number].slices if slice.number in scoutings else (slice,) for slice in files)
    slices = tuple(number_slices(slice for part in parts for slice in part))
    if len(to_scout) < len(files):
        return Cutting(slices, None)
    return Cutting(slices, tuple(statement for scouting in found for statement in scouting.statements))
