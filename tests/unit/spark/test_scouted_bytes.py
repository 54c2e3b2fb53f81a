"""The stored bytes of a slice are those of its dump, or are missing completely."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from binlog_events import FILE, description, gtid, query, rows, written
from hypothesis import given
from hypothesis import strategies as st

from changefeed.binlog.events.framing import dumped_description
from changefeed.model.window import Slice
from changefeed.spark.stages import scouted_bytes
from changefeed.spark.stages.scouted_bytes import ScoutedBytes

DESCRIPTION = written([description()])
DATA = written(
    [description(), *[each for n in range(1, 20) for each in (gtid(n), query("BEGIN"), rows(99, ends=True))]]
)
END = 4 + len(DATA)
INTRODUCTION = dumped_description(DESCRIPTION, in_range=False)


def split_chunks(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def dump(start: int, end: int = END) -> bytes:
    return DATA[: end - 4] if start == 4 else INTRODUCTION + DATA[start - 4 : end - 4]


@given(st.sampled_from([4, 4 + len(DESCRIPTION), 700]), st.integers(1, 600), st.data())
def test_stored_slice_reads_as_its_dump_for_any_chunks(start: int, chunk_bytes: int, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        kept = ScoutedBytes(folder)
        slice = Slice(0, FILE, start, END)
        passed = list(kept.store(split_chunks(dump(start), chunk_bytes), slice))
        assert passed == split_chunks(dump(start), chunk_bytes)
        begin = data.draw(st.sampled_from([start, *range(max(start, 700), END - 1, 97)]))
        end = data.draw(st.integers(max(begin, 4 + len(DESCRIPTION)) + 1, END))
        chunks = kept.of(Slice(3, FILE, begin, end))
        assert chunks is not None
        assert b"".join(chunks) == dump(begin, end)


def test_a_slice_of_which_not_all_is_kept_is_not_there(tmp_path: Path) -> None:
    kept = ScoutedBytes(str(tmp_path))
    store = kept.store(split_chunks(DATA, 300), Slice(0, FILE, 4, END))
    assert kept.of(Slice(0, FILE, 4, 300)) is None, "nothing is read yet"
    for _ in range(3):
        next(store)
    assert kept.of(Slice(0, FILE, 4, 904)) is not None
    assert kept.of(Slice(0, FILE, 4, 905)) is None
    assert kept.of(Slice(0, "bin.000002", 4, 600)) is None


def test_a_full_disk_stops_the_keeping_and_not_the_scout(tmp_path: Path) -> None:
    (tmp_path / "binlog.1").symlink_to("/dev/full")
    kept = ScoutedBytes(str(tmp_path))
    chunks = split_chunks(DATA, 300)
    assert list(kept.store(chunks, Slice(0, FILE, 4, END))) == chunks
    assert kept.of(Slice(0, FILE, 4, 600)) is None


@pytest.mark.parametrize("size", [1, 15])
def test_a_dump_that_ends_inside_its_first_event_keeps_nothing(tmp_path: Path, size: int) -> None:
    kept = ScoutedBytes(str(tmp_path))
    assert list(kept.store([DATA[:size]], Slice(0, FILE, 4, END))) == [DATA[:size]]
    assert kept.of(Slice(0, FILE, 4, 10)) is None


def test_of_a_huge_file_the_beginning_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scouted_bytes, "_MOST_BYTES", 650)
    kept = ScoutedBytes(str(tmp_path))
    chunks = split_chunks(DATA, 300)
    assert list(kept.store(chunks, Slice(0, FILE, 4, END))) == chunks
    begin, rest = kept.of(Slice(0, FILE, 4, 604)), kept.of(Slice(1, FILE, 604, 605))
    assert begin is not None
    assert b"".join(begin) == dump(4, 604)
    assert rest is None
