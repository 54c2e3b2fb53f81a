"""The two stages of a snapshot's round, which workers run: read chunks into finished batches, and publish them."""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Self

from changefeed.binlog.programs.result_columns import select_list
from changefeed.errors import ChangefeedError, NoSuchTableError, SchemaError, SparkFailedError
from changefeed.formats.format import Format
from changefeed.formats.read_header import ReadHeader, WithReadHeader
from changefeed.kafka.commit_log.snapshots import ChunkRecord, PlannedChunk, TableView
from changefeed.kafka.publisher import Unit
from changefeed.model import fault_point
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.identifier import quote_name
from changefeed.model.origin import Chunk
from changefeed.model.slice_report import SliceReport
from changefeed.records.batch import Batch
from changefeed.records.block import MessageBlock
from changefeed.records.block_filter import without
from changefeed.records.compression import CODECS
from changefeed.settings.limits import is_replayable
from changefeed.settings.pipeline import Pipeline
from changefeed.snapshot.announcement_records import create_statements
from changefeed.snapshot.changed_keys import KEYS, KEYS_OF, block_keys, key_route
from changefeed.snapshot.planning import check_condition_columns, key_text
from changefeed.snapshot.read_view import ReadView, read_view
from changefeed.source.mysql.catalog import table_schema
from changefeed.source.mysql.result_set import ResultSet
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.table_key import TableKey
from changefeed.spark.stages.decode import encoder_of
from changefeed.spark.stages.decode_task import SourceTask
from changefeed.spark.stages.expected import CompletenessCheck, DecodedCounts
from changefeed.spark.stages.messages import Failure, PartitionCount, StoredBatch, TaskMessage, counts_from_json
from changefeed.spark.stages.payload_files import PayloadFile, payload_file
from changefeed.spark.stages.publish_task import PublishTask
from changefeed.spark.warm_up import freeze_modules

if TYPE_CHECKING:
    from changefeed.binlog.row_reader import RowReader

_STEP_BITS = 2
_LZ4 = CODECS["lz4"]


@dataclass(frozen=True, kw_only=True)
class ReadTask(SourceTask):
    """Reads chunks of tables.

    - ``base``: everything before this position is published, so each chunk must see everything committed before it.
    - ``keys``: the primary key of each table when the snapshot began.
    - ``condition``: the SQL condition of the requested rows, '' for all rows; ``condition_columns`` are its columns.
    - ``changing``: the tables for which the keys of the rows are stored with the batches. Only rows of these tables can
      be left out.
    """

    base: BinlogCoordinates
    keys: Mapping[str, str]
    condition: str = ""
    condition_columns: tuple[str, ...] = ()
    changing: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class ChunkPublishTask(PublishTask):
    """Publishes chunks of the snapshot with the identity ``snapshot``.

    Task ``n`` publishes the chunks of ``shares[n]``, in order. It leaves out the rows whose keys are in ``changed`` of
    their table.
    """

    snapshot: str
    shares: Sequence[Sequence[tuple[PlannedChunk, ReadChunk]]]
    changed: Mapping[str, set[bytes]]
    changing: frozenset[str] = frozenset()
    """The tables for which the keys of the rows are stored with the batches."""

    def publish(self, number: int, stored: Iterable[StoredBatch]) -> list[PublishedChunk]:
        """Publish the chunks of task ``number`` (see `PublishTask`). One transaction may have several small chunks.

        ``stored`` is in the order in which a task read it.
        """
        with self.publisher(number, units_of=self.snapshot) as publisher:
            return [PublishedChunk(record) for record in publisher.publish_units(self._units(number, stored))]

    def _units(self, number: int, stored: Iterable[StoredBatch]) -> Iterator[Unit[ChunkRecord]]:
        chunks = self.shares[number]
        of_chunks = _by_slice(stored, [chunk.number for chunk, _ in chunks])
        for (chunk, read), of_chunk in zip(chunks, of_chunks, strict=True):
            left_out = self._left_out_rows(chunk, of_chunk)
            record = ChunkRecord(chunk.number, chunk.table_name, read.rows, len(left_out), read.view)
            decoded = DecodedCounts()
            decoded.add(read.counts)
            batches = (each for each in of_chunk if not each.topic.startswith(KEYS_OF))
            complete = CompletenessCheck(decoded.by_slice).check(batches)
            # A table without a key is a single chunk, which may need the complete time limit of a transaction.
            yield Unit(self._without_rows(complete, left_out), record, begins_transaction=not chunk.has_key)

    def _left_out_rows(self, chunk: PlannedChunk, stored: Iterable[StoredBatch]) -> list[int]:
        """The sorted numbers of the rows of ``chunk`` whose keys changed."""
        changed = self.changed.get(chunk.table_name)
        if not changed:
            return []
        if chunk.table_name not in self.changing:
            raise SparkFailedError(
                f"keys of {chunk.table_name} changed, and the keys of the rows that were read are not stored: read "
                f"chunk {chunk.number} again"
            )
        keys = (key for each in stored if each.topic.startswith(KEYS_OF) for key in _keys_of(each.read()))
        return [number for number, key in enumerate(keys) if key in changed]

    def _without_rows(self, batches: Iterable[Batch], left_out: Sequence[int]) -> Iterator[Batch]:
        """Yield ``batches`` without the messages of the rows ``left_out``, which must be sorted.

        Only batches with such rows are decompressed.
        """
        encoder, bits = encoder_of(self.pipeline, self.topics), row_bits(self.pipeline)
        gone = set(left_out)
        for batch in batches:
            first, last = batch.sequences[0] >> bits, batch.sequences[-1] >> bits
            if bisect_left(left_out, first) == bisect_right(left_out, last):
                yield batch
                continue
            block = without(batch.block(), lambda message: message.sequence >> bits in gone)
            if block is not None:
                yield from encoder.batches(block, batch.number)


