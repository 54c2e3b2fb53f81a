"""Events as servers write them, small ones: for plain models of what reads a binlog."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from changefeed.binlog.events.framing import HEADER, EventType

FILE = "bin.000001"
UUID = bytes(range(16))
GTID_TEXT = "00010203-0405-0607-0809-0a0b0c0d0e0f:{}"


@dataclass(frozen=True)
class Event:
    kind: int
    body: bytes
    flags: int = 0

    def bytes_at(self, position: int) -> bytes:
        size = HEADER.size + len(self.body)
        return HEADER.pack(7, self.kind, 1, size, (position + size) % 2**32, self.flags) + self.body


def description() -> Event:
    body = (4).to_bytes(2, "little") + b"5.5.0".ljust(50, b"\0") + bytes(4) + bytes([HEADER.size]) + bytes(27)
    return Event(EventType.FORMAT_DESCRIPTION, body)


def query(sql: str, variables: int = 0) -> Event:
    head = bytes(8) + b"\x01" + bytes(2) + variables.to_bytes(2, "little")
    # A status variable that has a size of its own, of any length: Q_TIME_ZONE_CODE.
    words = b"\x05" + bytes([variables - 2]) + b"z" * (variables - 2) if variables else b""
    return Event(EventType.QUERY, head + words + b"d\0" + sql.encode())


def gtid(number: int) -> Event:
    return Event(EventType.GTID, b"\0" + UUID + number.to_bytes(8, "little"))


def rows(size: int, *, ends: bool) -> Event:
    return Event(EventType.WRITE_ROWS, bytes(6) + bytes([ends]) + bytes(size))


@st.composite
def transactions(draw: st.DrawFn) -> list[Event]:
    events: list[Event] = []
    for number in range(1, draw(st.integers(1, 12)) + 1):
        if draw(st.booleans()):
            events.append(gtid(number))
        if draw(st.integers(0, 5)) == 0:
            events.append(query("CREATE TABLE t (a INT)", draw(st.sampled_from([0, 9]))))
            continue
        events.append(query("BEGIN", draw(st.sampled_from([0, 2, 9]))))
        for _ in range(draw(st.integers(0, 6))):
            events.append(rows(draw(st.integers(1, 90)), ends=draw(st.booleans())))
            if draw(st.integers(0, 9)) == 0:
                events.append(query("SAVEPOINT `s`"))
        xid = Event(EventType.XID, bytes(8))
        events.append(draw(st.sampled_from([xid, query("COMMIT"), query("ROLLBACK")])))
    return events


def written(events: list[Event]) -> bytes:
    data = b""
    for event in events:
        data += event.bytes_at(4 + len(data))
    return data
