"""Where an XA transaction was prepared, when its XA COMMIT stands in a later slice, or windows later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from changefeed.archive.binlogs import ArchivedBinlogs
from changefeed.binlog.decoder import KernelDecoder
from changefeed.binlog.prepared_rows import PreparedRows
from changefeed.binlog.unfinished import Finisher
from changefeed.block import Block
from changefeed.coordinates import FIRST_POSITION
from changefeed.errors import BinlogGoneError
from changefeed.mysql import source
from changefeed.reader import Router, SchemaLookup, SliceReport
from changefeed.spark.dump import dump_of
from changefeed.spark.job import IngestJob
from changefeed.transaction_event import PreparedTransaction
from changefeed.window import BinlogFile, Slice


class EarlierSlices:
    """A `PreparedBefore` that reads the binlog backwards from a slice, a stretch at a time.

    Nothing is stored of what is prepared, so it is right after a seek or a failover too, and at a pipeline's first
    window. Most XA transactions end soon: one stretch before is enough for them. ``schemas`` are those at the
    XA COMMIT: no table can be changed while a prepared transaction has rows of it.
    """

    def __init__(self, job: IngestJob, piece: Slice, schemas: SchemaLookup, finisher: Finisher | None) -> None:
        self._job, self._piece, self._schemas, self._finisher = job, piece, schemas, finisher
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

    def rows(self, prepared: PreparedTransaction) -> Iterator[Block | SliceReport]:
        """See `PreparedBefore.rows`."""
        decoder = self._decoder(self._job.route)
        stretch = Slice(self._piece.number, prepared.file, prepared.start, prepared.end)
        return decoder.decode(dump_of(self._job, stretch, beside=True), stretch)

    def _read(self, stretch: Slice) -> None:
        """Take note of the transactions that ``stretch`` prepared and did not end, and of those that it ended."""
        decoder = self._decoder(lambda _database, _table: None)
        decoder.prepared_rows = rows = PreparedRows(None)
        for _ in decoder.decode(dump_of(self._job, stretch, beside=True), stretch):
            pass
        for xid, prepared in rows.left.items():
            self._known.setdefault(xid, prepared)
        for xid in rows.ended:
            self._known.setdefault(xid, None)
        self._oldest = f"{stretch.file}:{stretch.start}"

    def _decoder(self, router: Router) -> KernelDecoder:
        job = self._job
        return KernelDecoder(
            router,
            self._schemas,
            job.format(),
            job.window.server_uuid,
            columns=job.endpoints.column_rules,
            finisher=self._finisher,
        )

    def _backwards(self) -> Iterator[Slice]:
        """What was written before the slice, the latest first: the window's slices, then the files before it."""
        yield from reversed([each for each in self._job.slices if each.number < self._piece.number])
        start = self._job.window.start
        if start.position > FIRST_POSITION:
            yield Slice(0, start.file, FIRST_POSITION, start.position)
        for file in reversed(self._files()):
            if file.number < start.number:
                yield Slice(0, file.name, FIRST_POSITION, file.size_bytes)

    def _files(self) -> Sequence[BinlogFile]:
        if self._job.archive is not None:
            return ArchivedBinlogs(self._job.archive).files()
        with self._job.session() as session:
            return source.binlog_files(session)
