"""The account of a comparison: what was compared, what differs, what was not judged, and what that makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.records import VerifyRecord
from changefeed.pipeline.connections import PipelineConnections
from changefeed.verify.follower_definitions import Difference
from changefeed.verify.key_comparison import DIFFERENCES, Kind, Verdict

Outcome = Literal["equal", "differs", "incomplete"]
"""``equal``: all rows of all tables were compared, and are. ``differs``: some are not. ``incomplete``: none was found
that differs, and not all could be judged."""

STREAM_FAULTS = {
    "repeated": "stand there twice",
    "disordered": "stand behind later changes",
    "foreign": "cannot be read as records of this pipeline",
    "unchained": "do not go on from the record of their key before them",
    "malformed": "have images, a key or source fields that do not fit",
    "misplaced": "are in another partition than that of their key",
}
"""What is the matter with records, whatever the rows are that they make."""

_WORDS = {
    Kind.CHANGED: "have other values",
    Kind.MISSING: "are missing in the topic",
    Kind.UNPUBLISHED: "were never published",
    Kind.EXTRA: "are in the topic only",
}


@dataclass
class TableAccount:
    """One table: ``kinds`` are rows by what became of them. ``reasons`` say why not all of it was judged.

    ``left_out`` is how many rows were not judged. ``definition`` is what a follower's definition has otherwise than the
    source's; ``notes`` are for people, and change no outcome.
    """

    name: str
    topic: str = ""
    rows: int = 0
    records: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    left_out: int = 0
    reasons: list[str] = field(default_factory=list)
    definition: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def differing(self) -> int:
        """How many rows differ."""
        return sum(self.kinds[kind] for kind in DIFFERENCES)

    @property
    def compared(self) -> int:
        """How many rows of the server were compared and are equal."""
        return self.kinds[Kind.EQUAL] + self.kinds[Kind.MEANWHILE] + self.kinds[Kind.IN_PART]

    @property
    def outcome(self) -> Outcome:
        """Of this table."""
        if self.differing or self.faults.total() or self.definition:
            return "differs"
        return "incomplete" if self.reasons or self.left_out else "equal"

    def lines(self) -> Iterator[str]:
        """What is to be said of it, for people."""
        for kind, words in _WORDS.items():
            if count := self.kinds[kind]:
                yield f"{count:,} rows {words}"
        for fault, words in STREAM_FAULTS.items():
            if count := self.faults[fault]:
                yield f"{count:,} records {words}"
        if count := self.kinds[Kind.MEANWHILE]:
            yield f"{count:,} rows changed while they were read, and were one of what they were meanwhile"
        if count := self.kinds[Kind.IN_PART]:
            yield f"{count:,} rows were compared in the columns that their records have"
        if self.left_out:
            yield f"{self.left_out:,} rows were not judged"
        yield from map(str, self.definition)
        yield from self.reasons
        yield from self.notes

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "table": self.name,
            "topic": self.topic,
            "outcome": self.outcome,
            "rows": self.rows,
            "records": self.records,
            "compared": self.compared,
            "kinds": {kind: count for kind, count in sorted(self.kinds.items()) if count},
            "faults": {fault: count for fault, count in sorted(self.faults.items()) if count},
            "left_out": self.left_out,
            "reasons": self.reasons,
            "definition": [asdict(difference) for difference in self.definition],
            "notes": self.notes,
        }


@dataclass(frozen=True)
class VerifyReport:
    """A comparison of one server with the topics.

    The rows of the server were read between ``low`` and ``high`` of the source's binlog, FILE:POSITION. ``follower`` is
    the connection id of the follower whose rows they are, '' for the source's own.
    """

    pipeline: str
    follower: str
    low: str
    high: str
    tables: tuple[TableAccount, ...]
    seconds: float
    finished_at_ms: int
    rounds: int = 1
    run: str = ""
    """The run of the DAG that made it; '' for the command's."""
    sampled: bool = False
    """Whether only some chunks of the server were read."""
    verdicts: tuple[Verdict, ...] = field(default=(), compare=False)
    """The first of those that differ; they are not kept."""

    @property
    def outcome(self) -> Outcome:
        """Of all tables."""
        outcomes = {table.outcome for table in self.tables}
        if "differs" in outcomes:
            return "differs"
        return "incomplete" if self.sampled or "incomplete" in outcomes else "equal"

    @property
    def rows(self) -> int:
        """How many rows of the server were read."""
        return sum(table.rows for table in self.tables)

    @property
    def compared(self) -> int:
        """How many of them are equal."""
        return sum(table.compared for table in self.tables)

    @property
    def differing(self) -> int:
        """How many rows differ, and parts of definitions, and records are not as they should be."""
        return sum(table.differing + table.faults.total() + len(table.definition) for table in self.tables)

    def to_json(self) -> dict[str, Any]:
        """Plain values, without a row's."""
        return {
            "pipeline": self.pipeline,
            "follower": self.follower,
            "outcome": self.outcome,
            "low": self.low,
            "high": self.high,
            "rows": self.rows,
            "compared": self.compared,
            "differing": self.differing,
            "rounds": self.rounds,
            "run": self.run,
            "sampled": self.sampled,
            "seconds": round(self.seconds, 3),
            "finished_at_ms": self.finished_at_ms,
            "tables": [table.to_json() for table in self.tables],
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Read what `to_json` made."""
        return cls(
            str(values["pipeline"]),
            str(values["follower"]),
            str(values["low"]),
            str(values["high"]),
            tuple(map(_table_of, values["tables"])),
            float(values["seconds"]),
            int(values["finished_at_ms"]),
            int(values["rounds"]),
            str(values["run"]),
            bool(values["sampled"]),
        )


def summary(report: VerifyReport) -> list[str]:
    """A line on the whole, and those of tables of which there is something to say."""
    whose = f"follower {report.follower}" if report.follower else "source"
    words = {
        "equal": f"the topics have what the {whose} has",
        "differs": f"the topics differ from the {whose}",
        "incomplete": f"no difference between the topics and the {whose} was found, but not all could be judged",
    }
    lines = [
        f"{report.pipeline}: {report.outcome}: {words[report.outcome]}, between {report.low} and {report.high}: "
        f"{report.compared:,} rows of {len(report.tables):,} tables are equal"
    ]
    if report.sampled:
        lines.append(f"{report.pipeline}: only a sample of the chunks was read")
    return lines + [f"{table.name}: {line}" for table in report.tables for line in table.lines()]


def _table_of(values: dict[str, Any]) -> TableAccount:
    return TableAccount(
        values["table"],
        values["topic"],
        values["rows"],
        values["records"],
        Counter(values["kinds"]),
        Counter(values["faults"]),
        values["left_out"],
        list(values["reasons"]),
        [
            Difference(**difference) for difference in values.get("definition", ())
        ],  # reports of earlier releases have none
        list(values.get("notes", ())),
    )


def first_of(verdicts: Sequence[Verdict], most: int) -> list[Verdict]:
    """The first of each table."""
    counts: Counter[int] = Counter()
    first = []
    for verdict in sorted(verdicts, key=lambda verdict: (verdict.table, verdict.key)):
        counts[verdict.table] += 1
        if counts[verdict.table] <= most:
            first.append(verdict)
    return first


def keep_report(connections: PipelineConnections, report: VerifyReport) -> None:
    """Write ``report`` to the commit log, in place of the last one of the same server. It holds no row's values."""
    connections.commit_log().note(VerifyRecord(report.follower, report.to_json()))


def last_reports(state: CommitLogState) -> list[VerifyReport]:
    """The last report of the source and of each follower, latest first."""
    reports = [VerifyReport.from_json(dict(record.report)) for record in state.of(VerifyRecord)]
    return sorted(reports, key=lambda report: -report.finished_at_ms)