@dataclass(frozen=True)
class ReadChunk(TaskMessage):
    """The result of reading a chunk: its number of ``rows`` and the ``counts`` of its batches.

    For a table without a key it also has the ``view``.
    """

    number: int
    rows: int
    counts: tuple[PartitionCount, ...]
    seconds: float
    view: TableView | None = None

    @classmethod
    def from_json(cls, values: Any, /) -> Self:
        view = values["view"] and TableView(**values["view"])
        return cls(**{**values, "counts": counts_from_json(values["counts"]), "view": view})

    @property
    def size_bytes(self) -> int:
        """The size of the chunk's batches."""
        return sum(count.size_bytes for count in self.counts)


@dataclass(frozen=True)
class PublishedChunk(TaskMessage):
    """The record of a chunk that is published."""

    record: ChunkRecord

    @classmethod
    def from_json(cls, values: Any, /) -> Self:
        record = values["record"]
        return cls(ChunkRecord(**{**record, "view": record["view"] and TableView(**record["view"])}))


def read_chunks(task: ReadTask, chunks: Sequence[PlannedChunk]) -> Iterator[StoredBatch | ReadChunk | Failure]:
    """Yield the batches of each chunk, then its ReadChunk, or a Failure if the chunk could not be read.

    This is the first stage. For a changing table it also yields the keys of the rows.
    """
    try:
        task.check_version()
    except ChangefeedError as error:
        yield Failure.of(error)
        return
    from changefeed.binlog.row_reader import RowReader  # imported here, as only workers need the kernels
    from changefeed.spark.stages.readers import finisher_of

    freeze_modules()
    reader = RowReader(
        task.route,
        _format(task),
        task.server_uuid,
        columns=task.column_rules,
        block_bytes=task.pipeline.kafka.publish_settings.batch_bytes,
        finisher=finisher_of(task),
    )
    keys = RowReader(key_route, KEYS, task.server_uuid)
    encoder = encoder_of(task.pipeline, task.topics)
    with _ChunkSession(task) as connected, payload_file(task.folder) as file:
        for chunk in chunks:
            begun, decoded, number = time.monotonic(), DecodedCounts(), 0
            try:
                with connected.view_of(chunk, task.base) as (session, view):
                    of_view = None if chunk.has_key else _table_view(session, view, chunk)
                    for item in _read(task, session, view, chunk, reader, keys):
                        fault_point.reach("in_decode")
                        if isinstance(item, SliceReport):
                            count = sum(sum(ops.values()) for of in (item.rows, item.filtered) for ops in of.values())
                        elif item.topic.startswith(KEYS_OF):
                            yield _store_keys(item, file)
                        else:
                            for batch in encoder.batches(item, number=number):
                                yield StoredBatch.of(batch, decoded.add_batch(batch), file)
                                number = batch.number + 1
                seconds = round(time.monotonic() - begun, 3)
                yield ReadChunk(chunk.number, count, decoded.counts(), seconds, of_view)
            except ChangefeedError as error:
                yield Failure.of(error)


