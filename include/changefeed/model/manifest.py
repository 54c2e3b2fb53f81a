"""What a window held and where it went: sealed in the commit log, and the proof that `commit` asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

from changefeed.errors import AccountingError
from changefeed.model.coordinates import LAST_DUMP_POSITION
from changefeed.model.gtid import GtidSet
from changefeed.model.slice_report import SliceReport
from changefeed.model.window import Slice, Window

_MOST_XIDS = 1000
"""So many of a window's XA transactions are named in its manifest."""


@dataclass(frozen=True)
class TopicPartitionReceipt:
    """What one run gave a topic-partition; offsets are Kafka's, None where nothing was new."""

    topic: str
    partition: int
    messages: int
    already_there: int
    value_bytes: int
    dead_letters: int
    first_offset: int | None
    last_offset: int | None
    dropped: dict[str, int] = field(default_factory=dict)
    """Messages that were left out, by the reason of the `BlockFilter` that did it."""

    @property
    def accounted(self) -> int:
        """Messages of which it is known what became of them: in Kafka, whichever attempt brought them, or dropped."""
        return self.messages + self.already_there + self.dead_letters + sum(self.dropped.values())

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TopicPartitionReceipt:
        """Read what `Manifest.to_json` made; fields of a newer version are left out."""
        known = {name: value for name, value in values.items() if name in cls.__dataclass_fields__}
        return cls(**known)


