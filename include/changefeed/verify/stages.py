"""The work of a comparison as Spark's: chunks and partitions read by tasks, entries sorted by key, and judged."""

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
from changefeed.spark.stages.messages import Failure
from changefeed.spark.target import SparkTarget, rows_of_tasks
from changefeed.verify.chain_records import ChainRecords, ChainReport
from changefeed.verify.entries import Entries
from changefeed.verify.job import PartitionPiece, TableChunk, VerifyJob
from changefeed.verify.key_chains import ChainJudge, Chains
from changefeed.verify.key_comparison import Judge, Judged, Kind, Verdict, judged
from changefeed.verify.server_rows import ChunkReport, ServerRows
from changefeed.verify.topic_rows import PartitionReport, TopicRows

READ_SCHEMA = "kind string, text string, bucket int, entries binary"
"""A row some entries of a bucket (kind `entries`); of each chunk or partition one with its report, or its error
(`report`, `error`), as JSON."""
JUDGED_SCHEMA = "kind string, text string"

_READ = pa.schema([("kind", pa.string()), ("text", pa.string()), ("bucket", pa.int32()), ("entries", pa.binary())])
_JUDGED = pa.schema([("kind", pa.string()), ("text", pa.string())])
_TOGETHER_BYTES = 10 << 20
"""Of entries that are divided among the buckets at once."""
_BUCKET_BYTES = 50 << 20
"""About so much is judged at once."""

Piece = TypeVar("Piece", TableChunk, PartitionPiece)


class SparkStages:
    """`verify.comparison.Stages` on Spark. What is read is kept as local checkpoints; call `close`."""

    def __init__(self, spark: SparkTarget) -> None:
        self._spark, self._tasks = spark, spark.cores()
        self._buckets = self._tasks
        self._read: list[DataFrame] = []

    def close(self) -> None:
        """Let Spark forget what it keeps."""
        while self._read:
            self._spark.forget_checkpoint(self._read.pop())

    def read_server(self, job: VerifyJob, chunks: Sequence[TableChunk], expected_bytes: int) -> list[ChunkReport]:
        """Each task reads its chunks over connections of its own."""
        self._begin(expected_bytes)
        read = partial(read_chunks, job)
        return [_chunk_report(values) for values in self._over(_shares(chunks, self._tasks), read)]

    def read_topics(self, job: VerifyJob, pieces: Sequence[PartitionPiece]) -> list[PartitionReport]:
        """Each task reads its partitions."""
        read = partial(read_pieces, job)
        return [_partition_report(values) for values in self._over(self._of_pieces(pieces), read)]

    def read_chains(
        self, job: VerifyJob, counts: Mapping[str, int], pieces: Sequence[PartitionPiece], expected_bytes: int
    ) -> list[ChainReport]:
        """Each task reads its partitions."""
        self._begin(expected_bytes)
        read = partial(read_chain_records, job, counts)
        return [_chain_report(values) for values in self._over(self._of_pieces(pieces), read)]

    def _begin(self, expected_bytes: int) -> None:
        self.close()
        self._buckets = max(self._tasks, expected_bytes // _BUCKET_BYTES)

    def _of_pieces(self, pieces: Sequence[PartitionPiece]) -> list[list[PartitionPiece]]:
        """The largest first."""
        return _shares(sorted(pieces, key=lambda piece: piece.first - piece.end), 4 * self._tasks)

    def _over(
        self, shares: Sequence[Sequence[Piece]], read: Callable[[Iterable[Piece]], Iterator[Any]]
    ) -> Iterator[dict[str, Any]]:
        """The reports of what each share's task reads; the entries are kept."""
        if not shares:
            return
        rows = rows_of_tasks(self._spark.session, shares, partial(_read_share, read, self._buckets), READ_SCHEMA)
        entries = rows.localCheckpoint(eager=False)
        self._read.append(entries)
        for row in entries.where("kind <> 'entries'").select("kind", "text").collect():
            if row.kind == "error":
                raise Failure.from_json(orjson.loads(row.text)).error
            yield orjson.loads(row.text)

    def judged(self, judge: Judge) -> Judged:
        """Each task judges its buckets, of which it holds one at a time."""
        found = Judged()
        for values in self._of_buckets(partial(judge_buckets, judge)):
            found.add(_judged_of(values))
        return found

    def chains(self, judge: ChainJudge) -> Chains:
        """Likewise."""
        found = Chains()
        for values in self._of_buckets(partial(judge_chains, judge)):
            found.add(_chains_of(values))
        return found

    def _of_buckets(
        self, of_task: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    ) -> Iterator[dict[str, Any]]:
        """What each task makes of its buckets, which come one after the other."""
        if not self._read:
            return
        entries = self._read[0]
        for more in self._read[1:]:
            entries = entries.union(more)
        shuffled = entries.where("kind = 'entries'").select("bucket", "entries").repartition(self._buckets, "bucket")
        ordered = shuffled.sortWithinPartitions("bucket")
        for row in ordered.mapInArrow(of_task, JUDGED_SCHEMA).collect():
            yield orjson.loads(row.text)


def read_chunks(job: VerifyJob, chunks: Iterable[TableChunk]) -> Iterator[Entries | ChunkReport]:
    """What a task reads of the server; raises SettingsError in a worker with another version than the driver."""
    job.check_version()
    with ServerRows(job) as server:
        for chunk in chunks:
            yield from server.read(chunk)


def read_pieces(job: VerifyJob, pieces: Iterable[PartitionPiece]) -> Iterator[Entries | PartitionReport]:
    """What a task reads of the topics; raises SettingsError in a worker with another version than the driver."""
    job.check_version()
    topics = TopicRows(job)
    for piece in pieces:
        yield from topics.read(piece)


def read_chain_records(
    job: VerifyJob, counts: Mapping[str, int], pieces: Iterable[PartitionPiece]
) -> Iterator[Entries | ChainReport]:
    """What a task of a deep comparison reads; raises SettingsError in a worker with another version than the driver."""
    job.check_version()
    records = ChainRecords(job, counts)
    for piece in pieces:
        yield from records.read(piece)


def judge_buckets(judge: Judge, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a task says of the rows of its buckets; raises SettingsError as `read_pieces`."""
    judge.check_version()
    for bucket in _by_bucket(batches):
        yield _judged_batch(judged(judge, bucket))


def judge_chains(judge: ChainJudge, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What a task says of the chains of its buckets; raises SettingsError as `read_pieces`."""
    judge.check_version()
    for bucket in _by_bucket(batches):
        yield _chains_batch(judge.chains(bucket))


def _read_share(
    read: Callable[[Iterable[Piece]], Iterator[Any]], buckets: int, share: Sequence[Piece]
) -> Iterator[pa.RecordBatch]:
    return _batches(read(share), buckets)


def _shares(pieces: Sequence[Piece], most: int) -> list[list[Piece]]:
    """The pieces of each of at most ``most`` tasks."""
    count = min(most, len(pieces))
    return [list(pieces[number::count]) for number in range(count)]


def _batches(items: Iterable[Any], buckets: int) -> Iterator[pa.RecordBatch]:
    """Entries by bucket; reports, and an error of ours that ends them, as a row each."""
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
        for bucket, entries in Entries.joined(held).buckets(buckets):
            yield _batch("entries", None, bucket, entries.to_bytes())


def _batch(kind: str, text: str | None, bucket: int | None = None, entries: bytes | None = None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"kind": kind, "text": text, "bucket": bucket, "entries": entries}], _READ)


