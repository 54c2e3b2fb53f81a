"""Processes the begin and end of transactions: GTID events, BEGIN and COMMIT; lists the GTIDs of a slice."""

from __future__ import annotations

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.faults import EVENT_SIZE
from changefeed.native.compiled import inline
from changefeed.native.memory import Bytes, Words, i64, little_endian, put8, u8, u16, u32
from changefeed.native.numbers import put_number

GTID, ANONYMOUS_GTID, MARIADB_GTID = 33, 34, 162
PREPARED_XA = 0x40
"""The flag of a MariaDB GTID event that begins a prepared XA transaction. MySQL writes XA START instead."""
_HEX = b"0123456789abcdef"


@inline
def commit_micros(data: Bytes, body: int, end: int) -> int:
    """The commit time, on its original server, of a MySQL GTID event's transaction; 0 if the event has none.

    Events of servers before MySQL 8.0.1 have none. After the GTID: 2, two numbers of 8 bytes, the commit time on this
    server in 7 bytes. If its highest bit is set, 7 more bytes follow: the commit time on the original server.
    """
    at = body + 42
    if end - at < 7 or u8(data, body + 25) != 2:
        return 0
    if u8(data, at + 6) < 128:
        return little_endian(data, at, 7)
    return little_endian(data, at + 7, 7) if end - at >= 14 else 0


@inline
def take_gtid(data: Bytes, body: int, end: int, state: Words, texts: Bytes, kind: int) -> int:
    """Read the transaction's GTID into the state.

    MySQL: flags u8, uuid [16], number i64. MariaDB: number u64, domain u32, flags u8.
    """
    if end - body < (13 if kind == MARIADB_GTID else 25):
        return EVENT_SIZE
    if state[layout.IN_TRANSACTION] == 1:
        return layout.EVENT  # Python reports the damage
    at = layout.GTID_TEXT
    state[layout.COMMIT_MICROS] = commit_micros(data, body, end) if kind == GTID else 0
    if kind == ANONYMOUS_GTID:
        state[layout.IN_TRANSACTION] = 2
        state[layout.GTID_SIZE] = 0
        state[layout.GTID_KIND] = 0
        return 0
    if kind == MARIADB_GTID:
        number = i64(data, body)
        domain = u32(data, body + 8)
        server = u32(data, body - 14)
        if number < 0:
            return EVENT_SIZE
        if u8(data, body + 12) & PREPARED_XA != 0:
            return layout.EVENT
        state[layout.IN_TRANSACTION] = 2
        at = put_number(texts, at, domain)
        put8(texts, at, 45)
        at = put_number(texts, at + 1, server)
        put8(texts, at, 45)
        at = put_number(texts, at + 1, number)
        state[layout.GTID_KIND] = 2
        state[layout.GTID_A] = domain
        state[layout.GTID_B] = server
        state[layout.GTID_NUMBER] = number
        # Bit 0: the transaction is one statement without BEGIN and COMMIT. Otherwise this event is the BEGIN.
        if u8(data, body + 12) & 1 == 0:
            state[layout.IN_TRANSACTION] = 1
    else:
        number = i64(data, body + 17)
        if number <= 0:
            return EVENT_SIZE
        state[layout.IN_TRANSACTION] = 2
        for index in range(16):
            if index == 4 or index == 6 or index == 8 or index == 10:
                put8(texts, at, 45)
                at += 1
            byte = u8(data, body + 1 + index)
            put8(texts, at, _HEX[byte >> 4])
            put8(texts, at + 1, _HEX[byte & 15])
            at += 2
        put8(texts, at, 58)
        at = put_number(texts, at + 1, number)
        state[layout.GTID_KIND] = 1
        state[layout.GTID_A] = i64(data, body + 1)
        state[layout.GTID_B] = i64(data, body + 9)
        state[layout.GTID_NUMBER] = number
    state[layout.GTID_SIZE] = at - layout.GTID_TEXT
    return 0


@inline
def end_transaction(state: Words, runs: Words) -> None:
    """Count a transaction and add its GTID to the list: to the last run if it continues the run, else as a new run."""
    state[layout.TRANSACTIONS] += 1
    kind = state[layout.GTID_KIND]
    number = state[layout.GTID_NUMBER]
    used = state[layout.RUNS]
    if kind != 0:
        at = (used - 1) * layout.RUN
        if (
            at >= 0
            and runs[at] == kind
            and runs[at + 1] == state[layout.GTID_A]
            and runs[at + 2] == state[layout.GTID_B]
            and runs[at + 4] + 1 == number
        ):
            runs[at + 4] = number
        else:
            at += layout.RUN
            runs[at] = kind
            runs[at + 1] = state[layout.GTID_A]
            runs[at + 2] = state[layout.GTID_B]
            runs[at + 3] = number
            runs[at + 4] = number
            state[layout.RUNS] = used + 1
    state[layout.IN_TRANSACTION] = 0
    state[layout.COMMIT_MICROS] = 0
    state[layout.THREAD] = 0
    state[layout.TRANSACTION_SIZE] = 0
    state[layout.GTID_KIND] = 0
    state[layout.GTID_SIZE] = 0
    state[layout.QUERY_SIZE] = state[layout.QUERY_COUNTED] = 0
    state[layout.XID_SIZE] = state[layout.XID_COUNTED] = 0
    state[layout.PLAIN_XID_SIZE] = 0
    state[layout.GENERATION] += 1
    state[layout.STATEMENT_ROW] = 0
    state[layout.RESOLVED] = state[layout.COMMIT_INFOS]
    state[layout.IN_PARTS] = 0


OTHER, BEGIN, COMMIT = range(3)
"""What `framing_query` returns."""


@inline
def framing_query(data: Bytes, body: int, end: int) -> int:
    """BEGIN or COMMIT for a QUERY event whose statement is BEGIN or COMMIT as servers write it, else OTHER.

    Body: thread u32, seconds u32, size of the database's name u8, error u16, size of the variables u16, variables,
    database, 0, statement.
    """
    if end - body < 13:
        return OTHER
    at = body + 13 + u16(data, body + 11) + u8(data, body + 8) + 1
    if end - at == 5:
        if u32(data, at) == 0x49474542 and u8(data, at + 4) == 0x4E:
            return BEGIN
    elif end - at == 6 and u32(data, at) == 0x4D4D4F43 and u16(data, at + 4) == 0x5449:
        return COMMIT
    return OTHER
