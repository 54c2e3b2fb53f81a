"""The accounts of a slice: what decoding it found."""

from __future__ import annotations

from dataclasses import dataclass, field

from changefeed.model.binlog_order import GtidRun
from changefeed.model.statement import Statement
from changefeed.model.transaction_event import TransactionEvent


@dataclass(frozen=True)
class SliceReport:
    """What a slice held: the accounts that `commit` adds up.

    ``size_bytes`` is the sum of the sizes of all events read; it must equal the slice's own size.
    ``rows`` counts published row changes by "database.table" and op (c, u, d, r), ``filtered`` those of captured tables
    that a filter left out, ``skipped_rows`` those of other tables.
    ``gtids`` is a GTID set of the transactions that ended in the slice, and ``order`` has those in binlog order
    that were not rolled back.
    ``transaction_events`` are those on which depends whether rows before them are published, in binlog order, and
    ``open_since`` is where the transaction begins that the slice ends in, None where it ends between two: `settlement`
    makes of them what is left out. ``transformed_away`` counts row changes of which a function of the pipeline made
    nothing, by its name; they are among ``rows``. ``prepared`` are the xids of XA transactions that the slice prepared
    and did not end, ``ended`` those that it ended and had not prepared. ``unordered`` are the tables of which it has
    updated or deleted rows that a replica may log in another order.
    """

    slice: int
    size_bytes: int
    events: int
    rows: dict[str, dict[str, int]] = field(default_factory=dict)
    skipped_rows: int = 0
    transactions: int = 0
    gtids: str = ""
    first_ts_seconds: int = 0
    last_ts_seconds: int = 0
    statements: tuple[Statement, ...] = ()
    transaction_events: tuple[TransactionEvent, ...] = ()
    open_since: int | None = None
    filtered: dict[str, dict[str, int]] = field(default_factory=dict)
    transformed_away: dict[str, int] = field(default_factory=dict)
    prepared: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    order: tuple[GtidRun, ...] = ()
    unordered: tuple[str, ...] = ()
