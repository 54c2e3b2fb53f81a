"""The stages of a comparison on Spark: tasks read chunks and partitions, and compare the entries of each bucket."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

import orjson
import pyarrow as pa
from pyspark.sql import DataFrame

from changefeed.errors import ChangefeedError
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.spark.progress import show_progress
from changefeed.spark.stages.messages import Failure
from changefeed.spark.target import SparkTarget, rows_of_tasks
from changefeed.verify.chain_records import ChainRecords, ChainReport
from changefeed.verify.entries import Entries
from changefeed.verify.job import OffsetRange, TableChunk, VerifyJob
from changefeed.verify.key_chains import ChainChecker, ChainFaults
from changefeed.verify.key_comparison import KeyComparator, KeyResult, KeyResults, ResultKind, compare_keys
from changefeed.verify.server_rows import ChunkReport, ServerRows
from changefeed.verify.topic_rows import PartitionReport, TopicRows

READ_SCHEMA = "kind string, text string, bucket int, entries binary"
"""The schema of the rows that reading tasks return. The kinds of rows are:

- "entries": some entries of a bucket.
- "report": the report of a chunk or partition, as JSON.
- "error": the error of a task, as JSON.
"""
RESULT_SCHEMA = "kind string, text string"

_READ = pa.schema([("kind", pa.string()), ("text", pa.string()), ("bucket", pa.int32()), ("entries", pa.binary())])
_RESULTS = pa.schema([("kind", pa.string()), ("text", pa.string())])
_TOGETHER_BYTES = 10 << 20
"""The minimum size of entries before they are divided among the buckets."""
_BUCKET_BYTES = 50 << 20
"""The approximate size of a bucket. A task holds all entries of a bucket at once."""

ChunkOrRange = TypeVar("ChunkOrRange", TableChunk, OffsetRange)


class SparkStages:
    """`verify.comparison.Stages` on Spark. Entries are stored as local checkpoints until `close`."""

    def __init__(self, spark: SparkTarget) -> None:
        self._spark, self._tasks = spark, spark.cores()
        self._buckets = self._tasks
        self._read: list[DataFrame] = []

    def close(self) -> None:
        """Free the local checkpoints."""
        while self._read:
            self._spark.forget_checkpoint(self._read.pop())

    def read_server(self, job: VerifyJob, chunks: Sequence[TableChunk], expected_bytes: int) -> list[ChunkReport]:
        """See `Stages`."""
        self._begin(expected_bytes)
        read = partial(read_chunks, job)
        return [
            _chunk_report(values) for values in self._read_all("read the source", _shares(chunks, self._tasks), read)
        ]

    def read_topics(self, job: VerifyJob, offset_ranges: Sequence[OffsetRange]) -> list[PartitionReport]:
        """See `Stages`. Each task reads its partitions one after another."""
        read = partial(read_offset_ranges, job)
        return [
            _partition_report(values)
            for values in self._read_all("read topics", self._largest_first(offset_ranges), read)
        ]

    def read_chains(
        self, job: VerifyJob, counts: Mapping[str, int], offset_ranges: Sequence[OffsetRange], expected_bytes: int
    ) -> list[ChainReport]:
        """See `Stages`. Each task reads its partitions one after another."""
        self._begin(expected_bytes)
        read = partial(read_chain_records, job, counts)
        return [
            _chain_report(values) for values in self._read_all("read topics", self._largest_first(offset_ranges), read)
        ]

    def _begin(self, expected_bytes: int) -> None:
        self.close()
        self._buckets = max(self._tasks, expected_bytes // _BUCKET_BYTES)

    def _largest_first(self, offset_ranges: Sequence[OffsetRange]) -> list[list[OffsetRange]]:
        """The ranges of each task, the largest first."""
        ordered = sorted(offset_ranges, key=lambda each: each.first - each.end)
        return _shares(ordered, 4 * self._tasks)

    def _read_all(
        self,
        what: str,
        shares: Sequence[Sequence[ChunkOrRange]],
        read: Callable[[Iterable[ChunkOrRange]], Iterator[Any]],
    ) -> Iterator[dict[str, Any]]:
        """Yield the reports of the tasks that read ``shares``, and store the entries. Raises a task's first error."""
        if not shares:
            return
        rows = rows_of_tasks(self._spark.session, shares, partial(_read_share, read, self._buckets), READ_SCHEMA)
        entries = rows.localCheckpoint(eager=False)
        self._read.append(entries)
        with show_progress(self._spark, what, len(shares), logs=False):
            reports = entries.where("kind <> 'entries'").select("kind", "text").collect()
        for row in reports:
            if row.kind == "error":
                raise Failure.from_json(orjson.loads(row.text)).error
            yield orjson.loads(row.text)

    def compare_keys(self, comparator: KeyComparator) -> KeyResults:
        """See `Stages`. Each task holds one bucket at a time."""
        found = KeyResults()
        for values in self._over_buckets(partial(compare_buckets, comparator)):
            found.add(_results_of(values))
        return found

    def check_chains(self, checker: ChainChecker) -> ChainFaults:
        """See `ChainStages`."""
        found = ChainFaults()
        for values in self._over_buckets(partial(check_chain_buckets, checker)):
            found.add(_chain_faults_of(values))
        return found

    def _over_buckets(
        self, of_task: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    ) -> Iterator[dict[str, Any]]:
        """Yield the values that ``of_task`` returns. In each task, ``of_task`` gets the task's buckets one by one."""
        if not self._read:
            return
        entries = self._read[0]
        for more in self._read[1:]:
            entries = entries.union(more)
        shuffled = entries.where("kind = 'entries'").select("bucket", "entries").repartition(self._buckets, "bucket")
        ordered = shuffled.sortWithinPartitions("bucket")
        with show_progress(self._spark, "compare", self._buckets, logs=False):
            results = ordered.mapInArrow(of_task, RESULT_SCHEMA).collect()
        for row in results:
            yield orjson.loads(row.text)


