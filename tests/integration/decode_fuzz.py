"""Feeds damaged binlogs to the kernel: `python -m integration.decode_fuzz CORPUS FIRST END SEED [SECONDS]`.

A case is one to three consecutive transactions of a corpus file; its number and the seed determine it. In fifty cases
of each five hundred the table maps name no columns, as with binlog_row_metadata=MINIMAL, and the schemas that
replace them are mostly wrong: another table's, or invented ones.

Run with NUMBA_BOUNDSCHECK=1, each raw read or write outside of an array raises IndexError; run with NUMBA_DISABLE_JIT=1
the same code is plain Python. Only BinlogFormatError and SchemaError may be raised.
"""

from __future__ import annotations

import random
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from changefeed.binlog.decoder import KernelDecoder
from changefeed.binlog.events.framing import HEADER, HEADER_SIZE, DamagedEvent, EventType, Fields
from changefeed.binlog.events.table_map import TableMap
from changefeed.binlog.programs.bound_table import bind
from changefeed.binlog.search.boundaries import boundaries
from changefeed.binlog.search.schema_scan import count_rows
from changefeed.binlog.search.scout import scout
from changefeed.errors import BinlogFormatError, SchemaError
from changefeed.formats.avro import AvroFormat
from changefeed.formats.debezium import DebeziumFormat
from changefeed.formats.schema_ids import LocalIds
from changefeed.formats.style import Encoding, Kind, Style
from changefeed.model.column_rules import ALL_SHOWN, ColumnRules, Sha256, Treatment
from changefeed.model.column_types import DATA_TYPES, data_types_of
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.route import Route
from changefeed.model.table_schema import Column, TableSchema
from changefeed.model.window import Slice

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
    """Each column except the key's under the most complex mask."""

    def of(self, table: TableSchema) -> dict[int, Treatment]:
        return {place: Sha256("salt") for place in range(len(table.columns)) if place not in table.primary_key}


def without_checksums(data: bytes) -> list[bytes]:
    """A file's events as a server with binlog_checksum=NONE writes them: checksums would detect each damage."""
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


def table_maps(events: list[bytes]) -> Iterator[tuple[bytes, TableMap]]:
    for event in events:
        if event[4] == EventType.TABLE_MAP:
            with suppress(DamagedEvent):  # MariaDB's metadata differs from MySQL's
                mariadb = any(other[4] == EventType.MARIADB_GTID_LIST for other in events)
                yield event, TableMap.parse(event[HEADER_SIZE:], mariadb)


