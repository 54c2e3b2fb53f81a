"""The two stages of a round of a snapshot, on any worker: chunks are read into finished batches, and published."""

from __future__ import annotations

import gc
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Self

import orjson
import pyarrow as pa

from changefeed import fault_point
from changefeed.batches.batch import Batch
from changefeed.batches.compression import CODECS
from changefeed.binlog.programs.result_columns import quoted, selected
from changefeed.block import Block
from changefeed.block_filter import without
from changefeed.coordinates import BinlogCoordinates
from changefeed.errors import ChangefeedError, FencedError, SchemaError, SparkFailedError
from changefeed.formats.format import Format
from changefeed.formats.read_header import ReadHeader, WithReadHeader
from changefeed.kafka.chunk_publisher import ChunkPublisher
from changefeed.kafka.log_record import LogRecord
from changefeed.kafka.topics import commit_log_topic
from changefeed.mysql.catalog import table_schema
from changefeed.mysql.result_set import ResultSet
from changefeed.mysql.session import Session
from changefeed.origin import Chunk
from changefeed.pipelines.replayable import is_replayable
from changefeed.reader import SliceReport
from changefeed.snapshot.announcement import made_by
from changefeed.snapshot.planning import key_text
from changefeed.snapshot.progress import ChunkRecord, PlannedChunk, TableView
from changefeed.snapshot.read_view import ReadView, read_view
from changefeed.snapshot.table_key import TableKey
from changefeed.spark import frame
from changefeed.spark.changed_keys import KEYS, KEYS_OF, block_keys, key_route
from changefeed.spark.decode import encoder_of
from changefeed.spark.expected import Decoded, WholeBatches
from changefeed.spark.job import IngestJob, task_number
from changefeed.spark.payload_files import PayloadFile, payload_at, payload_file
from changefeed.spark.publish import dead_letters_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from changefeed.binlog.row_reader import RowReader

_STEP_BITS = 2
_LZ4 = CODECS["lz4"]


@dataclass(frozen=True)
class ChunkJob:
    """A round: what its tasks need besides the chunks.

    ``ingest`` has the pipeline, the topics and the attempt. ``base`` is where the pipeline's published changes end,
    at least: each chunk has to see what was committed before it. ``keys`` says of each table what its primary key was.
    ``condition`` is SQL of the rows that were asked for, '' for all. ``changing`` are the tables whose rows' keys are
    kept beside the batches: only of those rows can be left out.
    """

    ingest: IngestJob
    base: BinlogCoordinates
    keys: Mapping[str, str]
    condition: str = ""
    changing: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ReadChunk:
    """What a chunk was read as: ``rows``, in batches of ``size_bytes`` together; of a table without a key in the view
    ``view``, as `TableView` gives it."""

    number: int
    rows: int
    size_bytes: int
    seconds: float
    view: Sequence[str] = ()


@dataclass
class ReadRound:
    """A round that was read: ``batches`` of its chunks stay with Spark until it is published."""

    batches: DataFrame
    chunks: dict[int, ReadChunk]
    errors: list[ChangefeedError]


def read_chunks(job: ChunkJob, chunks: Sequence[PlannedChunk]) -> Iterator[pa.RecordBatch]:
    """The first stage: of each chunk its batches, of a changing table its rows' keys, then its sizes and what it was
    read as; or, for a chunk that could not be read, its error."""
    gc.freeze()  # all that was imported: Spark's worker has the collector look at it after each task
    return frame.decoded_batches(_rows(job, chunks))


def _rows(job: ChunkJob, chunks: Sequence[PlannedChunk]) -> Iterator[frame.DecodedRow]:
    from changefeed.binlog.row_reader import RowReader  # it loads the kernels, which only workers need
    from changefeed.spark.readers import finisher_of

    ingest = job.ingest
    reader = RowReader(
        ingest.route,
        _format(job),
        ingest.window.server_uuid,
        columns=ingest.endpoints.column_rules,
        block_bytes=ingest.pipeline.kafka.publishing.batch_bytes,
        finisher=finisher_of(ingest),
    )
    keys = RowReader(key_route, KEYS, ingest.window.server_uuid)
    encoder = encoder_of(ingest)
    with _ChunkSession(ingest) as connected, payload_file(ingest.folder) as file:
        for chunk in chunks:
            begun, decoded, number = time.monotonic(), Decoded(), 0
            try:
                with connected.view_of(chunk, job.base) as (session, view):
                    of_view = [] if chunk.has_key else _table_view(session, view, chunk).to_json()
                    for item in _read(job, session, view, chunk, reader, keys):
                        fault_point.reached("in_decode")
                        if isinstance(item, SliceReport):
                            count = sum(sum(ops.values()) for of in (item.rows, item.filtered) for ops in of.values())
                        elif item.topic.startswith(KEYS_OF):
                            yield _keys_row(item, file)
                        else:
                            for batch in encoder.batches(item, number=number):
                                yield frame.batch_row(batch, decoded.add_batch(batch), file)
                                number = batch.number + 1
                size_bytes, seconds = sum(decoded.size_bytes.values()), round(time.monotonic() - begun, 3)
                read = ReadChunk(chunk.number, count, size_bytes, seconds, of_view)
                yield frame.text_row("sizes", decoded.text(), chunk.number)
                yield frame.text_row("read", orjson.dumps(asdict(read)).decode(), chunk.number)
            except ChangefeedError as error:
                yield frame.text_row("error", frame.error_text(error), chunk.number)


