"""Slices of a large file are returned while a thread still scouts it; the thread ends with its caller."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from binlog_events import FILE, Event, description, gtid, query, rows, written

from changefeed.binlog.events.framing import EventType
from changefeed.errors import SourceUnavailableError
from changefeed.ingest import slicing as cutting
from changefeed.model.window import Slice

TRANSACTIONS, SLICE_BYTES = 100, 2_000
DATA = written(
    [
        description(),
        *(
            event
            for number in range(1, TRANSACTIONS + 1)
            for event in (
                gtid(number),
                query("BEGIN"),
                rows(200, ends=True),
                Event(EventType.XID, bytes(8)),
                *([gtid(1000 + number), query("CREATE TABLE t (a INT)")] if number % 9 == 0 else []),
            )
        ),
    ]
)
LARGE = Slice(0, FILE, 4, 4 + len(DATA))
SMALL = Slice(1, "bin.000002", 4, 500)


class Dump:
    """The dump of LARGE in small chunks; the first ``free`` chunks may be read at once; it fails after ``fails``
    chunks."""

    def __init__(self, free: int = 10**9, fails: bool = False) -> None:
        self._allowed, self._left = threading.Semaphore(free), free if fails else 10**9
        self.ended = threading.Event()

    def allow(self, chunks: int) -> None:
        self._allowed.release(chunks)

    def __iter__(self) -> Iterator[bytes]:
        try:
            for at in range(0, len(DATA), 100):
                if at // 100 == self._left:
                    raise SourceUnavailableError("the server closed the connection")
                self._allowed.acquire()
                yield DATA[at : at + 100]
        finally:
            self.ended.set()


def cut_slices(dump: Dump, monkeypatch: pytest.MonkeyPatch, *files: Slice, scout_all: bool = False) -> Any:
    monkeypatch.setattr(cutting, "open_stored_dump", lambda *_, **__: dump)
    nothing: Any = None
    routes = SimpleNamespace(transaction_topic=None)
    job: Any = SimpleNamespace(connections=SimpleNamespace(routes=routes), reads_one_by_one=False)
    return cutting.cut_slices(nothing, job, files, SLICE_BYTES, scout_all=scout_all)


def scouting_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "changefeed-scout"]


def test_the_first_slice_is_there_while_the_rest_of_its_file_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    dump = Dump(free=SLICE_BYTES // 100 + 5)
    with closing(cut_slices(dump, monkeypatch, LARGE)) as cuttings:
        first = next(cuttings)
        assert len(first.slices) == 1
        assert not first.is_last
        dump.allow(10**6)
        rest = list(cuttings)
    assert rest[-1].is_last
    assert not any(each.is_last for each in rest[:-1])
    assert len(rest) < 10, "each cutting has more slices than the last"
    slices = [slice for each in (first, *rest) for slice in each.slices]
    assert [slice.number for slice in slices] == list(range(len(slices)))
    assert [slice.start for slice in slices] == [4, *(slice.end for slice in slices[:-1])]
    assert slices[-1].end == LARGE.end


def test_all_statements_before_a_slice_are_known_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    to_scout = [at for at in range(len(DATA)) if DATA.startswith(b"CREATE", at)]
    known = 0
    with closing(cut_slices(Dump(), monkeypatch, LARGE)) as cuttings:
        for each in cuttings:
            known += len(each.statements)
            assert known >= sum(at + 4 < each.slices[-1].start for at in to_scout)


def test_small_files_beside_it_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Slice(0, "bin.000000", 4, 900)
    with closing(cut_slices(Dump(), monkeypatch, before, LARGE, SMALL)) as cuttings:
        all_cuttings = list(cuttings)
    slices = [slice for each in all_cuttings for slice in each.slices]
    assert [slice.number for slice in slices] == list(range(len(slices)))
    assert list(dict.fromkeys(slice.file for slice in slices)) == ["bin.000000", FILE, "bin.000002"]
    assert all(each.statements is None for each in all_cuttings), "those of the small files are not known"


def test_a_scouts_error_is_raised_where_slices_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceUnavailableError, match="closed the connection"):
        list(cut_slices(Dump(free=3 * SLICE_BYTES // 100, fails=True), monkeypatch, LARGE))
    assert not scouting_threads()


def test_a_reader_that_gives_up_ends_the_scout(monkeypatch: pytest.MonkeyPatch) -> None:
    dump = Dump(free=SLICE_BYTES // 100 + 5)
    cuttings = cut_slices(dump, monkeypatch, LARGE)
    next(cuttings)
    dump.allow(1)
    threading.Timer(0.1, dump.allow, [1]).start()
    cuttings.close()
    assert dump.ended.wait(120)
    assert not scouting_threads()


def test_files_that_are_not_worth_cutting_are_slices_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    (only,) = cut_slices(Dump(free=0), monkeypatch, SMALL, Slice(1, "bin.000003", 4, 800))
    assert [slice.file for slice in only.slices] == ["bin.000002", "bin.000003"]
    assert only.is_last
    assert not scouting_threads()