def without_names(events: list[bytes]) -> list[bytes]:
    """The events as a server with MINIMAL metadata writes them."""
    shorter = {}
    for event, table_map in table_maps(events):
        body = Fields(event[HEADER_SIZE:])
        body.take(8)
        for _ in range(2):
            body.take(body.number(1) + 1)
        body.take(body.packed_number())
        body.take(body.packed_number())
        body.take((len(table_map.columns) + 7) // 8)
        kept = event[HEADER_SIZE : HEADER_SIZE + body.at]
        shorter[event] = event[:9] + struct.pack("<I", HEADER_SIZE + len(kept)) + event[13:HEADER_SIZE] + kept
    return [shorter.get(event, event) for event in events]


def schemas_in(files: list[list[bytes]]) -> list[TableSchema]:
    """The tables of all files, as their own metadata describes them."""
    bound = {}
    for events in files:
        for event, table_map in table_maps(events):
            bound[event] = bind(table_map, None).schema
    return list(dict.fromkeys(bound.values()))


class Guessed:
    """A `SchemaLookup` whose schemas are mostly wrong."""

    def __init__(self, schemas: list[TableSchema]) -> None:
        self._schemas, self._by_name = schemas, {(one.database, one.table): one for one in schemas}
        self.rng = random.Random()

    def __call__(self, database: str, table: str) -> TableSchema | None:
        rng = self.rng
        schema = self._by_name.get((database, table)) or rng.choice(self._schemas)
        match rng.randrange(8):
            case 0:
                return None
            case 1:
                schema = rng.choice(self._schemas)
            case 2 | 3:
                return schema
        columns = list(schema.columns)
        for _ in range(rng.choice([1, 1, 2, 5])):
            number = rng.randrange(len(columns))
            columns[number] = self._other(columns[number])
            match rng.randrange(40):
                case 0 if len(columns) > 1:
                    del columns[number]
                case 1:
                    columns.insert(number, columns[number])
                case 2:
                    rng.shuffle(columns)
        key = rng.sample(range(len(columns)), min(len(columns), rng.choice([0, 1, 1, 3])))
        return TableSchema(schema.database, schema.table, tuple(columns), tuple(key))

    def _other(self, column: Column) -> Column:
        """The column under another definition, mostly one that the same bytes may have."""
        rng = self.rng
        labels = tuple("label" * rng.randrange(3) + str(number) for number in range(rng.choice([0, 1, 8, 64, 300])))
        names = ["", "id", 'a"\n\\', "\x00", "ü" * 64, column.name]
        fitting = [kind.name for known in [DATA_TYPES.get(column.data_type)] if known
                   for wire in known.wire for kind in data_types_of(wire)]  # fmt: skip
        changed = {
            "name": rng.choice(names),
            "unsigned": not column.unsigned,
            "collation": rng.choice([None, "binary", "latin1_swedish_ci", "utf16le_general_ci", "gbk_chinese_ci",
                                     "utf8mb4_0900_ai_ci", "nosuch_ci", ""]),
            "labels": labels,
            "length": rng.choice([None, 0, 1, 255, 1 << 32]),
            "precision": rng.choice([None, 0, 65, 99]),
            "data_type": rng.choice(["", "nosuch", *DATA_TYPES, *(fitting or ["nosuch"]) * 400]),
        }  # fmt: skip
        names_of_changed = rng.sample(sorted(changed), rng.choice([1, 2, 7]))
        return replace(column, **{name: changed[name] for name in names_of_changed})


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
    """The events with one to three of them flipped, cut, lengthened, doubled, dropped or invented."""
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
    """Run ``cases``; returns how many were run, and how many of them were refused."""
    full = [transactions(events) for events in files]
    minimal = [transactions(without_names(events)) for events in files]
    guessed = Guessed(schemas_in(files))
    refused = 0
    decoder = None
    begun = time.monotonic()
    for case in cases:
        if time.monotonic() - begun > seconds:
            return case - cases.start, refused
        rng = guessed.rng = random.Random(f"{seed}:{case}")
        nameless = case // 50 % 10 == 9
        if decoder is None or case % 500 == 0:
            style = _STYLES[case // 500 % len(_STYLES)]
            text, binary = DebeziumFormat("fuzz", 0, style), AvroFormat("fuzz", 0, LocalIds())
            decoder = KernelDecoder(
                lambda _database, table: Route(table, 3) if table != "skipped" else None,
                guessed,
                binary if case // 500 % 3 == 2 else text,
                "uuid",
                columns=AllHashed() if case // 500 % 2 else ALL_SHOWN,
            )
        events = picked(minimal if nameless else full, rng)
        data = b"".join(events) if nameless and rng.random() < 0.5 else damaged(events, rng)
        chunk = rng.choice([len(data), 100, 4096])
        chunks = [data[at : at + chunk] for at in range(0, len(data), chunk)]
        slice = Slice(0, "b.000001", FIRST_POSITION, FIRST_POSITION + len(data))
        try:
            for _ in decoder.decode(chunks, slice):
                pass
        except (BinlogFormatError, SchemaError) as error:
            refused += 1
            if "b.000001:" not in str(error):
                raise AssertionError(f"case {case}: no coordinates in {error}") from error
        except BaseException:
            print(f"case {case} of seed {seed!r}", file=sys.stderr)
            raise
        if case % 10 == 0:
            search(chunks, slice, case)
    return len(cases), refused


def search(chunks: list[bytes], slice: Slice, case: int) -> None:
    """Search for boundaries, cut the file and count rows: they must refuse damage, too."""
    for look in (
        lambda: list(boundaries(chunks, slice.file, slice.start, slice.end)),
        lambda: scout(chunks, slice, 100),
        lambda: count_rows(chunks, {}, slice),
    ):
        try:
            look()
        except BinlogFormatError as error:
            if "b.000001" not in str(error):
                raise AssertionError(f"case {case}: no coordinates in {error}") from error
        except BaseException:
            print(f"case {case}", file=sys.stderr)
            raise


if __name__ == "__main__":
    corpus = [without_checksums(path.read_bytes()) for path in sorted(Path(sys.argv[1]).iterdir())]
    numbers = range(int(sys.argv[2]), int(sys.argv[3]))
    ran, refused = fuzz(corpus, numbers, sys.argv[4], float(sys.argv[5]) if len(sys.argv) > 5 else 1e9)
    print(f"{ran} cases, {refused} refused")
