"""False event sizes in a binlog: no memory is allocated for them, and errors have the coordinates."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from changefeed.binlog.decoder import KernelDecoder
from changefeed.binlog.events.framing import HEADER, DamagedEvent, EventType, complete_events
from changefeed.binlog.search.finder import Finder
from changefeed.binlog.search.schema_scan import TableCounts, count_rows
from changefeed.binlog.search.scout import scout
from changefeed.errors import BinlogFormatError, ChangefeedError
from changefeed.formats.debezium import DebeziumFormat
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.window import BinlogFile, Slice, bytes_between
from changefeed.source.archive.archive import Archive
from changefeed.source.archive.binlogs import ArchivedBinlogs

NAME = "binlog.000001"
LARGEST = 0xFFFFFFFF
ALLOWED_BYTES = 256 << 20
"""Much less than the sizes that the events below claim."""

BODY = b"\4\0" + b"9.7.0".ljust(50, b"\0") + bytes(4) + bytes([19]) + bytes(40) + b"\0" + bytes(4)


def event(kind: int, body: bytes, size: int | None = None) -> bytes:
    return HEADER.pack(1, kind, 1, len(body) + 19 if size is None else size, 123, 0) + body


DESCRIPTION = event(EventType.FORMAT_DESCRIPTION, BODY)


def archive(folder: Path, data: bytes) -> tuple[ArchivedBinlogs, Slice]:
    (folder / NAME).write_bytes(b"\xfebin" + data)
    return ArchivedBinlogs(Archive(str(folder))), Slice(0, NAME, 4, 4 + len(data))


@contextmanager
def little_memory() -> Iterator[None]:
    """Limit the process's address space, so that an allocation of a claimed size raises MemoryError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ALLOWED_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def decoder() -> KernelDecoder:
    return KernelDecoder(lambda *_: None, lambda *_: None, DebeziumFormat("sizes", 0), "uuid")


READERS: dict[str, Callable[[ArchivedBinlogs, Slice], object]] = {
    "search": lambda binlogs, binlog_slice: Finder(binlogs).at(BinlogCoordinates(NAME, binlog_slice.end - 1)),
    "time": lambda binlogs, _: Finder(binlogs).at_time(1 << 31),
    "counts": lambda binlogs, binlog_slice: count_rows(
        binlogs.chunks(NAME, binlog_slice.start, binlog_slice.end), {}, binlog_slice
    ),
    "scout": lambda binlogs, binlog_slice: scout(
        binlogs.chunks(NAME, binlog_slice.start, binlog_slice.end), binlog_slice, 1 << 20
    ),
    "decoder": lambda binlogs, binlog_slice: list(
        decoder().decode(binlogs.chunks(NAME, binlog_slice.start, binlog_slice.end), binlog_slice)
    ),
}


@pytest.mark.parametrize("size", [0, 1, 18, 19, 20, 75, 4097, 1 << 31, LARGEST])
@pytest.mark.parametrize("reader", READERS)
def test_a_first_event_of_any_size_is_refused_with_coordinates(tmp_path: Path, reader: str, size: int) -> None:
    binlogs, binlog_slice = archive(tmp_path, event(EventType.FORMAT_DESCRIPTION, BODY, size) + bytes(5000))
    with little_memory(), pytest.raises(BinlogFormatError, match=f"{NAME}:4[:,] "):
        READERS[reader](binlogs, binlog_slice)


@pytest.mark.parametrize("size", [0, 1, 18, 5000, 1 << 31, LARGEST])
@pytest.mark.parametrize("reader", READERS)
def test_event_larger_than_the_rest_of_its_file_is_refused(tmp_path: Path, reader: str, size: int) -> None:
    data = DESCRIPTION + event(EventType.XID, bytes(8)) + event(EventType.WRITE_ROWS, bytes(100), size) + bytes(1000)
    binlogs, binlog_slice = archive(tmp_path, data)
    with little_memory(), pytest.raises(BinlogFormatError, match=f"{NAME}:{4 + len(DESCRIPTION) + 27}[:,] "):
        READERS[reader](binlogs, binlog_slice)


