"""Feeds damaged binlogs to the kernel: `python -m integration.decode_fuzz CORPUS FIRST END SEED [SECONDS]`.

A case is one to three transactions in a row of a corpus file; its number and the seed say all about it.

Run with NUMBA_BOUNDSCHECK=1, each raw read or write outside of an array raises IndexError; run with NUMBA_DISABLE_JIT=1
the same code is plain Python. The one thing that may come out besides messages is BinlogFormatError or SchemaError.
"""

from __future__ import annotations

import random
import struct
import sys
import time
from pathlib import Path

from changefeed.binlog.decoder import KernelDecoder
from changefeed.binlog.events.framing import HEADER, HEADER_SIZE
from changefeed.coordinates import FIRST_POSITION
from changefeed.errors import BinlogFormatError, SchemaError
from changefeed.formats.debezium import DebeziumFormat
from changefeed.formats.style import Encoding, Kind, Style
from changefeed.pipelines.column_rules import ALL_SHOWN, ColumnRules, Sha256, Treatment
from changefeed.reader import Route
from changefeed.table_schema import TableSchema
from changefeed.window import Slice

_NUMBERS = dict.fromkeys((Kind.DATE, Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP), Encoding.EPOCH)
_STYLES = (
    Style(),
    Style(
        {
            **_NUMBERS,
            Kind.DECIMAL: Encoding.DOUBLE,
            Kind.BINARY: Encoding.HEX,
            Kind.GEOMETRY: Encoding.HEX,
            Kind.BIGINT_UNSIGNED: Encoding.STRING,
            Kind.JSON: Encoding.INLINE,
        }
    ),
    Style({**_NUMBERS, Kind.DECIMAL: Encoding.PRECISE}),
)


class AllHashed(ColumnRules):
    """Each column but the key's under the mask that does most with a value's text."""

    def of(self, table: TableSchema) -> dict[int, Treatment]:
        return {place: Sha256("salt") for place in range(len(table.columns)) if place not in table.primary_key}


def without_checksums(data: bytes) -> list[bytes]:
    """A file's events as a server with binlog_checksum=NONE writes them: or each damage would be seen."""
    events, at = [], FIRST_POSITION
    while at + HEADER_SIZE <= len(data):
        seconds, kind, server_id, size, _, flags = HEADER.unpack_from(data, at)
        event = data[at : at + size]
        if kind == 15:
            event = event[:-5] + b"\0" + event[-4:]
        else:
            event = HEADER.pack(seconds, kind, server_id, size - 4, 0, flags) + event[HEADER_SIZE:-4]
        events.append(event)
        at += size
    return events


_OPENS = {33, 34, 42, 162}
"""Types of events that open a transaction."""


def transactions(events: list[bytes]) -> list[list[bytes]]:
    """A file's events as parts: those before the first transaction, then each transaction's."""
    parts: list[list[bytes]] = [[]]
    for event in events:
        if event[4] in _OPENS:
            parts.append([])
        parts[-1].append(event)
    return parts


def picked(files: list[list[list[bytes]]], rng: random.Random) -> list[bytes]:
    """A FORMAT_DESCRIPTION and a few transactions that follow each other in one file, each with its own table maps."""
    parts = rng.choice(files)
    first = rng.randrange(len(parts))
    events = [event for part in parts[first : first + rng.choice([1, 2, 2, 3])] for event in part]
    return events if first == 0 else [parts[0][0], *events]


def damaged(events: list[bytes], rng: random.Random) -> bytes:
    """The events with one to three of them flipped, cut, lengthened, doubled, dropped or made up."""
    events = list(events)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(1, len(events))
        event = bytearray(events[place])
        body = len(event) - HEADER_SIZE
        match rng.randrange(9):
            case 0 | 1 | 2:
                for _ in range(rng.choice([1, 1, 2, 8])):
                    if body > 0:
                        event[HEADER_SIZE + rng.randrange(body)] ^= 1 << rng.randrange(8)
            case 3:
                if body > 0:
                    event[HEADER_SIZE + rng.randrange(body)] = rng.choice(
                        [0, 1, 127, 128, 250, 251, 252, 253, 254, 255]
                    )
            case 4:
                del event[rng.randrange(HEADER_SIZE, len(event) + 1) :]
            case 5:
                at = rng.randrange(HEADER_SIZE, len(event) + 1)
                event[at:at] = rng.randbytes(rng.choice([1, 2, 8, 300]))
            case 6:
                at = rng.randrange(HEADER_SIZE, len(event) + 1)
                del event[at : at + rng.randint(1, 16)]
            case 7:
                event[4] = rng.choice(
                    [2, 15, 16, 19, 29, 30, 31, 32, 33, 34, 36, 38, 39, 40, 42, 162, 165, 169, rng.randrange(256)]
                )
            case _:
                event = bytearray(event[:HEADER_SIZE] + rng.randbytes(rng.randrange(200)))
        if rng.random() < 0.95:
            struct.pack_into("<I", event, 9, len(event))
        if rng.random() < 0.05:
            del events[place]
        else:
            events[place : place + 1] = [bytes(event)] * (2 if rng.random() < 0.05 else 1)
        if len(events) < 2:
            break
    return b"".join(events)


def fuzz(files: list[list[bytes]], cases: range, seed: str, seconds: float = 1e9) -> tuple[int, int]:
    """Run ``cases``; how many were run, and how many of them were refused."""
    corpus = [transactions(events) for events in files]
    refused = 0
    decoder = None
    begun = time.monotonic()
    for case in cases:
        if time.monotonic() - begun > seconds:
            return case - cases.start, refused
        rng = random.Random(f"{seed}:{case}")
        if decoder is None or case % 500 == 0:
            style = _STYLES[case // 500 % len(_STYLES)]
            decoder = KernelDecoder(
                lambda _database, table: Route(table, 3) if table != "skipped" else None,
                lambda _database, _table: None,
                DebeziumFormat("fuzz", 0, style),
                "uuid",
                columns=AllHashed() if case // 500 % 2 else ALL_SHOWN,
            )
        data = damaged(picked(corpus, rng), rng)
        chunk = rng.choice([len(data), 100, 4096])
        chunks = [data[at : at + chunk] for at in range(0, len(data), chunk)]
        try:
            for _ in decoder.decode(chunks, Slice(0, "b.000001", FIRST_POSITION, FIRST_POSITION + len(data))):
                pass
        except (BinlogFormatError, SchemaError) as error:
            refused += 1
            if "b.000001:" not in str(error):
                raise AssertionError(f"case {case}: no coordinates in {error}") from error
        except BaseException:
            print(f"case {case} of seed {seed!r}", file=sys.stderr)
            raise
    return len(cases), refused


if __name__ == "__main__":
    corpus = [without_checksums(path.read_bytes()) for path in sorted(Path(sys.argv[1]).iterdir())]
    numbers = range(int(sys.argv[2]), int(sys.argv[3]))
    ran, refused = fuzz(corpus, numbers, sys.argv[4], float(sys.argv[5]) if len(sys.argv) > 5 else 1e9)
    print(f"{ran} cases, {refused} refused")
