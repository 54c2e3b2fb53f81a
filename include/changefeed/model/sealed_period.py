"""The sums of the windows that were sealed in an hour or a day: what the commit log has of them once their seals are
merged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.manifest import Manifest, sum_rows

HOUR_MS = 3_600_000
MOST_NAMES = 1000
"""The maximum number of tables and of topics with sums of their own, so that a record of any period fits in the log."""
OTHERS = "(others)"
"""The name under which further tables and topics are summed. No table or topic has such a name."""


@dataclass(frozen=True)
class TopicSums:
    """Sums of a topic: the ``messages`` that any attempt published, the bytes of their values, the dead letters, and
    the messages that a filter ``dropped``. The bytes and the dead letters are those of the attempts that sealed."""

    messages: int = 0
    value_bytes: int = 0
    dead_letters: int = 0
    dropped: int = 0

    def __add__(self, other: TopicSums) -> TopicSums:
        return TopicSums(
            self.messages + other.messages,
            self.value_bytes + other.value_bytes,
            self.dead_letters + other.dead_letters,
            self.dropped + other.dropped,
        )


@dataclass(frozen=True)
class SealedPeriod:
    """The sums of ``windows`` windows, the numbers ``first`` to ``last``, that were sealed in one hour or day (UTC).

    - ``hour``: its first hour, in hours since 1970-01-01 UTC; ``hours``: its length, 1 or 24
    - ``start``: of window ``first``; ``head``: of window ``last``. ``servers``: the UUIDs of their servers, in order
    - the other fields: the sums of those of `Manifest`; ``seconds`` by phase
    """

    hour: int
    hours: int
    windows: int
    first: int
    last: int
    start: BinlogCoordinates
    head: BinlogCoordinates
    servers: tuple[str, ...]
    size_bytes: int
    events: int
    transactions: int
    rows: Mapping[str, Mapping[str, int]]
    filtered: Mapping[str, Mapping[str, int]]
    skipped_rows: int
    transformed_away: Mapping[str, int]
    topics: Mapping[str, TopicSums]
    seconds: Mapping[str, float]

    @property
    def begins_ms(self) -> int:
        """Its begin, in Unix milliseconds."""
        return self.hour * HOUR_MS

    @property
    def ends_ms(self) -> int:
        """Its end, in Unix milliseconds."""
        return (self.hour + self.hours) * HOUR_MS

    @property
    def row_count(self) -> int:
        """Row changes of all tables."""
        return sum(sum(ops.values()) for ops in self.rows.values())

    @property
    def message_count(self) -> int:
        """Messages of the windows, also dead letters and dropped ones, as `Manifest.message_count`."""
        return sum(sums.messages + sums.dead_letters + sums.dropped for sums in self.topics.values())

    @property
    def dead_letters(self) -> int:
        """Dead letters that the sealing runs wrote."""
        return sum(sums.dead_letters for sums in self.topics.values())

    @classmethod
    def of_window(cls, hour: int, manifest: Manifest) -> SealedPeriod:
        """The hour of a window that was sealed in ``hour``, before any other window of that hour is added."""
        window = manifest.window
        topics: dict[str, TopicSums] = {}
        for receipt in manifest.topics:
            published, dropped = receipt.messages + receipt.already_there, sum(receipt.dropped.values())
            sums = TopicSums(published, receipt.value_bytes, receipt.dead_letters, dropped)
            topics[receipt.topic] = topics.get(receipt.topic, TopicSums()) + sums
        return cls(
            hour=hour,
            hours=1,
            windows=1,
            first=window.number,
            last=window.number,
            start=window.start,
            head=window.head,
            servers=(window.server_uuid,),
            size_bytes=manifest.size_bytes,
            events=manifest.events,
            transactions=manifest.transactions,
            rows=manifest.rows,
            filtered=manifest.filtered,
            skipped_rows=manifest.skipped_rows,
            transformed_away=manifest.transformed_away,
            topics=topics,
            seconds=manifest.seconds,
        )

    @classmethod
    def of(cls, hour: int, hours: int, parts: Sequence[SealedPeriod]) -> SealedPeriod:
        """The sums of ``parts``, at least one, in a period of ``hours`` hours from ``hour`` on."""
        return replace(_sum(parts), hour=hour, hours=hours)

    def to_json(self) -> dict[str, Any]:
        """The values that the commit log stores and the REST API returns."""
        texts = {"begins_ms": self.begins_ms, "start": str(self.start), "head": str(self.head)}
        seconds = {phase: round(value, 3) for phase, value in self.seconds.items()}
        topics = {name: asdict(sums) for name, sums in self.topics.items()}
        return {**vars(self), **texts, "servers": list(self.servers), "seconds": seconds, "topics": topics}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SealedPeriod:
        """The sums from values of `to_json`. Unknown fields, of a newer version, are ignored.

        Raises TypeError, KeyError, AttributeError or ValueError for anything else: other sums are added to these.
        """
        if not 0 <= int(values["hour"]) < _MOST_HOURS:
            raise ValueError(f"hour {values['hour']} since 1970")
        return cls(
            **{name: int(values[name]) for name in _NUMBERS},
            start=BinlogCoordinates.parse(values["start"]),
            head=BinlogCoordinates.parse(values["head"]),
            servers=tuple(map(str, values["servers"])),
            rows={table: _whole_numbers(ops) for table, ops in values["rows"].items()},
            filtered={table: _whole_numbers(ops) for table, ops in values["filtered"].items()},
            transformed_away=_whole_numbers(values["transformed_away"]),
            topics={topic: _topic_sums(sums) for topic, sums in values["topics"].items()},
            seconds={phase: float(seconds) for phase, seconds in values["seconds"].items()},
        )


_NUMBERS = ("hour", "hours", "windows", "first", "last", "size_bytes", "events", "transactions", "skipped_rows")
_MOST_HOURS = 10_000_000
"""Later than any hour of a window, in the year 3110."""


def _whole_numbers(values: Mapping[str, Any]) -> dict[str, int]:
    return {name: int(value) for name, value in values.items()}


def _topic_sums(values: Mapping[str, Any]) -> TopicSums:
    known = {name: value for name, value in values.items() if name in TopicSums.__dataclass_fields__}
    return TopicSums(**_whole_numbers(known))


def _sum(parts: Sequence[SealedPeriod]) -> SealedPeriod:
    first, last = min(parts, key=lambda part: part.first), max(parts, key=lambda part: part.last)
    return replace(
        first,
        windows=sum(part.windows for part in parts),
        last=last.last,
        head=last.head,
        servers=tuple(dict.fromkeys(server for part in parts for server in part.servers)),
        size_bytes=sum(part.size_bytes for part in parts),
        events=sum(part.events for part in parts),
        transactions=sum(part.transactions for part in parts),
        rows=_sum_tables(part.rows for part in parts),
        filtered=_sum_tables(part.filtered for part in parts),
        skipped_rows=sum(part.skipped_rows for part in parts),
        transformed_away=_sum_numbers(part.transformed_away for part in parts),
        topics=_sum_topics(part.topics for part in parts),
        seconds=_sum_numbers(part.seconds for part in parts),
    )


def _sum_tables(counts: Iterable[Mapping[str, Mapping[str, int]]]) -> dict[str, dict[str, int]]:
    rows = sum_rows(counts)
    kept = _largest({table: sum(ops.values()) for table, ops in rows.items()})
    return sum_rows({table if table in kept else OTHERS: ops} for table, ops in rows.items())


def _sum_topics(counts: Iterable[Mapping[str, TopicSums]]) -> dict[str, TopicSums]:
    found = [(topic, sums) for each in counts for topic, sums in each.items()]
    messages: Counter[str] = Counter()
    for topic, sums in found:
        messages[topic] += sums.messages
    kept, topics = _largest(messages), dict[str, TopicSums]()
    for topic, sums in found:
        name = topic if topic in kept else OTHERS
        topics[name] = topics.get(name, TopicSums()) + sums
    return dict(sorted(topics.items()))


def _largest(counts: Mapping[str, int]) -> set[str]:
    """The names that keep sums of their own: the MOST_NAMES with the largest counts."""
    names = sorted((name for name in counts if name != OTHERS), key=lambda name: (-counts[name], name))
    return set(names[:MOST_NAMES])


def _sum_numbers(counts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    sums: Counter[str] = Counter()
    for each in counts:
        sums.update(each)
    return dict(sums)