@pytest.mark.parametrize("cut", [0, 3, 4, 10, 22, 23, 50, 100])
def test_a_file_that_ends_in_its_first_event_is_refused(tmp_path: Path, cut: int) -> None:
    (tmp_path / NAME).write_bytes((b"\xfebin" + DESCRIPTION)[:cut])
    for read in (
        lambda: list(ArchivedBinlogs(Archive(str(tmp_path))).chunks(NAME, 4, 1 << 40)),
        lambda: Finder(ArchivedBinlogs(Archive(str(tmp_path)))).at_time(1 << 31),
    ):
        try:
            read()
        except ChangefeedError:
            continue
        assert cut <= 4, "an empty file has no transaction"


def test_event_larger_than_its_range_is_refused_at_its_header() -> None:
    def endless() -> Iterator[bytes]:
        yield event(EventType.WRITE_ROWS, b"", LARGEST)
        raise AssertionError("collected for it")

    with pytest.raises(DamagedEvent, match="says that it has 4294967295 bytes"):
        list(complete_events(endless(), 1 << 30))


def test_events_are_read_from_chunks_of_any_size() -> None:
    data = DESCRIPTION + b"".join(event(EventType.XID, bytes(8 + 30 * number)) for number in range(40))
    events = [bytes(one) for one in complete_events([data], len(data))]
    assert b"".join(events) == data
    for chunk in (1, 7, 19, 20, 100, 4096):
        chunks = (data[at : at + chunk] for at in range(0, len(data), chunk))
        assert [bytes(one) for one in complete_events(chunks, len(data))] == events


def test_event_of_many_chunks_is_joined_once() -> None:
    """The time is linear in the event's size; if it were quadratic, 64 MB in chunks of 4 KB would take minutes."""
    size = 64 << 20
    header = event(EventType.WRITE_ROWS, b"", size)
    rest = (bytes(4096) for _ in range(size // 4096 - 1))
    events = list(complete_events([header, *rest, bytes(4096 - len(header))], size))
    assert [len(one) for one in events] == [size]


def test_rows_are_counted_by_table_and_a_truncated_name_is_refused() -> None:
    names = b"\4shop\0\6orders\0"
    table_map = event(EventType.TABLE_MAP, (7).to_bytes(6, "little") + b"\1\0" + names)
    rows = event(EventType.WRITE_ROWS, (7).to_bytes(6, "little") + bytes(30))
    data = DESCRIPTION + table_map + rows + rows
    counts: dict[str, TableCounts] = {}
    count_rows([data], counts, Slice(0, NAME, 4, 4 + len(data)))
    assert counts == {"shop.orders": TableCounts(2, 2 * len(rows))}
    cut = DESCRIPTION + event(EventType.TABLE_MAP, (7).to_bytes(6, "little") + b"\1\0" + names[:9])
    with pytest.raises(BinlogFormatError, match=f"{NAME}:{4 + len(DESCRIPTION)}: "):
        count_rows([cut], {}, Slice(0, NAME, 4, 4 + len(cut)))


def test_gap_between_file_numbers_costs_no_time() -> None:
    files = [BinlogFile(NAME, 100), BinlogFile("binlog.9999999999", 50)]
    start, end = BinlogCoordinates(NAME, 4), BinlogCoordinates("binlog.9999999999", 10)
    assert bytes_between(files, start, end) == 106


def test_command_reports_a_claimed_size_in_one_line(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"\xfebin" + event(EventType.FORMAT_DESCRIPTION, BODY, LARGEST) + bytes(100))
    done = subprocess.run(
        [sys.executable, "-m", "changefeed.cli.main", "decode", str(tmp_path / NAME)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("BinlogFormatError: "), done.stderr