def _table_view(session: Session, view: ReadView, chunk: PlannedChunk) -> TableView:
    return TableView(str(view.as_of.coordinates), *made_by(session, chunk.database, chunk.table))


def _format(job: ChunkJob) -> Format:
    """The pipeline's; with what a follower has to know of the rows, where a pipeline can have one."""
    ingest = job.ingest
    if not is_replayable(ingest.pipeline):
        return ingest.format()
    return WithReadHeader(ingest.format(), (), ReadHeader(job.base, ingest.identity).to_bytes())


class _ChunkSession:
    """The connection of a task, which reads one chunk after the other; a new one behind a chunk that could not be read.
    A context manager, that closes it."""

    def __init__(self, job: IngestJob) -> None:
        self._job = job
        self._session: Session | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._session is not None:
            self._session.raw.close()
            self._session = None

    @contextmanager
    def view_of(self, chunk: PlannedChunk, base: BinlogCoordinates) -> Iterator[tuple[Session, ReadView]]:
        """The session in the view that ``chunk`` is read in; the view ends with the block."""
        try:
            if self._session is None:
                self._session = self._job.session()
            yield self._session, read_view(self._session, base, chunk)
            self._session.rows("COMMIT")
        except BaseException:
            self.__exit__()
            raise


def _read(
    job: ChunkJob, session: Session, view: ReadView, chunk: PlannedChunk, reader: RowReader, keys: RowReader
) -> Iterator[Block | SliceReport]:
    """The chunk's blocks, those of its rows' keys among them, and last its report."""
    schema = table_schema(session, chunk.database, chunk.table)
    name = chunk.table_name
    if schema is None:
        raise SchemaError(f"table {name} is not there any more. Start a snapshot without it.")
    if key_text(schema) != job.keys[name]:
        raise SchemaError(
            f"the primary key of {name} is ({key_text(schema)}) now, and was ({job.keys[name]}) when the snapshot "
            "began. Start a new snapshot of it."
        )
    key = TableKey.of(schema)
    source = f"{quoted(chunk.database)}.{quoted(chunk.table)}" if key is None else key.source
    conditions = [key.condition(chunk.within)] if key is not None else []
    if job.condition:
        conditions.append(f"({job.condition})")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    own = Chunk(chunk.database, chunk.table, chunk.number)
    with ResultSet(session, f"SELECT {selected(schema)} FROM {source}{where}") as rows:
        reports = []
        beside = (keys,) if key is not None and name in job.changing else ()
        for item in reader.read(schema, rows, own, view.as_of, beside=beside):
            if isinstance(item, SliceReport):
                reports.append(item)
            else:
                yield item
    yield reports[-1]


def _keys_row(block: Block, file: PayloadFile | None) -> frame.DecodedRow:
    """The keys of some of a chunk's rows, in their order; nobody looks into them where no key of the table changed."""
    payload = _LZ4.compress(block.payload, None)
    where = (payload, None) if file is None else (None, file.write(payload))
    return "keys", None, None, None, block.slice, None, None, *where


def _keys_of(payload: bytes) -> Iterator[bytes]:
    block = Block("", 0, "", 0, 0, _LZ4.decompress(payload))
    return (key for _, key in block_keys(block))