def read_chunks(job: VerifyJob, chunks: Iterable[TableChunk]) -> Iterator[Entries | ChunkReport]:
    """Read chunks in a task. Raises SettingsError if the worker's version is not the driver's."""
    job.check_version()
    with ServerRows(job) as server:
        for chunk in chunks:
            yield from server.read(chunk)


def read_offset_ranges(job: VerifyJob, offset_ranges: Iterable[OffsetRange]) -> Iterator[Entries | PartitionReport]:
    """Read partitions in a task. Raises SettingsError if the worker's version is not the driver's."""
    job.check_version()
    topics = TopicRows(job)
    for offset_range in offset_ranges:
        yield from topics.read(offset_range)


def read_chain_records(
    job: VerifyJob, counts: Mapping[str, int], offset_ranges: Iterable[OffsetRange]
) -> Iterator[Entries | ChainReport]:
    """Read partitions in a task of a deep comparison.

    Raises SettingsError if the worker's version is not the driver's.
    """
    job.check_version()
    records = ChainRecords(job, counts)
    for offset_range in offset_ranges:
        yield from records.read(offset_range)


def compare_buckets(comparator: KeyComparator, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Compare the keys of buckets in a task. Raises SettingsError if the worker's version is not the driver's."""
    comparator.check_version()
    for bucket in _by_bucket(batches):
        yield _results_batch(compare_keys(comparator, bucket))


def check_chain_buckets(checker: ChainChecker, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Check the chains of buckets in a task. Raises SettingsError if the worker's version is not the driver's."""
    checker.check_version()
    for bucket in _by_bucket(batches):
        yield _chain_faults_batch(checker.check_chains(bucket))


def _read_share(
    read: Callable[[Iterable[ChunkOrRange]], Iterator[Any]], buckets: int, share: Sequence[ChunkOrRange]
) -> Iterator[pa.RecordBatch]:
    return _batches(read(share), buckets)


def _shares(parts: Sequence[ChunkOrRange], most: int) -> list[list[ChunkOrRange]]:
    """``parts`` divided among at most ``most`` tasks."""
    count = min(most, len(parts))
    return [list(parts[number::count]) for number in range(count)]


def _batches(items: Iterable[Any], buckets: int) -> Iterator[pa.RecordBatch]:
    """Yield rows of READ_SCHEMA: the entries by bucket, the reports, and the error if ``items`` raises one."""
    held: list[Entries] = []
    try:
        for item in items:
            if isinstance(item, Entries):
                held.append(item)
                if sum(entries.size_bytes for entries in held) >= _TOGETHER_BYTES:
                    yield from _bucket_batches(held, buckets)
                    held = []
            else:
                yield _batch("report", orjson.dumps(asdict(item), option=orjson.OPT_NON_STR_KEYS).decode())
    except ChangefeedError as error:
        yield _batch("error", orjson.dumps(Failure.of(error)).decode())
    yield from _bucket_batches(held, buckets)


def _bucket_batches(held: Sequence[Entries], buckets: int) -> Iterator[pa.RecordBatch]:
    if held:
        for bucket, entries in Entries.concat(held).buckets(buckets):
            yield _batch("entries", None, bucket, entries.to_bytes())


def _batch(kind: str, text: str | None, bucket: int | None = None, entries: bytes | None = None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"kind": kind, "text": text, "bucket": bucket, "entries": entries}], _READ)


