"""A comparison, from plan to report: read the server, wait for the topics, read those, judge; and look again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from changefeed.errors import AccountingError
from changefeed.kafka.partition_reader import partition_reader
from changefeed.kafka.topics import partition_counts
from changefeed.records.event_id import moment_of
from changefeed.verify.chains import ChainStages, add_chains
from changefeed.verify.definition_moments import definition_moments
from changefeed.verify.entries import ENTRY_BYTES
from changefeed.verify.follower_definitions import compared_definitions
from changefeed.verify.job import CHUNK_ROWS, PartitionPiece, TableChunk, VerifyJob
from changefeed.verify.key_comparison import DIFFERENCES, MOST_DIFFERENCES, Bracket, Judge, Judged, Kind, Verdict
from changefeed.verify.positions import Published
from changefeed.verify.report import TableAccount, VerifyReport
from changefeed.verify.row_checksums import CELL_BYTES
from changefeed.verify.server_rows import ChunkReport
from changefeed.verify.topic_rows import PartitionReport, Unkeyed

ROUNDS = 3


class Stages(ChainStages, Protocol):
    """The work that is done in parallel. What is read is kept until the next reading."""

    def read_server(self, job: VerifyJob, chunks: Sequence[TableChunk], expected_bytes: int) -> list[ChunkReport]:
        """Read the chunks, each over a connection of its task. The entries of both sides have ``expected_bytes``."""
        ...

    def read_topics(self, job: VerifyJob, pieces: Sequence[PartitionPiece]) -> list[PartitionReport]:
        """Read the partitions."""
        ...

    def judged(self, judge: Judge) -> Judged:
        """Bring together, by key, what was read, and judge it."""
        ...


def compare(
    job: VerifyJob,
    chunks: Sequence[TableChunk],
    stages: Stages,
    published: Published,
    *,
    rounds: int = ROUNDS,
) -> VerifyReport:
    """Compare all rows of ``chunks``, which are all of the job's tables.

    Keys that differ are read again, on both sides, up to ``rounds`` times: a transaction that is slow to commit on the
    source can stand in its binlog before SELECTs see it. Whoever differs each time differs.

    Raises whatever the stages and ``published`` raise.
    """
    began = time.monotonic()
    first = _round(job, chunks, stages, published)
    _check_all_judged(job, first)
    kinds, left, done = Counter(first.judged.kinds), first.judged, 1
    altered = dict(first.altered)
    high = first.high
    while left.verdicts and left.differing <= MOST_DIFFERENCES and done < rounds:
        keys = frozenset((verdict.table, verdict.key) for verdict in left.verdicts)
        again = _round(job.of_keys(keys), _chunks_of(left.verdicts, chunks), stages, published)
        for verdict in left.verdicts:
            kinds[verdict.table, verdict.kind] -= verdict.differing
            kinds[verdict.table, Kind.EQUAL] -= verdict.equal_rows
        kinds.update(again.judged.kinds)
        altered |= again.altered
        high = max(high, again.high)
        left, done = again.judged, done + 1
    moments = definition_moments(job) if left.differing or first.unkeyed else {}
    altered |= _redefined(job, kinds, moments, first.low, high)
    accounts = _with_definitions(job, _accounts(job, first, kinds, altered, moments))
    if job.deep:
        add_chains(job, accounts, stages, _pieces(job)[0], 2 * _expected_bytes(job, ()))
    return VerifyReport(
        job.connections.pipeline.name,
        job.follower,
        str(min(report.low for report in first.chunks)) if first.chunks else job.begun,
        str(max(report.high for report in first.chunks)) if first.chunks else job.begun,
        accounts,
        time.monotonic() - began,
        int(time.time() * 1000),
        done,
        sampled=job.sampled,
        verdicts=tuple(verdict for verdict in left.verdicts if verdict.table not in altered),
    )


_UNPLACED = (
    "it has no key, and a snapshot published rows of it of which the commit log does not say (any more) at which "
    "coordinates they were read, so that nobody knows which changes are in them: take another snapshot of it"
)


@dataclass(frozen=True)
class _Round:
    chunks: Sequence[ChunkReport]
    partitions: Sequence[PartitionReport]
    removed: frozenset[str]
    """Topics whose first records are gone."""
    judged: Judged

    @property
    def low(self) -> int:
        """The moment from which on rows were read; of no rows, none."""
        return min((moment_of(report.low) for report in self.chunks), default=0)

    @property
    def high(self) -> int:
        """The moment up to which they were read."""
        return max((moment_of(report.high) for report in self.chunks), default=0)

    @property
    def unkeyed(self) -> dict[int, list[tuple[PartitionReport, Unkeyed]]]:
        """By table the records without a key, where it has one now."""
        found: dict[int, list[tuple[PartitionReport, Unkeyed]]] = {}
        for report in self.partitions:
            for each in report.unkeyed:
                found.setdefault(each[0], []).append((report, each))
        return found

    @property
    def altered(self) -> dict[int, str]:
        """Of tables that cannot be judged the reason: they could not be read to their end, or their topic cannot."""
        unplaced = {table: _UNPLACED for report in self.partitions for table in report.unplaced}
        return unplaced | {report.table: report.problem for report in self.chunks if report.problem}


def _round(job: VerifyJob, chunks: Sequence[TableChunk], stages: Stages, published: Published) -> _Round:
    expected_bytes = 0 if job.is_exact else _expected_bytes(job, chunks)
    reports = stages.read_server(job, chunks, expected_bytes)
    if reports:
        published(max(report.high for report in reports))
    pieces, removed = _pieces(job)
    partitions = stages.read_topics(job, pieces)
    brackets = {report.number: Bracket(moment_of(report.low), moment_of(report.high)) for report in reports}
    of_tables: dict[int, Bracket] = {}
    for report in reports:
        bracket = brackets[report.number]
        of_tables[report.table] = of_tables.get(report.table, bracket).around(bracket)
    truncates: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for partition in partitions:
        for table, offset, moment in partition.emptied:
            truncates.setdefault((table, partition.partition), []).append((offset, moment))
    without_key = frozenset(table.number for table in job.tables.judged if table.without_key)
    once = frozenset(table.number for table in job.tables.judged if not table.needs_view)
    judged = stages.judged(Judge(brackets, of_tables, without_key, truncates, job.sampled, once))
    return _Round(reports, partitions, removed, judged)


def _check_all_judged(job: VerifyJob, first: _Round) -> None:
    """Raises AccountingError where rows that were read were not judged: of them nothing may be said."""
    read: Counter[int] = Counter()
    for report in first.chunks:
        read[report.table] += report.rows
    for table in job.tables.judged:
        rows, judged = read[table.number], first.judged.rows[table.number]
        if rows != judged and table.number not in first.altered:
            raise AccountingError(
                f"{rows:,} rows of {table.name} were read and {judged:,} judged: "
                "Spark lost some on their way, or chunks overlap. Nothing is known of the others; verify again."
            )


def _redefined(
    job: VerifyJob, kinds: Counter[tuple[int, str]], moments: Mapping[int, Sequence[int]], low: int, high: int
) -> dict[int, str]:
    """Of tables that differ, and that a definition changed between ``low`` and ``high``, why they are not judged."""
    return {
        table.number: _REDEFINED
        for table in job.tables.judged
        if any(kinds[table.number, kind] for kind in DIFFERENCES)
        and any(low <= moment < high for moment in moments.get(table.number, ()))
    }


_REDEFINED = (
    "a definition changed or renamed it while it was compared, so that its rows are not those that the topics had of "
    "it then: verify again"
)


def _pieces(job: VerifyJob) -> tuple[list[PartitionPiece], frozenset[str]]:
    """The partitions of all topics up to where they end now, and the topics whose first records were removed."""
    kafka = job.connections.kafka
    counts = partition_counts(kafka, job.tables.topics)
    partitions = [(topic, number) for topic, count in counts.items() for number in range(count)]
    if not partitions:
        return [], frozenset()
    with partition_reader(kafka, partitions, "to verify topics") as reader:
        first, ends = reader.first_offsets(), reader.last_stable_offsets()
    removed = frozenset(topic for (topic, _), offset in first.items() if offset > 0)
    return [PartitionPiece(*partition, first[partition], ends[partition]) for partition in partitions], removed


def _expected_bytes(job: VerifyJob, chunks: Sequence[TableChunk]) -> int:
    """About how much the entries of all rows and records will be."""
    sizes = {table.number: ENTRY_BYTES + CELL_BYTES * len(table.schema.columns) for table in job.tables.judged}
    largest: dict[str, int] = {}
    for table in job.tables.judged:
        largest[table.topic] = max(sizes[table.number], largest.get(table.topic, 0))
    records = sum(largest[piece.topic] * (piece.end - piece.first) for piece in _pieces(job)[0])
    return records + sum(CHUNK_ROWS * sizes[chunk.table] for chunk in chunks)


def _chunks_of(verdicts: Iterable[Verdict], chunks: Sequence[TableChunk]) -> list[TableChunk]:
    """The chunks to be read again: those of the keys, and all of a table where a key is in none of them."""
    numbers = {verdict.chunk for verdict in verdicts}
    whole = {verdict.table for verdict in verdicts if verdict.chunk < 0}
    return [chunk for chunk in chunks if chunk.number in numbers or chunk.table in whole]


def _accounts(
    job: VerifyJob,
    first: _Round,
    kinds: Counter[tuple[int, str]],
    altered: Mapping[int, str],
    moments: Mapping[int, Sequence[int]],
) -> tuple[TableAccount, ...]:
    accounts = []
    told: set[str] = set()
    for table in job.tables.judged:
        account = TableAccount(table.name, table.topic)
        if table.number in altered:
            accounts.append(TableAccount(table.name, table.topic, reasons=[altered[table.number]]))
            continue
        account.rows = sum(report.rows for report in first.chunks if report.table == table.number)
        account.kinds.update({kind: count for (number, kind), count in kinds.items() if number == table.number})
        if table.keeps_gone and (gone := account.kinds.pop(Kind.EXTRA, 0)):
            account.left_out += gone
            account.reasons.append(f"what only the topic has says nothing: {table.keeps_gone}")
        if table.topic in first.removed:
            unknown = DIFFERENCES if table.without_key else (Kind.UNPUBLISHED,)
            account.left_out += sum(account.kinds.pop(kind, 0) for kind in unknown)
            account.reasons.append(
                f"the first records of topic {table.topic!r} were removed (retention): what they said of rows is not "
                "known. Let the topic keep its records, or be compacted instead, and publish its rows by a snapshot"
            )
        if table.virtual:
            names = ", ".join(sorted(table.virtual))
            account.notes.append(f"not compared: {names}, virtual columns, which each session of a server works out")
        _add_unkeyed(account, first.unkeyed.get(table.number, ()), moments.get(table.number, ()), job)
        if table.topic not in told:  # of a topic that several tables share, the first one's account has the records
            told.add(table.topic)
            _add_records(account, [report for report in first.partitions if report.topic == table.topic])
        if account.kinds[Kind.UNPUBLISHED]:
            account.reasons.append(
                "rows without any record: those that were there before the pipeline began, and did not change since, "
                "are published by a snapshot only"
            )
        if account.kinds[Kind.EXTRA] and not table.without_key:
            account.reasons.append(
                "rows that only the topic has: they were deleted while the binlog was not read (a purged gap, a seek), "
                "or by TRUNCATE or DROP. `changefeed verify --gone FILE` writes the SQL that removes them from the "
                f"topic, {MOST_DIFFERENCES:,} at a time"
            )
        accounts.append(account)
    accounts += [TableAccount(name, reasons=[reason]) for name, reason in job.tables.refused.items()]
    return tuple(accounts)


def _add_unkeyed(
    account: TableAccount,
    unkeyed: Sequence[tuple[PartitionReport, Unkeyed]],
    moments: Sequence[int],
    job: VerifyJob,
) -> None:
    """Records without a key are of a time when the table had none; else they are no records of it."""
    count = sum(each[1] for _, each in unkeyed)
    if not count:
        return
    publishes = job.connections.pipeline.publish_ddl != "off"
    if publishes and not any(moment > max(each[2] for _, each in unkeyed) for moment in moments):
        account.faults["foreign"] += count
        for report, each in unkeyed:
            where = f"partition {report.partition}, offset {each[3]}"
            account.reasons.append(f"foreign: {where}: a record of {account.name} without a key")
        return
    text = f"{count:,} records have no key: {account.name} had none when they were published"
    if rows := account.kinds.pop(Kind.UNPUBLISHED, 0):
        account.left_out += rows
        account.reasons.append(f"{text}. Rows without any other record are not judged: publish them by a snapshot")
    else:
        account.notes.append(text)


def _with_definitions(job: VerifyJob, accounts: tuple[TableAccount, ...]) -> tuple[TableAccount, ...]:
    """The accounts with what differs in definitions, where a follower is compared, and those of tables that only one of
    both servers has."""
    named = {account.name: account for account in accounts}
    for (database, table), found in compared_definitions(job).items() if job.names else ():
        account = named.get(f"{database}.{table}")
        if account is None:
            if not found.compared.differences and not found.reason:
                continue
            account = named[f"{database}.{table}"] = TableAccount(f"{database}.{table}")
        account.definition += found.compared.differences
        account.notes += found.compared.notes
        if found.reason:
            account.reasons.append(found.reason)
    return tuple(named.values())


def _add_records(account: TableAccount, reports: Sequence[PartitionReport]) -> None:
    for report in reports:
        account.records += report.records
        faults = {fault: count for fault, count in report.counts.items() if fault != "statements"}
        account.faults.update(faults)
    if statements := sum(report.counts.get("statements", 0) for report in reports):
        account.reasons.append(f"{statements:,} records are of changes in statement format, whose rows nobody knows")
    for report in reports:
        for kind, text, partition, offset in report.shown[:3]:
            account.reasons.append(f"{kind}: partition {partition}, offset {offset}: {text}")
