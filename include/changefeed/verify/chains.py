"""The deep part of a comparison: whether the records of the topics, as a consumer reads them, are whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from changefeed.formats.by_table import of_table
from changefeed.formats.template import ChangeKind
from changefeed.kafka.topics import compacted_topics
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.pipeline.windows import settled_state
from changefeed.records.event_id import moment_of
from changefeed.verify.chain_records import ChainReport
from changefeed.verify.definition_moments import definition_moments
from changefeed.verify.job import PartitionPiece, VerifyJob
from changefeed.verify.key_chains import ChainJudge, Chains
from changefeed.verify.report import TableAccount
from changefeed.verify.tables import JudgedTable

_SHOWN = 20


class ChainStages(Protocol):
    """The work of a deep comparison that is done in parallel."""

    def read_chains(
        self, job: VerifyJob, counts: Mapping[str, int], pieces: Sequence[PartitionPiece], expected_bytes: int
    ) -> list[ChainReport]:
        """Read the partitions of topics with so many ``counts`` of them. What was read before is forgotten."""
        ...

    def chains(self, judge: ChainJudge) -> Chains:
        """Bring together, by key, what was read, and judge it."""
        ...


def add_chains(
    job: VerifyJob,
    accounts: Sequence[TableAccount],
    stages: ChainStages,
    pieces: Sequence[PartitionPiece],
    expected_bytes: int,
) -> None:
    """Add to ``accounts`` what is wrong with the records of ``pieces``, all partitions of the job's topics.

    Raises what the stages raise, and BrokerUnavailableError.
    """
    named = {account.name: account for account in accounts}
    of_topics: dict[str, TableAccount] = {}
    for table in job.tables.judged:  # of a topic that several tables share, the first one's account has its records
        of_topics.setdefault(table.topic, named[table.name])
    counts = {topic: sum(piece.topic == topic for piece in pieces) for topic in job.tables.topics}
    compacted = compacted_topics(job.connections.kafka, job.tables.topics)
    trimmed = {piece.topic for piece in pieces if piece.first > 0}
    breaks = _breaks(job)
    reports = stages.read_chains(job, counts, pieces, expected_bytes)
    chains = stages.chains(
        ChainJudge(
            breaks,
            frozenset(table.number for table in job.tables.judged if _has_tombstones(job, table)),
            frozenset(table.number for table in job.tables.judged if table.keeps_gone or table.topic in compacted),
        )
    )
    for (number, kind), count in chains.counts.items():
        _account(job, number, named, of_topics).faults[kind] += count
    shown: dict[str, int] = {}
    for number, kind, text in chains.shown:
        account = _account(job, number, named, of_topics)
        shown[account.name] = shown.get(account.name, 0) + 1
        if shown[account.name] <= _SHOWN:
            account.reasons.append(f"{kind}: {text}")
    for topic, account in of_topics.items():
        _add_reports(account, [report for report in reports if report.topic == topic])
        if topic in compacted or topic in trimmed:
            why = "it is compacted" if topic in compacted else "its first records were removed (retention)"
            account.notes.append(
                f"the chains of keys in topic {topic!r} begin later, or have gaps: {why}. Only records that are there "
                "were compared with each other"
            )


def _account(
    job: VerifyJob, number: int, named: Mapping[str, TableAccount], of_topics: Mapping[str, TableAccount]
) -> TableAccount:
    if number < 0:
        return of_topics[job.tables.topics[-1 - number]]
    return named[job.table(number).name]


def _add_reports(account: TableAccount, reports: Sequence[ChainReport]) -> None:
    if malformed := sum(report.malformed for report in reports):
        account.faults["malformed"] += malformed
    misplaced = sum(report.outside for report in reports)
    if misplaced and not has_grown(reports):
        account.faults["misplaced"] += misplaced
    else:
        misplaced = 0
    for report in reports:
        strays = [stray for stray in report.shown if stray[0] != "misplaced" or misplaced]
        for kind, text, partition, offset in strays[:3]:
            account.reasons.append(f"{kind}: partition {partition}, offset {offset}: {text}")


def has_grown(reports: Sequence[ChainReport]) -> bool:
    """Whether the topic had fewer partitions until after the last record that is in another than now."""
    last = max(report.last_outside for report in reports)
    fits = (
        all(report.first_outside.get(count, last + 1) > last for report in reports) for count in range(1, len(reports))
    )
    return any(fits)


def _has_tombstones(job: VerifyJob, table: JudgedTable) -> bool:
    """Whether each delete of a row is a record and one without a value after it, which is known to be the table's."""
    format = of_table(job.format(), table.schema.database, table.schema.table)
    messages = format.messages(table.schema)[ChangeKind.DELETE]
    is_alone = sum(other.topic == table.topic for other in job.tables.judged) == 1
    return is_alone and not table.without_key and {message.op for message in messages} >= {None, "d"}


def _breaks(job: VerifyJob) -> dict[int, tuple[int, ...]]:
    """By table the moments at which rows became others, or came and went, without a record of each: definitions, and
    where a seek led."""
    base = BinlogCoordinates.parse(job.begun).base
    sought = [BinlogCoordinates.parse(seek.to) for seek in settled_state(job.connections).seeks.values()]
    moments = {moment_of(to) for to in sought if to.base == base}
    return {number: tuple(sorted({*its, *moments})) for number, its in definition_moments(job).items()}
