"""Where an XA transaction was prepared, when its XA COMMIT stands in a later slice, or windows later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from changefeed.binlog.decoder import KernelDecoder
from changefeed.binlog.prepared_rows import PreparedRows
from changefeed.binlog.unfinished import RowTransformer
from changefeed.errors import BinlogGoneError
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.route import Router, SchemaLookup
from changefeed.model.slice_report import SliceReport
from changefeed.model.transaction_event import PreparedTransaction
from changefeed.model.window import BinlogFile, Slice
from changefeed.records.block import MessageBlock
from changefeed.source.archive.binlogs import ArchivedBinlogs
from changefeed.source.mysql import source
from changefeed.spark.stages.decode_task import DecodeTask
from changefeed.spark.stages.dump import dump_of


class EarlierSlices:
    """A `PreparedBefore` that reads the binlog backwards from a slice, a stretch at a time.

    Nothing is stored of what is prepared, so it is right after a seek or a failover too, and at a pipeline's first
    window. Most XA transactions end soon: one stretch before is enough for them. ``schemas`` are those at the
    XA COMMIT: no table can be changed while a prepared transaction has rows of it.
    """

    def __init__(self, task: DecodeTask, piece: Slice, schemas: SchemaLookup, finisher: RowTransformer | None) -> None:
        self._task, self._piece, self._schemas, self._finisher = task, piece, schemas, finisher
        self._stretches = self._backwards()
        self._known: dict[str, PreparedTransaction | None] = {}
        self._oldest = f"{piece.file}:{piece.start}"

    def find(self, xid: str) -> PreparedTransaction:
        """See `PreparedBefore.find`."""
        while xid not in self._known:
            stretch = next(self._stretches, None)
            if stretch is None:
                break
            self._read(stretch)
        prepared = self._known.get(xid)
        if prepared is None:
            raise BinlogGoneError(
                f"XA COMMIT of {xid} stands in {self._piece.file} behind position {self._piece.start}, and its "
                f"XA PREPARE is not in the binlog, which was read back to {self._oldest}: its file was purged, or it "
                "was never logged. The rows that it commits are not known, so the window is not published. Copy the "
                "tables that it wrote (a snapshot or a dump), and seek the pipeline behind that XA COMMIT; and raise "
                "binlog_expire_logs_seconds above the time that transactions stay prepared."
            )
        return prepared

    def rows(self, prepared: PreparedTransaction) -> Iterator[MessageBlock | SliceReport]:
        """See `PreparedBefore.rows`."""
        decoder = self._decoder(self._task.route)
        stretch = Slice(self._piece.number, prepared.file, prepared.start, prepared.end)
        return decoder.decode(dump_of(self._task, stretch, beside=True), stretch)

    def _read(self, stretch: Slice) -> None:
        """Take note of the transactions that ``stretch`` prepared and did not end, and of those that it ended."""
        decoder = self._decoder(lambda _database, _table: None)
        decoder.prepared_rows = rows = PreparedRows(None)
        for _ in decoder.decode(dump_of(self._task, stretch, beside=True), stretch):
            pass
        for xid, prepared in rows.left.items():
            self._known.setdefault(xid, prepared)
        for xid in rows.ended:
            self._known.setdefault(xid, None)
        self._oldest = f"{stretch.file}:{stretch.start}"

    def _decoder(self, router: Router) -> KernelDecoder:
        task = self._task
        return KernelDecoder(
            router,
            self._schemas,
            task.format(),
            task.server_uuid,
            columns=task.column_rules,
            compared_as=task.compared_as,
            finisher=self._finisher,
        )

    def _backwards(self) -> Iterator[Slice]:
        """What was written before the slice, the latest first: the window's slices, then the files before it."""
        yield from reversed([each for each in self._task.slices if each.number < self._piece.number])
        start = self._task.start
        if start.position > FIRST_POSITION:
            yield Slice(0, start.file, FIRST_POSITION, start.position)
        for file in reversed(self._files()):
            if file.number < start.number:
                yield Slice(0, file.name, FIRST_POSITION, file.size_bytes)

    def _files(self) -> Sequence[BinlogFile]:
        if self._task.archive is not None:
            return ArchivedBinlogs(self._task.archive).files()
        with self._task.session() as session:
            return source.binlog_files(session)
