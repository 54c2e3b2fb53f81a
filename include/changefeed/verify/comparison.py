"""Executes a comparison: reads the server, waits for the topics, reads them, compares, and repeats this if needed."""

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
from changefeed.verify.chains import ChainStages, add_chain_faults
from changefeed.verify.ddl_moments import ddl_moments
from changefeed.verify.entries import ENTRY_BYTES
from changefeed.verify.follower_definitions import compare_follower_definitions
from changefeed.verify.job import CHUNK_ROWS, OffsetRange, TableChunk, VerifyJob
from changefeed.verify.key_comparison import (
    DIFFERENCES,
    MOST_DIFFERENCES,
    KeyComparator,
    KeyResult,
    KeyResults,
    ReadInterval,
    ResultKind,
)
from changefeed.verify.positions import WaitUntilPublished
from changefeed.verify.report import TableAccount, VerifyReport
from changefeed.verify.row_checksums import CELL_BYTES
from changefeed.verify.server_rows import ChunkReport
from changefeed.verify.topic_rows import KeylessRecords, PartitionReport

ROUNDS = 3


class Stages(ChainStages, Protocol):
    """The parallel steps of a comparison. They store the entries until `read_server` is called again."""

    def read_server(self, job: VerifyJob, chunks: Sequence[TableChunk], expected_bytes: int) -> list[ChunkReport]:
        """Read the chunks and return their reports. Each task has its own connections.

        ``expected_bytes`` is the approximate size of the entries of both sides.
        """
        ...

    def read_topics(self, job: VerifyJob, offset_ranges: Sequence[OffsetRange]) -> list[PartitionReport]:
        """Read the partitions and return their reports."""
        ...

    def compare_keys(self, comparator: KeyComparator) -> KeyResults:
        """Group the entries by key, compare each key, and return the results."""
        ...


def compare(
    job: VerifyJob,
    chunks: Sequence[TableChunk],
    stages: Stages,
    wait_until_published: WaitUntilPublished,
    *,
    rounds: int = ROUNDS,
) -> VerifyReport:
    """Compare all rows of ``chunks`` with the topics, and return the report. ``chunks`` are of all of the job's tables.

    A transaction can be in the source's binlog before SELECTs see it. So keys that differ are read again on both sides,
    in at most ``rounds`` rounds, unless more than MOST_DIFFERENCES keys differ. The report has the keys that differ in
    the last round.

    Raises the errors of the stages and of ``wait_until_published``.
    """
    began = time.monotonic()
    first = _read_and_compare(job, chunks, stages, wait_until_published)
    _check_all_compared(job, first)
    kinds, left, done = Counter(first.results.kinds), first.results, 1
    problems = dict(first.problems)
    high = first.high
    while left.results and left.differing <= MOST_DIFFERENCES and done < rounds:
        keys = frozenset((result.table, result.key) for result in left.results)
        again = _read_and_compare(job.for_keys(keys), _chunks_of(left.results, chunks), stages, wait_until_published)
        for result in left.results:
            kinds[result.table, result.kind] -= result.differing
            kinds[result.table, ResultKind.EQUAL] -= result.equal_rows
        kinds.update(again.results.kinds)
        problems |= again.problems
        high = max(high, again.high)
        left, done = again.results, done + 1
    moments = ddl_moments(job) if left.differing or first.keyless_records else {}
    problems |= _altered_tables(job, kinds, moments, first.low, high)
    accounts = _with_definitions(job, _build_accounts(job, first, kinds, problems, moments))
    if job.deep:
        add_chain_faults(job, accounts, stages, _offset_ranges(job)[0], 2 * _expected_bytes(job, ()))
    return VerifyReport(
        job.connections.pipeline.name,
        job.follower,
        str(min(report.low for report in first.chunks)) if first.chunks else job.start,
        str(max(report.high for report in first.chunks)) if first.chunks else job.start,
        accounts,
        time.monotonic() - began,
        int(time.time() * 1000),
        done,
        sampled=job.sampled,
        results=tuple(result for result in left.results if result.table not in problems),
    )


_UNPLACED = (
    "it has no key, and a snapshot published rows of it at coordinates that the commit log does not have (any more), "
    "so it is not known which changes they include. Take another snapshot of it"
)


@dataclass(frozen=True)
class _Round:
    chunks: Sequence[ChunkReport]
    partitions: Sequence[PartitionReport]
    removed: frozenset[str]
    """Topics whose first records were removed."""
    results: KeyResults

    @property
    def low(self) -> int:
        """The moment before the first row was read; 0 without rows."""
        return min((moment_of(report.low) for report in self.chunks), default=0)

    @property
    def high(self) -> int:
        """The moment after the last row was read; 0 without rows."""
        return max((moment_of(report.high) for report in self.chunks), default=0)

    @property
    def keyless_records(self) -> dict[int, list[tuple[PartitionReport, KeylessRecords]]]:
        """By number of a table that has a key now, its records without a key."""
        found: dict[int, list[tuple[PartitionReport, KeylessRecords]]] = {}
        for report in self.partitions:
            for each in report.keyless_records:
                found.setdefault(each[0], []).append((report, each))
        return found

    @property
    def problems(self) -> dict[int, str]:
        """By number of a table that could not be read completely on the server or in its topic, the reason."""
        unplaced = {table: _UNPLACED for report in self.partitions for table in report.unplaced}
        return unplaced | {report.table: report.problem for report in self.chunks if report.problem}


