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
"""Words of a table's counter in the orders: the number of the transaction that it counts in, how many messages it has,
and, of the nth counter, the header of the nth table that the transaction at hand has messages of."""
_TRANSACTION, _EVENTS, _TABLE = 0, 1, 2


@inline
def count_event(work: Workspace, table: int) -> None:
    """Number the next message of the row at hand, of the table whose header is at ``table``."""
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
    """Forget the messages of a row beyond the first ``events`` of the transaction: the row is written again."""
    state = work.state
    order = work.words[table + layout.TABLE_COUNTER] * ORDER
    work.orders[order + _EVENTS] -= state[layout.TRANSACTION_EVENTS] - events
    state[layout.TRANSACTION_EVENTS] = events


@inline
def put_order(work: Workspace, at: int, literals: int) -> int:
    """Write what OP_TRANSACTION's literals at ``words[literals]`` say; the new end, or FULL."""
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
    """Write how many messages of each of its tables the transaction has, in the order of the first ones; or FULL."""
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
