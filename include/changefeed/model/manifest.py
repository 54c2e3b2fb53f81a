"""Manifests: the counts of a window. A run seals the manifest in the commit log, and `commit` checks it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from changefeed.errors import AccountingError
from changefeed.model.coordinates import LAST_DUMP_POSITION
from changefeed.model.gtid import GtidSet
from changefeed.model.slice_report import SliceReport
from changefeed.model.window import Slice, Window

_BESIDE = ("plan", "commit")
"""Phases before a window is frozen, and after it is sealed."""
_MOST_XIDS = 1000
"""Limit of the XA transactions in a manifest."""


@dataclass(frozen=True)
class TopicPartitionReceipt:
    """The counts of one run for a topic-partition; offsets are None if the run published nothing new."""

    topic: str
    partition: int
    messages: int
    already_there: int
    value_bytes: int
    dead_letters: int
    first_offset: int | None
    last_offset: int | None
    dropped: dict[str, int] = field(default_factory=dict)
    """Dropped messages by the reason of the `BlockFilter`."""

    @property
    def accounted(self) -> int:
        """The number of messages that any attempt published, wrote as dead letters, or dropped."""
        return self.messages + self.already_there + self.dead_letters + sum(self.dropped.values())

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TopicPartitionReceipt:
        """The receipt from values of `Manifest.to_json`. Unknown fields, of a newer version, are ignored."""
        known = {name: value for name, value in values.items() if name in cls.__dataclass_fields__}
        return cls(**known)


@dataclass(frozen=True)
class Manifest:
    """The counts of a sealed window.

    - ``rows``: published row changes by "database.table" and op
    - ``filtered``: row changes that the pipeline's `rows` and `skip` left out, by "database.table" and op
    - ``skipped_rows``: row changes of tables that are not captured
    - ``seconds``: the duration of each phase
    - ``gtids``: the GTIDs of all transactions before the window's head. ``window.head_gtids`` may miss the last
      transactions, because MySQL's set is read shortly before the head.
    """

    window: Window
    size_bytes: int
    events: int
    transactions: int
    rows: dict[str, dict[str, int]]
    skipped_rows: int
    topics: tuple[TopicPartitionReceipt, ...]
    seconds: dict[str, float] = field(default_factory=dict)
    gtids: str = ""
    schemas: str = ""
    """Id of the stored schema history that is complete up to the window's head; '' where none is."""
    filtered: dict[str, dict[str, int]] = field(default_factory=dict)
    transformed_away: dict[str, int] = field(default_factory=dict)
    """The number of row changes that each function of the pipeline dropped, by its name. ``rows`` includes them."""
    prepared: tuple[str, ...] = ()
    """The xids of XA transactions that the window prepared and did not end, in order, at most 1000.

    The window with their XA COMMIT publishes their rows."""
    rules: str = ""
    """A digest of the settings that shaped its messages."""
    parked: tuple[str, ...] = ()
    """The captured tables that the window leaves out, because they are parked. Their rows are in ``skipped_rows``."""
    freshness_seconds: dict[str, float] = field(default_factory=dict)
    """The seconds from the commit of a table's oldest change until all changes of the window were in Kafka, by
    "database.table". Empty for a backfill, and for windows of an earlier version."""

    def sealed_at_ms(self, written_at_ms: int) -> int:
        """When the window was sealed, in Unix milliseconds: when its seal was written, at ``written_at_ms``; or, if
        `sign` or `rename` wrote it again later, by the window's own times."""
        seconds = sum(seconds for phase, seconds in self.seconds.items() if phase not in _BESIDE)
        return min(written_at_ms, self.window.frozen_at_ms + round(seconds * 1000))

    @property
    def dead_letters(self) -> int:
        """Dead letters that the sealing run wrote."""
        return sum(receipt.dead_letters for receipt in self.topics)

    @property
    def records(self) -> dict[str, int]:
        """The number of records that all attempts at the window published, by topic."""
        records: Counter[str] = Counter()
        for receipt in self.topics:
            records[receipt.topic] += receipt.messages + receipt.already_there
        return dict(records)

    @property
    def row_count(self) -> int:
        """Row changes of all tables."""
        return sum(sum(ops.values()) for ops in self.rows.values())

    @property
    def message_count(self) -> int:
        """Messages of the window, including those of earlier attempts and dropped ones."""
        return sum(receipt.accounted for receipt in self.topics)

    def to_json(self) -> dict[str, Any]:
        """The values that the commit log stores and the REST API returns."""
        values = {**asdict(self), "window": self.window.to_json()}
        for name in ("filtered", "prepared", "rules", "parked", "freshness_seconds"):
            if not values[name]:
                del values[name]
        return values

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Manifest:
        """The manifest from values of `to_json`. Unknown fields, of a newer version, are ignored.

        Raises TypeError, KeyError or ValueError for anything else.
        """
        known = {name: value for name, value in values.items() if name in cls.__dataclass_fields__}
        known["window"] = Window.from_json(values["window"])
        known |= {name: tuple(values.get(name, ())) for name in ("prepared", "parked")}
        known["topics"] = tuple(map(TopicPartitionReceipt.from_json, values["topics"]))
        return cls(**known)