def _read_and_compare(
    job: VerifyJob, chunks: Sequence[TableChunk], stages: Stages, wait_until_published: WaitUntilPublished
) -> _Round:
    expected_bytes = 0 if job.is_exact else _expected_bytes(job, chunks)
    reports = stages.read_server(job, chunks, expected_bytes)
    if reports:
        wait_until_published(max(report.high for report in reports))
    offset_ranges, removed = _offset_ranges(job)
    partitions = stages.read_topics(job, offset_ranges)
    chunk_intervals = {report.number: ReadInterval(moment_of(report.low), moment_of(report.high)) for report in reports}
    table_intervals: dict[int, ReadInterval] = {}
    for report in reports:
        interval = chunk_intervals[report.number]
        table_intervals[report.table] = table_intervals.get(report.table, interval).around(interval)
    truncates: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for partition in partitions:
        for table, offset, moment in partition.truncates:
            truncates.setdefault((table, partition.partition), []).append((offset, moment))
    without_key = frozenset(table.number for table in job.tables.compared if table.without_key)
    unique_tables = frozenset(table.number for table in job.tables.compared if not table.needs_view)
    results = stages.compare_keys(
        KeyComparator(chunk_intervals, table_intervals, without_key, truncates, job.sampled, unique_tables)
    )
    return _Round(reports, partitions, removed, results)


def _check_all_compared(job: VerifyJob, first: _Round) -> None:
    """Raises AccountingError if the number of compared rows is not the number of rows that were read."""
    read: Counter[int] = Counter()
    for report in first.chunks:
        read[report.table] += report.rows
    for table in job.tables.compared:
        rows, compared = read[table.number], first.results.rows[table.number]
        if rows != compared and table.number not in first.problems:
            raise AccountingError(
                f"expected {rows:,} compared rows of {table.name}, as many as were read, found {compared:,}: Spark "
                "lost rows, or chunks overlap. The result would be incomplete. Verify again."
            )


def _altered_tables(
    job: VerifyJob, kinds: Counter[tuple[int, str]], moments: Mapping[int, Sequence[int]], low: int, high: int
) -> dict[int, str]:
    """The reason not to compare a table, by number, if it differs and DDL changed it between ``low`` and ``high``."""
    return {
        table.number: _ALTERED
        for table in job.tables.compared
        if any(kinds[table.number, kind] for kind in DIFFERENCES)
        and any(low <= moment < high for moment in moments.get(table.number, ()))
    }


_ALTERED = (
    "DDL changed or renamed it while it was compared, so its rows may differ from those that the topics had. Verify "
    "again"
)


def _offset_ranges(job: VerifyJob) -> tuple[list[OffsetRange], frozenset[str]]:
    """The partitions of all topics up to their current end, and the topics whose first records were removed."""
    kafka = job.connections.kafka
    counts = partition_counts(kafka, job.tables.topics)
    partitions = [(topic, number) for topic, count in counts.items() for number in range(count)]
    if not partitions:
        return [], frozenset()
    with partition_reader(kafka, partitions, "to verify topics") as reader:
        first, ends = reader.first_offsets(), reader.last_stable_offsets()
    removed = frozenset(topic for (topic, _), offset in first.items() if offset > 0)
    return [OffsetRange(*partition, first[partition], ends[partition]) for partition in partitions], removed


def _expected_bytes(job: VerifyJob, chunks: Sequence[TableChunk]) -> int:
    """The approximate size of the entries of all rows and records."""
    sizes = {table.number: ENTRY_BYTES + CELL_BYTES * len(table.schema.columns) for table in job.tables.compared}
    largest: dict[str, int] = {}
    for table in job.tables.compared:
        largest[table.topic] = max(sizes[table.number], largest.get(table.topic, 0))
    records = sum(largest[each.topic] * (each.end - each.first) for each in _offset_ranges(job)[0])
    return records + sum(CHUNK_ROWS * sizes[chunk.table] for chunk in chunks)


def _chunks_of(results: Iterable[KeyResult], chunks: Sequence[TableChunk]) -> list[TableChunk]:
    """The chunks to read again: the chunks of the keys, or all chunks of a table if one of its keys is in no chunk."""
    numbers = {result.chunk for result in results}
    complete = {result.table for result in results if result.chunk < 0}
    return [chunk for chunk in chunks if chunk.number in numbers or chunk.table in complete]