def _by_bucket(batches: Iterable[pa.RecordBatch]) -> Iterator[Entries]:
    """All entries of one bucket after the other, which come sorted."""
    rows = (
        (number, each)
        for batch in batches
        for number, each in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )
    for _, of_bucket in groupby(rows, lambda row: row[0]):
        yield Entries.joined([Entries.from_bytes(bytearray(each)) for _, each in of_bucket])


def _judged_batch(found: Judged) -> pa.RecordBatch:
    text = orjson.dumps(
        {
            "kinds": [[table, kind, count] for (table, kind), count in found.kinds.items()],
            "verdicts": [{**asdict(verdict), "key": verdict.key.hex()} for verdict in found.verdicts],
            "rows": list(found.rows.items()),
            "differing": found.differing,
        }
    )
    return _judged_text(text)


def _chains_batch(found: Chains) -> pa.RecordBatch:
    counts = [[table, kind, count] for (table, kind), count in found.counts.items()]
    return _judged_text(orjson.dumps({"counts": counts, "shown": found.shown}))


def _chains_of(values: dict[str, Any]) -> Chains:
    counts = Counter({(table, kind): count for table, kind, count in values["counts"]})
    return Chains(counts, [(table, kind, text) for table, kind, text in values["shown"]])


def _judged_text(text: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(["judged"]), pa.array([text.decode()])], schema=_JUDGED)


def _judged_of(values: dict[str, Any]) -> Judged:
    verdicts = [
        Verdict(**{**verdict, "key": bytes.fromhex(verdict["key"]), "kind": Kind(verdict["kind"])})
        for verdict in values["verdicts"]
    ]
    kinds = Counter({(table, kind): count for table, kind, count in values["kinds"]})
    return Judged(kinds, verdicts, Counter(dict(values["rows"])), values["differing"])


def _chunk_report(values: dict[str, Any]) -> ChunkReport:
    low, high = (BinlogCoordinates(**values.pop(name)) for name in ("low", "high"))
    return ChunkReport(**values, low=low, high=high)


def _partition_report(values: dict[str, Any]) -> PartitionReport:
    return PartitionReport(
        values["topic"],
        values["partition"],
        values["records"],
        values["counts"],
        [tuple(stray) for stray in values["shown"]],
        [tuple(emptied) for emptied in values["emptied"]],
        values["unplaced"],
        [tuple(unkeyed) for unkeyed in values["unkeyed"]],
    )


def _chain_report(values: dict[str, Any]) -> ChainReport:
    shown = [tuple(stray) for stray in values.pop("shown")]
    first = {int(count): moment for count, moment in values.pop("first_outside").items()}
    return ChainReport(**values, shown=shown, first_outside=first)
