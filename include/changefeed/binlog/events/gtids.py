"""GTIDs of events, and sets of GTIDs.

Sources: https://dev.mysql.com/doc/refman/9.7/en/replication-gtids-concepts.html,
https://mariadb.com/kb/en/gtid/, `gtids/gtids.h` and `serialization/` of MySQL for the tagged form.
"""

from __future__ import annotations

import re
import struct
import uuid
from dataclasses import dataclass

from changefeed.binlog.events.framing import DamagedEvent, EventType, Fields
from changefeed.model.gtid import GtidSet, Interval, merge_intervals

_MYSQL = re.compile(
    r"(?P<uuid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?::(?P<tag>[a-z_][a-z0-9_]{0,31}))?:(?P<number>\d+)\Z"
)
_MARIADB = re.compile(r"(\d+)-(\d+)-(\d+)\Z")

MYSQL, MARIADB, TAGGED = 1, 2, 3


@dataclass(frozen=True)
class Gtid:
    """One GTID: its text, and the words by which the kernel represents it (kind, a, b, number)."""

    text: str
    kind: int
    a: int
    b: int
    number: int
    prefix: str

    @classmethod
    def parse(cls, text: str) -> Gtid:
        """Parse `uuid:n`, `uuid:tag:n` or MariaDB's `domain-server-n`; raises ValueError for any other text."""
        if match := _MARIADB.match(text):
            domain, server, number = (int(part) for part in match.groups())
            return cls(text, MARIADB, domain, server, number, f"{domain}-{server}")
        match = _MYSQL.match(text.lower())
        if not match:
            raise ValueError(f"{text!r} is not a GTID: expected uuid:n, uuid:tag:n or domain-server-n")
        number = int(match["number"])
        if match["tag"]:
            return cls(text, TAGGED, 0, 0, number, f"{match['uuid']}:{match['tag']}")
        a, b = struct.unpack("<qq", uuid.UUID(match["uuid"]).bytes)
        return cls(text, MYSQL, a, b, number, match["uuid"])


def read_tagged(body: bytes) -> Gtid | None:
    """The GTID of a GTID_TAGGED event; None for an automatic GTID without a number.

    The body is in MySQL's own serialization: version, size, the last field that a reader must understand, then the
    fields, each as id and value. A number has a variable length: the count of trailing one bits in its first byte is
    the number of bytes that follow. Fields:

    - 0: flags
    - 1: the 16 bytes of the uuid, each as a number
    - 2: the number of the GTID, signed (zigzag)
    - 3: the tag, a string after its length
    """
    fields = Fields(body)
    _read_unsigned(fields)
    _read_unsigned(fields)
    _read_unsigned(fields)
    source = tag = None
    number = 0
    for _ in range(4):
        match _read_unsigned(fields):
            case 0:
                _read_unsigned(fields)
            case 1:
                source = uuid.UUID(bytes=bytes(_read_unsigned(fields) & 0xFF for _ in range(16)))
            case 2:
                packed = _read_unsigned(fields)
                number = (packed >> 1) ^ -(packed & 1)
            case 3:
                tag = fields.take(_read_unsigned(fields)).decode("ascii", "replace")
                break
            case other:
                raise DamagedEvent(f"GTID_TAGGED holds field {other} where its GTID should be")
    if source is None or tag is None:
        raise DamagedEvent("GTID_TAGGED holds no uuid or no tag")
    if number <= 0:
        return None
    try:
        return Gtid.parse(f"{source}:{tag}:{number}" if tag else f"{source}:{number}")
    except ValueError as error:
        raise DamagedEvent(f"GTID_TAGGED holds no GTID: {error}") from error


def gtid_of(kind: int, server_id: int, body: bytes) -> str:
    """The GTID of an event that opens a transaction, '' for an anonymous transaction; ``body`` has no checksum."""
    if kind == EventType.GTID and len(body) >= 25:
        return f"{uuid.UUID(bytes=body[1:17])}:{int.from_bytes(body[17:25], 'little')}"
    if kind == EventType.MARIADB_GTID and len(body) >= 12:
        sequence, domain = int.from_bytes(body[:8], "little"), int.from_bytes(body[8:12], "little")
        return f"{domain}-{server_id}-{sequence}"
    if kind == EventType.GTID_TAGGED:
        tagged = read_tagged(body)
        return tagged.text if tagged else ""
    return ""


