"""The report of a decoded slice."""

from __future__ import annotations

from dataclasses import dataclass, field

from changefeed.model.binlog_order import GtidRun
from changefeed.model.statement import Statement
from changefeed.model.transaction_event import TransactionEvent


@dataclass(frozen=True)
class SliceReport:
    """The counts and transactions of a decoded slice. `manifest.account` adds up the counts.

    | field | value |
    |---|---|
    | ``size_bytes`` | sum of the sizes of all events read; must equal the size of the slice |
    | ``rows`` | published row changes by "database.table" and op (c, u, d, r) |
    | ``filtered`` | row changes of captured tables that a filter left out, by "database.table" and op |
    | ``skipped_rows`` | row changes of other tables |
    | ``transformed_away`` | row changes that a function of the pipeline dropped, by its name; ``rows`` includes them |
    | ``gtids`` | GTID set of the transactions that ended in the slice |
    | ``order`` | the transactions of ``gtids`` that were not rolled back, in binlog order |
    | ``transaction_events`` | events that decide whether rows before them are published, in binlog order |
    | ``open_since`` | begin of the transaction that is open at the slice's end; None if there is none |
    | ``prepared`` | xids of XA transactions that the slice prepared and did not end |
    | ``ended`` | xids of XA transactions that the slice ended and did not prepare |
    | ``unordered`` | tables with updated or deleted rows that a replica may log in another order |
    | ``commits`` | commit time of a table's first transaction, in microseconds since 1970, by "database.table" |

    Transaction outcomes are computed from ``transaction_events`` and ``open_since``.
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
    commits: dict[str, int] = field(default_factory=dict)
