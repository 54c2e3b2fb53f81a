"""Decodes one transaction of any size: `python -m integration.decode_huge FILE MEGABYTES`, prints rows and peak memory.

FILE's largest transaction is made longer: its rows events are repeated before its end until it has that size.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from changefeed.binlog.decoder import KernelDecoder
from changefeed.binlog.events.framing import HEADER
from changefeed.formats.debezium import DebeziumFormat
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.route import Route
from changefeed.model.window import Slice
from changefeed.records.block import MessageBlock

_TABLE_MAP, _XID = 19, 16


def parts(data: bytes) -> tuple[bytes, bytes, bytes]:
    """The bytes before the rows of the last transaction, its statement (table map and rows), and its end."""
    at, begin = FIRST_POSITION, 0
    while at < len(data):
        _, kind, _, size, _, _ = HEADER.unpack_from(data, at)
        if kind == _TABLE_MAP:
            begin = at
        if kind == _XID:
            return data[FIRST_POSITION:begin], data[begin:at], data[at : at + size]
        at += size
    raise ValueError("no transaction with rows")


def peak_kilobytes() -> int:
    """This program's own peak of memory; getrusage would count that of the process that started it."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1])


def main() -> None:
    head, statement, end = parts(Path(sys.argv[1]).read_bytes())
    times = (int(sys.argv[2]) << 20) // len(statement)

    def chunks() -> Iterator[bytes]:
        yield head
        for _ in range(times):
            yield statement
        yield end

    decoder = KernelDecoder(
        lambda _database, table: Route(table, 3), lambda _database, _table: None, DebeziumFormat("huge", 0), "uuid"
    )
    size = len(head) + times * len(statement) + len(end)
    messages = rows = 0
    for item in decoder.decode(chunks(), Slice(0, "b.000001", FIRST_POSITION, FIRST_POSITION + size)):
        if isinstance(item, MessageBlock):
            messages += item.message_count
        else:
            rows = sum(sum(ops.values()) for ops in item.rows.values())
    assert messages == rows
    print(rows, peak_kilobytes() >> 10)


if __name__ == "__main__":
    main()