def account(
    window: Window,
    slices: Sequence[Slice],
    reports: Sequence[SliceReport],
    decoded: dict[tuple[str, int], int],
    receipts: Sequence[TopicPartitionReceipt],
    seconds: dict[str, float],
    *,
    compare_gtids: bool = False,
    published_at: float | None = None,
) -> Manifest:
    """The manifest of a window, after a check of the number of bytes and messages.

    ``decoded`` has the number of messages that the slices decoded for each topic-partition. ``published_at`` is when
    the last message was published, as Unix time; without it the manifest has no freshness. Raises AccountingError, so
    that the checkpoint does not move, in these cases:

    - A slice has no report.
    - A slice read more or less than its bytes.
    - The number of published and dropped messages of a topic-partition differs from ``decoded``.
    - With ``compare_gtids``: the server's GTID set gained transactions that no slice has.
    """
    by_slice = {report.slice: report for report in reports}
    for window_slice in slices:
        report = by_slice.get(window_slice.number)
        if report is None:
            raise AccountingError(
                f"slice {_describe(window_slice)} has no report: its rows are not known. The window is not committed."
            )
        if report.size_bytes != window_slice.size_bytes:
            raise AccountingError(
                f"slice {_describe(window_slice)} is {window_slice.size_bytes} bytes, and {report.size_bytes} were "
                "read: events were skipped. The window is not committed."
            )
    if len(reports) != len(slices):
        raise AccountingError(f"{len(slices)} slices made {len(reports)} reports")
    given = {(receipt.topic, receipt.partition): receipt.accounted for receipt in receipts}
    for topic, partition in sorted(decoded.keys() | given.keys()):
        expected, known = (counts.get((topic, partition), 0) for counts in (decoded, given))
        if expected != known:
            raise AccountingError(
                f"topic {topic!r} partition {partition}: {expected} messages were decoded and {known} published or "
                "dropped by a filter. The window is not committed."
            )
    read = [GtidSet.parse(by_slice[window_slice.number].gtids) for window_slice in slices]
    if compare_gtids and window.start_gtids:
        _check_gtids(window, GtidSet.parse(window.start_gtids).union(*read))
    return Manifest(
        window=window,
        size_bytes=sum(report.size_bytes for report in reports),
        events=sum(report.events for report in reports),
        transactions=sum(report.transactions for report in reports),
        rows=sum_rows(report.rows for report in reports),
        filtered=sum_rows(report.filtered for report in reports),
        skipped_rows=sum(report.skipped_rows for report in reports),
        topics=tuple(sorted(receipts, key=lambda receipt: (receipt.topic, receipt.partition))),
        seconds=seconds,
        gtids=str(_gtids_before_head(window, read)),
        transformed_away=dict(sum((Counter(report.transformed_away) for report in reports), Counter())),
        prepared=_list_prepared(by_slice[window_slice.number] for window_slice in slices),
        freshness_seconds={} if published_at is None else _freshness_seconds(reports, published_at),
    )


def _describe(window_slice: Slice) -> str:
    return f"{window_slice.number} ({window_slice.file}:{window_slice.start}-{window_slice.end})"


def _list_prepared(reports: Iterable[SliceReport]) -> tuple[str, ...]:
    xids: dict[str, None] = {}
    for report in reports:  # in binlog order: a later slice may prepare an xid again after another slice ended it
        for xid in report.ended:
            xids.pop(xid, None)
        xids.update(dict.fromkeys(report.prepared))
    return tuple(islice(xids, _MOST_XIDS))


def _freshness_seconds(reports: Iterable[SliceReport], published_at: float) -> dict[str, float]:
    """The seconds since the oldest commit of each table; 0 if the source's clock is ahead."""
    oldest: dict[str, int] = {}
    for report in reports:
        for table, micros in report.commits.items():
            oldest[table] = min(micros, oldest.get(table, micros))
    return {table: max(0.0, round(published_at - micros / 1e6, 3)) for table, micros in sorted(oldest.items())}


def _gtids_before_head(window: Window, read: Sequence[GtidSet]) -> GtidSet:
    """The GTIDs of all transactions before the head of ``window``, whose slices have the GTIDs ``read``.

    On MariaDB the position that the server reports at the head is used, unless the head is after `LAST_DUMP_POSITION`.
    A computed position may differ: numbers of a domain may fall (gtid_strict_mode=OFF), and domains may be deleted
    (FLUSH BINARY LOGS DELETE_DOMAIN_ID).
    """
    start, head = GtidSet.parse(window.start_gtids), GtidSet.parse(window.head_gtids)
    if not head.mariadb_servers:
        return start.union(*read, head)
    return head if window.head.position <= LAST_DUMP_POSITION else start.move_past(*read)


def _check_gtids(window: Window, accounted: GtidSet) -> None:
    """Raises AccountingError if the server's set at the head has transactions that are not in ``accounted``.

    ``accounted`` may have more transactions than the server's set, because that set is read shortly before the head.
    """
    missing = GtidSet.parse(window.head_gtids).subtract(accounted)
    if missing:
        raise AccountingError(
            f"window {window.number} ({window.start} to {window.head}) should hold transactions {missing}, by the "
            "server's GTID sets at both ends, and its binlog does not: they were applied without being logged "
            "(log_replica_updates or log_bin off?), or the binlog was changed. The window is not committed. Find out "
            "where they went; to go on without them, seek the pipeline to latest."
        )


def sum_rows(counts: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    """The sums of ``counts`` of rows by table and op, sorted."""
    rows: dict[str, Counter[str]] = {}
    for of_report in counts:
        for table, ops in of_report.items():
            rows.setdefault(table, Counter()).update(ops)
    return {table: dict(sorted(ops.items())) for table, ops in sorted(rows.items())}