def logged_before(kind: int, body: bytes) -> GtidSet:
    """The GTIDs of all transactions before a file, from the ``body`` of its PREVIOUS_GTIDS or GTID_LIST event.

    ``body`` has no checksum.

    - MySQL: number of sources u64; for each source: uuid [16], number of intervals u64, and for each interval: first
      u64, last + 1 u64.
    - MySQL with tags: the highest byte of the first number is 1, the 6 bytes below it are the number of sources, and
      after each uuid is its tag, a string after its length.
    - MariaDB: count and flags u32; for each GTID: domain u32, server u32, number u64. The last transaction of a domain
      comes last.

    Raises DamagedEvent for another type of event, and for an event that cannot be read.
    """
    fields = Fields(body)
    if kind == EventType.MARIADB_GTID_LIST:
        last: dict[int, str] = {}
        for _ in range(fields.number(4) & 0x0FFFFFFF):
            domain, server, number = fields.number(4), fields.number(4), fields.number(8)
            last[domain] = f"{domain}-{server}-{number}"
        return GtidSet.parse(",".join(last.values()))
    if kind != EventType.PREVIOUS_GTIDS:
        raise DamagedEvent(f"event of type {kind} holds no GTIDs of what is before its file")
    sources = fields.number(8)
    tagged = sources >> 56 == 1
    text = []
    for _ in range(sources >> 8 & (1 << 48) - 1 if tagged else sources):
        source = str(uuid.UUID(bytes=fields.take(16)))
        if tagged and (tag := fields.take(_read_unsigned(fields)).decode("ascii", "replace")):
            source += f":{tag}"
        for _ in range(fields.number(8)):
            first, end = fields.number(8), fields.number(8)
            text.append(f"{source}:{first}-{end - 1}")
    return GtidSet.parse(",".join(text))


def commit_micros(kind: int, body: bytes) -> int:
    """The commit time of the transaction that the event opens, on its original server, in microseconds since 1970.

    0 if the event does not have it. `kernel.transactions` describes the layout."""
    if kind != EventType.GTID or len(body) < 49 or body[25] != 2:
        return 0
    if body[48] < 128:
        return int.from_bytes(body[42:49], "little")
    return int.from_bytes(body[49:56], "little") if len(body) >= 56 else 0


def _read_unsigned(fields: Fields) -> int:
    first = fields.number(1)
    more = 0
    while more < 8 and first >> more & 1:
        more += 1
    if more == 8:
        return fields.number(8)
    rest = fields.number(more)
    return first >> (more + 1) | rest << (7 - more)


def source_of(kind: int, a: int, b: int, tagged: str = "") -> str:
    """The source of a GTID as in `GtidRun`, from the kernel's words; ``tagged`` is the `uuid:tag` of a tagged GTID."""
    if kind == MARIADB:
        return f"{a}-{b}"
    return tagged if kind == TAGGED else str(uuid.UUID(bytes=struct.pack("<qq", a, b)))


class GtidRuns:
    """A GTID set to which single GTIDs and runs of GTIDs can be added; its text is created on demand.

    ``before`` is the initial set, as text.
    """

    def __init__(self, before: str = "") -> None:
        self._before = GtidSet.parse(before)
        self._runs: dict[str, list[Interval]] = {}
        self._last: dict[int, str] = {}

    def add(self, kind: int, a: int, b: int, first: int, last: int, tagged: str = "") -> None:
        """Add a run in the kernel's words; ``tagged`` is the `uuid:tag` of a tagged GTID."""
        if kind == MARIADB:
            self._last[a] = f"{a}-{b}-{last}"
            return
        self._runs.setdefault(source_of(kind, a, b, tagged), []).append((first, last))

    def add_text(self, gtid: str) -> None:
        """Add one GTID, a result of `gtid_of`; '' adds nothing."""
        prefix, colon, number = gtid.rpartition(":")
        if colon:
            runs = self._runs.setdefault(prefix, [])
            if runs and runs[-1][1] + 1 == int(number):
                runs[-1] = (runs[-1][0], int(number))
            else:
                runs.append((int(number), int(number)))
        elif gtid:
            self._last[int(gtid.partition("-")[0])] = gtid

    def text(self) -> str:
        """MySQL's form of a set (`uuid:1-5:7:tag:1`), or MariaDB's last GTID of each domain."""
        added = self._added_text()
        return str(self._before.move_past(GtidSet.parse(added))) if self._before else added

    def _added_text(self) -> str:
        if self._last:
            return ",".join(self._last[domain] for domain in sorted(self._last))
        by_source: dict[str, list[str]] = {}
        for prefix in sorted(self._runs):
            source, _, tag = prefix.partition(":")
            parts = by_source.setdefault(source, [])
            if tag:
                parts.append(tag)
            parts += (
                str(first) if first == last else f"{first}-{last}"
                for first, last in merge_intervals(self._runs[prefix])
            )
        return ",".join(":".join([source, *parts]) for source, parts in by_source.items())
