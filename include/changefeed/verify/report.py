"""The report of a comparison: its outcome, and for each table the rows that are equal, differ or were not compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.records import VerifyRecord
from changefeed.pipeline.connections import PipelineConnections
from changefeed.verify.follower_definitions import Difference
from changefeed.verify.key_comparison import DIFFERENCES, KeyResult, ResultKind

Outcome = Literal["equal", "differs", "incomplete"]
"""The outcome of a comparison.

- ``equal``: all rows of all tables were compared and are equal.
- ``differs``: a row or a table definition differs, or a record is faulty.
- ``incomplete``: no difference was found, but not all rows were compared.
"""

STREAM_FAULTS = {
    "repeated": "are in the topic twice",
    "disordered": "are after later changes",
    "foreign": "cannot be read as records of this pipeline",
    "unchained": "do not continue the record before them of their key",
    "malformed": "have images, a key or source fields that do not fit",
    "misplaced": "are in another partition than that of their key",
}
"""The faults of records. A record may be faulty even if the topic and the server have equal rows."""

_WORDS = {
    ResultKind.CHANGED: "have other values",
    ResultKind.MISSING: "are missing in the topic",
    ResultKind.UNPUBLISHED: "were never published",
    ResultKind.EXTRA: "are in the topic only",
}


@dataclass
class TableAccount:
    """The results of one table.

    - ``kinds``: the number of rows by result; ``faults``: the number of records by fault.
    - ``left_out``: the number of rows that were not compared; ``reasons`` says why.
    - ``definition``: the differences between the table definitions of the follower and the source.
    - ``notes``: facts that do not change the outcome.
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
        """The number of rows that differ."""
        return sum(self.kinds[kind] for kind in DIFFERENCES)

    @property
    def equal_rows(self) -> int:
        """The number of the server's rows that were compared and are equal."""
        return self.kinds[ResultKind.EQUAL] + self.kinds[ResultKind.MEANWHILE] + self.kinds[ResultKind.IN_PART]

    @property
    def outcome(self) -> Outcome:
        """The outcome of this table."""
        if self.differing or self.faults.total() or self.definition:
            return "differs"
        return "incomplete" if self.reasons or self.left_out else "equal"

    def lines(self) -> Iterator[str]:
        """Yield the lines of the table in the summary."""
        for kind, words in _WORDS.items():
            if count := self.kinds[kind]:
                yield f"{count:,} rows {words}"
        for fault, words in STREAM_FAULTS.items():
            if count := self.faults[fault]:
                yield f"{count:,} records {words}"
        if count := self.kinds[ResultKind.MEANWHILE]:
            yield f"{count:,} rows changed while they were read, and are equal to a row of that time"
        if count := self.kinds[ResultKind.IN_PART]:
            yield f"{count:,} rows were compared only in the columns that their records have"
        if self.left_out:
            yield f"{self.left_out:,} rows were not compared"
        yield from map(str, self.definition)
        yield from self.reasons
        yield from self.notes

    def to_json(self) -> dict[str, Any]:
        """The account as JSON values."""
        return {
            "table": self.name,
            "topic": self.topic,
            "outcome": self.outcome,
            "rows": self.rows,
            "records": self.records,
            "compared": self.equal_rows,
            "kinds": {kind: count for kind, count in sorted(self.kinds.items()) if count},
            "faults": {fault: count for fault, count in sorted(self.faults.items()) if count},
            "left_out": self.left_out,
            "reasons": self.reasons,
            "definition": [asdict(difference) for difference in self.definition],
            "notes": self.notes,
        }


@dataclass(frozen=True)
class VerifyReport:
    """The report of a comparison of one server with the topics.

    The rows of the server were read between positions ``low`` and ``high`` of the source's binlog, FILE:POSITION.
    ``follower`` is the connection id of the follower that was read; '' for the source.
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
    """The id of the DAG run; '' for a comparison by the command."""
    sampled: bool = False
    """Whether only a sample of the chunks was read."""
    results: tuple[KeyResult, ...] = field(default=(), compare=False)
    """The first results that differ; they are not stored."""

    @property
    def outcome(self) -> Outcome:
        """The outcome of all tables."""
        outcomes = {table.outcome for table in self.tables}
        if "differs" in outcomes:
            return "differs"
        return "incomplete" if self.sampled or "incomplete" in outcomes else "equal"

    @property
    def rows(self) -> int:
        """The number of the server's rows that were read."""
        return sum(table.rows for table in self.tables)

    @property
    def equal_rows(self) -> int:
        """The number of the server's rows that are equal."""
        return sum(table.equal_rows for table in self.tables)

    @property
    def differing(self) -> int:
        """The number of differing rows, faulty records and differences of table definitions."""
        return sum(table.differing + table.faults.total() + len(table.definition) for table in self.tables)

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values. They contain no values of rows."""
        return {
            "pipeline": self.pipeline,
            "follower": self.follower,
            "outcome": self.outcome,
            "low": self.low,
            "high": self.high,
            "rows": self.rows,
            "compared": self.equal_rows,
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
        """The report from values that `to_json` returned."""
        return cls(
            str(values["pipeline"]),
            str(values["follower"]),
            str(values["low"]),
            str(values["high"]),
            tuple(map(_account_from_json, values["tables"])),
            float(values["seconds"]),
            int(values["finished_at_ms"]),
            int(values["rounds"]),
            str(values["run"]),
            bool(values["sampled"]),
        )


def summary(report: VerifyReport) -> list[str]:
    """The lines of a summary: one line for the comparison, then the lines of each table."""
    whose = f"follower {report.follower}" if report.follower else "source"
    words = {
        "equal": f"the topics have what the {whose} has",
        "differs": f"the topics differ from the {whose}",
        "incomplete": f"no difference between the topics and the {whose} was found, but not all rows could be compared",
    }
    lines = [
        f"{report.pipeline}: {report.outcome}: {words[report.outcome]}, between {report.low} and {report.high}: "
        f"{report.equal_rows:,} rows of {len(report.tables):,} tables are equal"
    ]
    if report.sampled:
        lines.append(f"{report.pipeline}: only a sample of the chunks was read")
    return lines + [f"{table.name}: {line}" for table in report.tables for line in table.lines()]


def _account_from_json(values: dict[str, Any]) -> TableAccount:
    return TableAccount(
        values["table"],
        values["topic"],
        values["rows"],
        values["records"],
        Counter(values["kinds"]),
        Counter(values["faults"]),
        values["left_out"],
        list(values["reasons"]),
        # Reports of earlier releases have neither definition nor notes.
        [Difference(**difference) for difference in values.get("definition", ())],
        list(values.get("notes", ())),
    )


def first_results(results: Sequence[KeyResult], most: int) -> list[KeyResult]:
    """The first ``most`` results of each table."""
    counts: Counter[int] = Counter()
    first = []
    for result in sorted(results, key=lambda result: (result.table, result.key)):
        counts[result.table] += 1
        if counts[result.table] <= most:
            first.append(result)
    return first


def store_report(connections: PipelineConnections, report: VerifyReport) -> None:
    """Write ``report`` to the commit log, where it replaces the last report of the same server."""
    connections.commit_log().note(VerifyRecord(report.follower, report.to_json()))


def last_reports(state: CommitLogState) -> list[VerifyReport]:
    """The last report of the source and of each follower, latest first."""
    reports = [VerifyReport.from_json(dict(record.report)) for record in state.of(VerifyRecord)]
    return sorted(reports, key=lambda report: -report.finished_at_ms)