def publish_chunks(
    job: ChunkJob,
    batches: Iterable[pa.RecordBatch],
    wanted: Mapping[int, PlannedChunk],
    changed: Mapping[str, set[bytes]],
) -> Iterator[pa.RecordBatch]:
    """The second stage: the chunks of a task that are ``wanted``, each in one transaction, less the rows whose keys are
    among the ``changed`` ones of their table. A row for each that is in Kafka, or an error."""
    ingest = job.ingest
    try:
        topics, task = ingest.topics.known, task_number()
        with ChunkPublisher(
            ingest.endpoints.kafka,
            ingest.pipeline.name,
            task,
            commit_log_topic(ingest.pipeline.name),
            topics,
            ingest.pipeline.kafka.publishing,
            identity=ingest.identity,
            attempt=ingest.attempt,
            dead_letter=dead_letters_of(ingest.pipeline),
            on_stage=fault_point.reached,
        ) as publisher:
            rows = (row for batch in batches for row in batch.to_pylist())
            for number, of_chunk in groupby(rows, key=lambda row: row["slice"]):
                chunk = wanted.get(number)
                if chunk is None:
                    continue
                if publisher.is_full or not chunk.has_key:  # which may need all the time of a transaction
                    yield from map(_chunk_row, publisher.commit())
                record = _publish_chunk(job, publisher, chunk, of_chunk, changed)
                if record is not None:
                    yield _chunk_row(record)
            yield from map(_chunk_row, publisher.commit())
    except ChangefeedError as error:
        if isinstance(error, FencedError) and ingest.copies:
            log = ingest.endpoints.commit_log()
            if log.read().attempt == ingest.attempt:
                raise  # a copy of this task took over, and counts
        yield frame.published_batch("error", frame.error_text(error))


def _chunk_row(record: LogRecord) -> pa.RecordBatch:
    return frame.published_batch("chunk", orjson.dumps([*record.parts, record.to_json()]).decode())


def _publish_chunk(
    job: ChunkJob,
    publisher: ChunkPublisher,
    chunk: PlannedChunk,
    rows: Iterable[Mapping[str, Any]],
    changed: Mapping[str, set[bytes]],
) -> ChunkRecord | None:
    """Publish a chunk in the open transaction; its record where an earlier copy of this task has published it.

    Of its table no key may be among the ``changed`` ones unless its rows' keys were kept.
    """
    batches: list[Mapping[str, Any]] = []
    left_out: list[int] = []
    texts: dict[str, str] = {}
    name, at = chunk.table_name, 0
    of_table = changed.get(name, set())
    if of_table and name not in job.changing:
        raise SparkFailedError(
            f"keys of {name} changed, and those of its rows were not kept: read chunk {chunk.number} again"
        )
    for row in rows:
        if row["kind"] == "batch":
            batches.append(row)
        elif row["kind"] == "keys":
            if of_table:
                keys = list(_keys_of(_payload(row)))
                left_out += [at + number for number, key in enumerate(keys) if key in of_table]
                at += len(keys)
        else:
            texts[row["kind"]] = row["text"]
    if "read" not in texts or "sizes" not in texts:
        raise SparkFailedError(f"Spark lost a part of chunk {chunk.number} of {name} that it had read; run again")
    decoded = Decoded()
    decoded.add_text(texts["sizes"])
    read = ReadChunk(**orjson.loads(texts["read"]))
    record = ChunkRecord(chunk.number, name, read.rows, len(left_out), TableView.of(read.view))
    if publisher.is_published(record):
        return record
    whole = WholeBatches(decoded.by_slice).passed(map(_batch, batches))
    publisher.add(_without_rows(job, whole, left_out), record)
    return None


def _batch(row: Mapping[str, Any]) -> tuple[Batch, int]:
    batch = Batch.of(row["topic"], row["partition"], row["origin"], row["slice"], row["number"], _payload(row))
    return batch, row["before"]


def _payload(row: Mapping[str, Any]) -> bytes:
    payload: bytes = payload_at(row["text"]) if row["payload"] is None else row["payload"]
    return payload


def _without_rows(job: ChunkJob, batches: Iterable[Batch], left_out: Sequence[int]) -> Iterator[Batch]:
    """``batches`` without the messages of some rows, by their numbers, in order. Others are not looked into."""
    encoder, bits = encoder_of(job.ingest), row_bits(job.ingest)
    gone = set(left_out)
    for batch in batches:
        first, last = batch.sequences[0] >> bits, batch.sequences[-1] >> bits
        if bisect_left(left_out, first) == bisect_right(left_out, last):
            yield batch
            continue
        block = without(batch.block(), lambda message: message.sequence >> bits in gone)
        if block is not None:
            yield from encoder.batches(block, batch.number)


def row_bits(job: IngestJob) -> int:
    """How far left in a message's sequence its row's number stands: behind the step, and the part of a function."""
    from changefeed.transforms.sequences import PART_BITS

    has_parts = bool(job.pipeline.transforms) or job.pipeline.outbox is not None
    return _STEP_BITS + (PART_BITS if has_parts else 0)
