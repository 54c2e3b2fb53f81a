"""The deep part of a comparison: checks that each record continues from the previous record of its key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from changefeed.formats.by_table import of_table
from changefeed.formats.template import ChangeKind
from changefeed.kafka.topics import compacted_topics
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.pipeline.windows import last_stable_state
from changefeed.records.event_id import moment_of
from changefeed.verify.chain_records import ChainReport
from changefeed.verify.ddl_moments import ddl_moments
from changefeed.verify.job import OffsetRange, VerifyJob
from changefeed.verify.key_chains import ChainChecker, ChainFaults
from changefeed.verify.report import TableAccount
from changefeed.verify.tables import ComparedTable

_SHOWN = 20


class ChainStages(Protocol):
    """The parallel steps of a deep comparison."""

    def read_chains(
        self, job: VerifyJob, counts: Mapping[str, int], offset_ranges: Sequence[OffsetRange], expected_bytes: int
    ) -> list[ChainReport]:
        """Read the partitions and return their reports. Drops all entries that were read before.

        ``counts`` has the number of partitions of each topic.
        """
        ...

    def check_chains(self, checker: ChainChecker) -> ChainFaults:
        """Group the entries by key, check each chain, and return the faults."""
        ...


def add_chain_faults(
    job: VerifyJob,
    accounts: Sequence[TableAccount],
    stages: ChainStages,
    offset_ranges: Sequence[OffsetRange],
    expected_bytes: int,
) -> None:
    """Add to ``accounts`` the faults of the records of ``offset_ranges``, which are all partitions of the job's topics.

    Raises the errors of the stages, and BrokerUnavailableError.
    """
    named = {account.name: account for account in accounts}
    of_topics: dict[str, TableAccount] = {}
    for table in job.tables.compared:  # the first account of a shared topic has its records
        of_topics.setdefault(table.topic, named[table.name])
    counts = {topic: sum(offset_range.topic == topic for offset_range in offset_ranges) for topic in job.tables.topics}
    compacted = compacted_topics(job.connections.kafka, job.tables.topics)
    trimmed = {offset_range.topic for offset_range in offset_ranges if offset_range.first > 0}
    breaks = _breaks(job)
    reports = stages.read_chains(job, counts, offset_ranges, expected_bytes)
    found = stages.check_chains(
        ChainChecker(
            breaks,
            frozenset(table.number for table in job.tables.compared if _has_tombstones(job, table)),
            frozenset(
                table.number for table in job.tables.compared if table.extra_rows_reason or table.topic in compacted
            ),
        )
    )
    for (number, kind), count in found.counts.items():
        _account(job, number, named, of_topics).faults[kind] += count
    shown: dict[str, int] = {}
    for number, kind, text in found.shown:
        account = _account(job, number, named, of_topics)
        shown[account.name] = shown.get(account.name, 0) + 1
        if shown[account.name] <= _SHOWN:
            account.reasons.append(f"{kind}: {text}")
    for topic, account in of_topics.items():
        _add_reports(account, [report for report in reports if report.topic == topic])
        if topic in compacted or topic in trimmed:
            why = "it is compacted" if topic in compacted else "retention removed its first records"
            account.notes.append(
                f"the chains of keys in topic {topic!r} begin later or have gaps, because {why}. Only the existing "
                "records were compared with each other"
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
        faults = [fault for fault in report.shown if fault[0] != "misplaced" or misplaced]
        for kind, text, partition, offset in faults[:3]:
            account.reasons.append(f"{kind}: partition {partition}, offset {offset}: {text}")


def has_grown(reports: Sequence[ChainReport]) -> bool:
    """Whether the topic got more partitions after the last record that is in another partition than its key's hash."""
    last = max(report.last_outside for report in reports)
    fits = (
        all(report.first_outside.get(count, last + 1) > last for report in reports) for count in range(1, len(reports))
    )
    return any(fits)


def _has_tombstones(job: VerifyJob, table: ComparedTable) -> bool:
    """Whether each deleted row has a delete record and then a tombstone, and the topic has only this table."""
    format = of_table(job.format(), table.schema.database, table.schema.table)
    messages = format.messages(table.schema)[ChangeKind.DELETE]
    is_alone = sum(other.topic == table.topic for other in job.tables.compared) == 1
    return is_alone and not table.without_key and {message.op for message in messages} >= {None, "d"}


def _breaks(job: VerifyJob) -> dict[int, tuple[int, ...]]:
    """By table, the moments at which rows may have changed without a record: DDL statements and targets of seeks."""
    base = BinlogCoordinates.parse(job.start).base
    seek_targets = [BinlogCoordinates.parse(seek.to) for seek in last_stable_state(job.connections).seeks.values()]
    moments = {moment_of(to) for to in seek_targets if to.base == base}
    return {number: tuple(sorted({*its, *moments})) for number, its in ddl_moments(job).items()}