@dataclass(frozen=True)
class Manifest:
    """A sealed window. ``rows`` counts published row changes by "database.table" and op, ``filtered`` those that a
    pipeline's `rows` and `skip` left out, ``skipped_rows`` those of tables that are not captured; ``seconds`` by phase.

    ``gtids`` are those of everything before the window's head: what was there at its start, and what was read.
    MySQL's own word (``head_gtids``) is read a moment before the head, and may lack the last transactions.
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
    """Row changes of which a function of the pipeline made no message, by its name; they are among ``rows``."""
    prepared: tuple[str, ...] = ()
    """The xids of XA transactions that the window prepared and did not end, in order and 1000 at most: their rows are
    published by the window with their XA COMMIT."""
    rules: str = ""
    """A digest of the settings that shaped its messages."""

    @property
    def dead_letters(self) -> int:
        """Dead letters that the sealing run wrote."""
        return sum(receipt.dead_letters for receipt in self.topics)

    @property
    def row_count(self) -> int:
        """Row changes of all tables."""
        return sum(sum(ops.values()) for ops in self.rows.values())

    @property
    def message_count(self) -> int:
        """Messages that the window became; those that were there already or were dropped are among them."""
        return sum(receipt.accounted for receipt in self.topics)

    def to_json(self) -> dict[str, Any]:
        """As the commit log stores it, and the REST API shows it."""
        values = {**asdict(self), "window": self.window.to_json()}
        for name in ("filtered", "prepared", "rules"):
            if not values[name]:
                del values[name]
        return values

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Manifest:
        """Read what `to_json` made; fields of a newer version are left out.

        Raises TypeError, KeyError or ValueError for anything else.
        """
        known = {name: value for name, value in values.items() if name in cls.__dataclass_fields__}
        known["window"] = Window.from_json(values["window"])
        known["prepared"] = tuple(values.get("prepared", ()))
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
) -> Manifest:
    """The manifest of a window whose every byte and message is accounted for.

    ``decoded`` is how many messages the slices made for each topic-partition. Raises AccountingError, and thereby
    keeps the checkpoint where it is, when slices are missing, read more or less than their bytes, or when a
    topic-partition did not get exactly its messages.

    With ``compare_gtids`` it is also an error when the server's GTID set moved by transactions that none of the slices
    held.
    """
    by_slice = {report.slice: report for report in reports}
    for piece in slices:
        report = by_slice.get(piece.number)
        if report is None:
            raise AccountingError(f"slice {piece.number} ({piece.file}:{piece.start}-{piece.end}) made no report")
        if report.size_bytes != piece.size_bytes:
            raise AccountingError(
                f"slice {piece.number} ({piece.file}:{piece.start}-{piece.end}) is {piece.size_bytes} bytes, and "
                f"{report.size_bytes} were read: something was passed over. The window is not committed."
            )
    if len(reports) != len(slices):
        raise AccountingError(f"{len(slices)} slices made {len(reports)} reports")
    given = {(receipt.topic, receipt.partition): receipt.accounted for receipt in receipts}
    for topic, partition in sorted(decoded.keys() | given.keys()):
        wanted, known = (counts.get((topic, partition), 0) for counts in (decoded, given))
        if wanted != known:
            raise AccountingError(
                f"topic {topic!r} partition {partition}: {wanted} messages were decoded and {known} published or "
                "dropped by a filter. The window is not committed."
            )
    read = [GtidSet.parse(by_slice[piece.number].gtids) for piece in slices]
    if compare_gtids and window.start_gtids:
        _check_gtids(window, GtidSet.parse(window.start_gtids).union(*read))
    return Manifest(
        window=window,
        size_bytes=sum(report.size_bytes for report in reports),
        events=sum(report.events for report in reports),
        transactions=sum(report.transactions for report in reports),
        rows=_sums(report.rows for report in reports),
        filtered=_sums(report.filtered for report in reports),
        skipped_rows=sum(report.skipped_rows for report in reports),
        topics=tuple(sorted(receipts, key=lambda receipt: (receipt.topic, receipt.partition))),
        seconds=seconds,
        gtids=str(_gtids_before_head(window, read)),
        transformed_away=dict(sum((Counter(report.transformed_away) for report in reports), Counter())),
        prepared=_prepared(by_slice[piece.number] for piece in slices),
    )


def _prepared(reports: Iterable[SliceReport]) -> tuple[str, ...]:
    xids: dict[str, None] = {}
    for report in reports:  # in binlog order; an xid that a slice ended may be prepared again behind that
        for xid in report.ended:
            xids.pop(xid, None)
        xids.update(dict.fromkeys(report.prepared))
    return tuple(islice(xids, _MOST_XIDS))


def _gtids_before_head(window: Window, read: Sequence[GtidSet]) -> GtidSet:
    """The GTIDs of everything before the head of ``window``, whose slices have those that were ``read``.

    MariaDB's position is not computed where the server says it: numbers of a domain may fall
    (gtid_strict_mode=OFF), and domains be deleted (FLUSH BINARY LOGS DELETE_DOMAIN_ID).
    """
    start, head = GtidSet.parse(window.start_gtids), GtidSet.parse(window.head_gtids)
    if not head.mariadb_servers:
        return start.union(*read, head)
    return head if window.head.position <= LAST_DUMP_POSITION else start.moved_by(*read)


def _check_gtids(window: Window, accounted: GtidSet) -> None:
    """What the server had executed at the head was there at the start, or was read.

    Not the other way round: the server's set is read a moment before its head.
    """
    missing = GtidSet.parse(window.head_gtids).subtract(accounted)
    if missing:
        raise AccountingError(
            f"window {window.number} ({window.start} to {window.head}) should hold transactions {missing}, by the "
            "server's GTID sets at both ends, and its binlog does not: they were applied without being logged "
            "(log_replica_updates or log_bin off?), or the binlog was changed. The window is not committed. Find out "
            "where they went; to go on without them, seek the pipeline to latest."
        )


def _sums(counts: Iterable[dict[str, dict[str, int]]]) -> dict[str, dict[str, int]]:
    rows: dict[str, Counter[str]] = {}
    for of_report in counts:
        for table, ops in of_report.items():
            rows.setdefault(table, Counter()).update(ops)
    return {table: dict(sorted(ops.items())) for table, ops in sorted(rows.items())}