def _build_accounts(
    job: VerifyJob,
    first: _Round,
    kinds: Counter[tuple[int, str]],
    problems: Mapping[int, str],
    moments: Mapping[int, Sequence[int]],
) -> tuple[TableAccount, ...]:
    accounts = []
    counted_topics: set[str] = set()
    for table in job.tables.compared:
        account = TableAccount(table.name, table.topic)
        if table.number in problems:
            accounts.append(TableAccount(table.name, table.topic, reasons=[problems[table.number]]))
            continue
        account.rows = sum(report.rows for report in first.chunks if report.table == table.number)
        account.kinds.update({kind: count for (number, kind), count in kinds.items() if number == table.number})
        if table.extra_rows_reason and (gone := account.kinds.pop(ResultKind.EXTRA, 0)):
            account.left_out += gone
            account.reasons.append(f"rows that only the topic has are not compared: {table.extra_rows_reason}")
        if table.topic in first.removed:
            unknown = DIFFERENCES if table.without_key else (ResultKind.UNPUBLISHED,)
            account.left_out += sum(account.kinds.pop(kind, 0) for kind in unknown)
            account.reasons.append(
                f"the first records of topic {table.topic!r} were removed (retention), so their rows are not known. "
                "Let the topic keep its records, or compact it instead, and publish its rows by a snapshot"
            )
        if table.virtual:
            names = ", ".join(sorted(table.virtual))
            account.notes.append(f"not compared: {names}, virtual columns, which the server computes in each session")
        _add_keyless_records(account, first.keyless_records.get(table.number, ()), moments.get(table.number, ()), job)
        if table.topic not in counted_topics:  # the first account of a shared topic has its records
            counted_topics.add(table.topic)
            _add_records(account, [report for report in first.partitions if report.topic == table.topic])
        if account.kinds[ResultKind.UNPUBLISHED]:
            account.reasons.append(
                "rows without any record: existing rows that did not change since the pipeline began are published "
                "only by a snapshot"
            )
        if account.kinds[ResultKind.EXTRA] and not table.without_key:
            account.reasons.append(
                "rows that only the topic has: they were deleted while the binlog was not read (a purged gap, a seek), "
                "or by TRUNCATE or DROP. `changefeed verify --gone FILE` writes SQL that removes them from the topic, "
                f"{MOST_DIFFERENCES:,} at a time"
            )
        accounts.append(account)
    accounts += [TableAccount(name, reasons=[reason]) for name, reason in job.tables.refused.items()]
    return tuple(accounts)


def _add_keyless_records(
    account: TableAccount,
    keyless_records: Sequence[tuple[PartitionReport, KeylessRecords]],
    moments: Sequence[int],
    job: VerifyJob,
) -> None:
    """Add the records without a key to ``account``.

    They are foreign if the pipeline publishes DDL and no DDL came after them. Otherwise they are older than the key.
    """
    count = sum(each[1] for _, each in keyless_records)
    if not count:
        return
    publishes = job.connections.pipeline.publish_ddl != "off"
    if publishes and not any(moment > max(each[2] for _, each in keyless_records) for moment in moments):
        account.faults["foreign"] += count
        for report, each in keyless_records:
            where = f"partition {report.partition}, offset {each[3]}"
            account.reasons.append(f"foreign: {where}: a record of {account.name} without a key")
        return
    text = f"{count:,} records have no key, because {account.name} had none when they were published"
    if rows := account.kinds.pop(ResultKind.UNPUBLISHED, 0):
        account.left_out += rows
        account.reasons.append(f"{text}. Rows without any other record are not compared. Publish them by a snapshot")
    else:
        account.notes.append(text)


def _with_definitions(job: VerifyJob, accounts: tuple[TableAccount, ...]) -> tuple[TableAccount, ...]:
    """``accounts`` with the differences in table definitions, if a follower is compared.

    Tables that only one of the servers has get an account of their own.
    """
    named = {account.name: account for account in accounts}
    for (database, table), found in compare_follower_definitions(job).items() if job.names else ():
        account = named.get(f"{database}.{table}")
        if account is None:
            if not found.comparison.differences and not found.reason:
                continue
            account = named[f"{database}.{table}"] = TableAccount(f"{database}.{table}")
        account.definition += found.comparison.differences
        account.notes += found.comparison.notes
        if found.reason:
            account.reasons.append(found.reason)
    return tuple(named.values())


def _add_records(account: TableAccount, reports: Sequence[PartitionReport]) -> None:
    for report in reports:
        account.records += report.records
        faults = {fault: count for fault, count in report.counts.items() if fault != "statements"}
        account.faults.update(faults)
    if statements := sum(report.counts.get("statements", 0) for report in reports):
        account.reasons.append(f"{statements:,} records are of changes in statement format, whose rows are not known")
    for report in reports:
        for kind, text, partition, offset in report.shown[:3]:
            account.reasons.append(f"{kind}: partition {partition}, offset {offset}: {text}")