def _by_bucket(batches: Iterable[pa.RecordBatch]) -> Iterator[Entries]:
    """Yield the entries of each bucket. ``batches`` must be sorted by bucket."""
    rows = (
        (number, each)
        for batch in batches
        for number, each in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )
    for _, of_bucket in groupby(rows, lambda row: row[0]):
        yield Entries.concat([Entries.from_bytes(bytearray(each)) for _, each in of_bucket])


def _results_batch(found: KeyResults) -> pa.RecordBatch:
    text = orjson.dumps(
        {
            "kinds": [[table, kind, count] for (table, kind), count in found.kinds.items()],
            "results": [{**asdict(result), "key": result.key.hex()} for result in found.results],
            "rows": list(found.rows.items()),
            "differing": found.differing,
        }
    )
    return _text_batch(text)


def _chain_faults_batch(found: ChainFaults) -> pa.RecordBatch:
    counts = [[table, kind, count] for (table, kind), count in found.counts.items()]
    return _text_batch(orjson.dumps({"counts": counts, "shown": found.shown}))


def _chain_faults_of(values: dict[str, Any]) -> ChainFaults:
    counts = Counter({(table, kind): count for table, kind, count in values["counts"]})
    return ChainFaults(counts, [(table, kind, text) for table, kind, text in values["shown"]])


def _text_batch(text: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(["results"]), pa.array([text.decode()])], schema=_RESULTS)


def _results_of(values: dict[str, Any]) -> KeyResults:
    results = [
        KeyResult(**{**result, "key": bytes.fromhex(result["key"]), "kind": ResultKind(result["kind"])})
        for result in values["results"]
    ]
    kinds = Counter({(table, kind): count for table, kind, count in values["kinds"]})
    return KeyResults(kinds, results, Counter(dict(values["rows"])), values["differing"])


def _chunk_report(values: dict[str, Any]) -> ChunkReport:
    low, high = (BinlogCoordinates(**values.pop(name)) for name in ("low", "high"))
    return ChunkReport(**values, low=low, high=high)


def _partition_report(values: dict[str, Any]) -> PartitionReport:
    return PartitionReport(
        values["topic"],
        values["partition"],
        values["records"],
        values["counts"],
        [tuple(fault) for fault in values["shown"]],
        [tuple(truncates) for truncates in values["truncates"]],
        values["unplaced"],
        [tuple(keyless_records) for keyless_records in values["keyless_records"]],
    )


def _chain_report(values: dict[str, Any]) -> ChainReport:
    shown = [tuple(fault) for fault in values.pop("shown")]
    first = {int(count): moment for count, moment in values.pop("first_outside").items()}
    return ChainReport(**values, shown=shown, first_outside=first)
