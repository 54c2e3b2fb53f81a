"""The orders of a transaction's messages: among all of them, and among those of their table."""

from __future__ import annotations

from changefeed.binlog.kernel import layout
from changefeed.binlog.kernel.faults import FULL
from changefeed.binlog.kernel.row_columns import put_literal
from changefeed.binlog.kernel.workspace import Workspace
from changefeed.native.compiled import inline
from changefeed.native.memory import copy, put8
from changefeed.native.numbers import put_number
from changefeed.native.span import length

_ROOM = 256
ORDER = 3
"""Words of a table's counter: the number of the transaction, and the table's number of messages in it.

The third word does not belong to this table: in the nth counter it is the address of the header of the nth table that
has messages in the current transaction."""
_TRANSACTION, _EVENTS, _TABLE = 0, 1, 2


@inline
def count_event(work: Workspace, table: int) -> None:
    """Count the next message of the current row, which gives the message its orders. ``table``: the table's header."""
    state, orders = work.state, work.orders
    order = work.words[table + layout.TABLE_COUNTER] * ORDER
    if orders[order + _TRANSACTION] != state[layout.TRANSACTION_NUMBER]:
        orders[order + _TRANSACTION] = state[layout.TRANSACTION_NUMBER]
        orders[order + _EVENTS] = 0
        orders[ORDER * state[layout.TRANSACTION_TABLES] + _TABLE] = table
        state[layout.TRANSACTION_TABLES] += 1
    orders[order + _EVENTS] += 1
    state[layout.TABLE_ORDER] = orders[order + _EVENTS]
    state[layout.TRANSACTION_EVENTS] += 1


@inline
def uncount_events(work: Workspace, table: int, events: int) -> None:
    """Subtract the transaction's messages after the first ``events``, because their row is written again."""
    state = work.state
    order = work.words[table + layout.TABLE_COUNTER] * ORDER
    work.orders[order + _EVENTS] -= state[layout.TRANSACTION_EVENTS] - events
    state[layout.TRANSACTION_EVENTS] = events


@inline
def put_order(work: Workspace, at: int, literals: int) -> int:
    """Write the transaction's id and the message's orders; returns the new end, or FULL.

    The literals of OP_TRANSACTION are at ``words[literals]``."""
    out, state, words = work.out, work.state, work.words
    room = length(out)
    size = int(state[layout.TRANSACTION_SIZE])
    if size == 0:
        return put_literal(out, at, room, words, literals, work.literals)
    at = put_literal(out, at, room, words, literals + 2, work.literals)
    if at < 0 or at + size + 2 * _ROOM > room:
        return FULL
    copy(out, at, work.texts, layout.TRANSACTION_TEXT, size)
    at = put_literal(out, at + size, room, words, literals + 4, work.literals)
    at = put_number(out, at, state[layout.TRANSACTION_EVENTS])
    at = put_literal(out, at, room, words, literals + 6, work.literals)
    at = put_number(out, at, state[layout.TABLE_ORDER])
    return put_literal(out, at, room, words, literals + 8, work.literals)


@inline
def put_event_counts(work: Workspace, at: int) -> int:
    """Write the transaction's number of messages for each table; returns the new end, or FULL.

    The tables are in the order of their first messages."""
    out, words, orders = work.out, work.words, work.orders
    room = length(out)
    for number in range(work.state[layout.TRANSACTION_TABLES]):
        table = orders[ORDER * number + _TABLE]
        if number > 0:
            put8(out, at, 44)
            at += 1
        at = put_literal(out, at, room, words, table + layout.TABLE_NAME, work.literals)
        if at < 0 or at + _ROOM > room:
            return FULL
        counted = ORDER * words[table + layout.TABLE_COUNTER] + _EVENTS
        at = put_number(out, at, orders[counted])
        put8(out, at, 125)
        at += 1
    return at