def _table_view(session: Session, view: ReadView, chunk: PlannedChunk) -> TableView:
    return TableView(str(view.as_of.coordinates), *create_statements(session, chunk.database, chunk.table))


def _format(task: ReadTask) -> Format:
    """The pipeline's format, with a read header if the pipeline can have followers."""
    if not is_replayable(task.pipeline):
        return task.format()
    return WithReadHeader(task.format(), (), ReadHeader(task.base, task.identity).to_bytes())


class _ChunkSession:
    """The session of a task, which reads one chunk after the other. As a context manager, it closes the session.

    After a chunk that could not be read, it opens a new session.
    """

    def __init__(self, task: ReadTask) -> None:
        self._task = task
        self._session: Session | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._session is not None:
            self._session.raw.close()
            self._session = None

    @contextmanager
    def view_of(self, chunk: PlannedChunk, base: BinlogCoordinates) -> Iterator[tuple[Session, ReadView]]:
        """A context with the session and its read view for ``chunk``. The view ends with the context."""
        try:
            if self._session is None:
                self._session = self._task.session()
            yield self._session, read_view(self._session, base, chunk)
            self._session.rows("COMMIT")
        except BaseException:
            self.__exit__()
            raise


def _read(
    task: ReadTask, session: Session, view: ReadView, chunk: PlannedChunk, reader: RowReader, keys: RowReader
) -> Iterator[MessageBlock | SliceReport]:
    """Yield the chunk's blocks, also the blocks with the keys of its rows, and last its report."""
    schema = table_schema(session, chunk.database, chunk.table)
    name = chunk.table_name
    if schema is None:
        raise NoSuchTableError(f"table {name} does not exist any more")  # the next round leaves the table out
    if key_text(schema) != task.keys[name]:
        raise SchemaError(
            f"expected the primary key ({task.keys[name]}) of {name}, as when the snapshot began, found "
            f"({key_text(schema)}). Start a new snapshot of it."
        )
    check_condition_columns(task.connections, schema, task.condition_columns)
    key = TableKey.of(schema)
    source = f"{quote_name(chunk.database)}.{quote_name(chunk.table)}" if key is None else key.source
    conditions = [key.condition(chunk.within)] if key is not None else []
    if task.condition:
        conditions.append(f"({task.condition})")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    own = Chunk(chunk.database, chunk.table, chunk.number)
    with ResultSet(session, f"SELECT {select_list(schema)} FROM {source}{where}") as rows:
        reports = []
        beside = (keys,) if key is not None and name in task.changing else ()
        for item in reader.read(schema, rows, own, view.as_of, beside=beside):
            if isinstance(item, SliceReport):
                reports.append(item)
            else:
                yield item
    yield reports[-1]


def _store_keys(block: MessageBlock, file: PayloadFile | None) -> StoredBatch:
    """Store the keys of a chunk's rows, in the order of the rows. They are read only if keys of the table changed."""
    payload = _LZ4.compress(block.payload, None)
    where = (block.topic, block.partition, block.origin, block.slice, block.number, 0)
    return StoredBatch(*where, payload if file is None else file.write(payload))


def _keys_of(payload: bytes) -> Iterator[bytes]:
    block = MessageBlock("", 0, "", 0, 0, _LZ4.decompress(payload))
    return (key for _, key in block_keys(block))


def _by_slice(stored: Iterable[StoredBatch], numbers: Iterable[int]) -> Iterator[list[StoredBatch]]:
    """Yield the batches in ``stored`` of each slice of ``numbers``. Both must be sorted. Other slices are skipped."""
    slices = groupby(stored, key=lambda each: each.slice)
    found = next(slices, None)
    for number in numbers:
        while found is not None and found[0] < number:
            found = next(slices, None)
        if found is None or found[0] != number:
            yield []
        else:
            yield list(found[1])
            found = next(slices, None)


def row_bits(pipeline: Pipeline) -> int:
    """The number of low bits of a message's sequence that do not belong to the row's number.

    They are the bits of the step and, with functions or an outbox, of the part.
    """
    from changefeed.transforms.sequences import PART_BITS

    has_parts = bool(pipeline.transforms) or pipeline.outbox is not None
    return _STEP_BITS + (PART_BITS if has_parts else 0)
