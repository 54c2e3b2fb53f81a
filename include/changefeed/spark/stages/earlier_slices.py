"""Find the XA PREPARE of a transaction whose XA COMMIT is in a later slice or window."""

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
from changefeed.spark.stages.dump import open_dump


class EarlierSlices:
    """A `PreparedBefore` that reads the binlog backwards from a slice, one earlier slice or file at a time.

    Prepared transactions are not stored, so the result is also correct after a seek or a failover, and in a pipeline's
    first window. Most XA transactions end soon, so that one earlier slice is enough. ``schemas`` are the schemas at the
    XA COMMIT. They also fit the rows, because a table cannot be altered while a prepared transaction has rows of it.
    """

    def __init__(self, task: DecodeTask, slice: Slice, schemas: SchemaLookup, finisher: RowTransformer | None) -> None:
        self._task, self._slice, self._schemas, self._finisher = task, slice, schemas, finisher
        self._unread = self._backwards()
        self._known: dict[str, PreparedTransaction | None] = {}
        self._oldest = f"{slice.file}:{slice.start}"

    def find(self, xid: str) -> PreparedTransaction:
        """See `PreparedBefore.find`."""
        while xid not in self._known:
            earlier = next(self._unread, None)
            if earlier is None:
                break
            self._read(earlier)
        prepared = self._known.get(xid)
        if prepared is None:
            raise BinlogGoneError(
                f"XA COMMIT of {xid} is in {self._slice.file} after position {self._slice.start}, and its XA PREPARE "
                f"is not in the binlog, which was read back to {self._oldest}: its file was purged, or it was never "
                "logged. The rows that it commits are not known, so the window is not published. Copy the tables that "
                "it wrote (a snapshot or a dump), and seek the pipeline to a position after that XA COMMIT. Raise "
                "binlog_expire_logs_seconds above the time that transactions stay prepared."
            )
        return prepared

    def rows(self, prepared: PreparedTransaction) -> Iterator[MessageBlock | SliceReport]:
        """See `PreparedBefore.rows`."""
        decoder = self._decoder(self._task.route)
        earlier = Slice(self._slice.number, prepared.file, prepared.start, prepared.end)
        return decoder.decode(open_dump(self._task, earlier, beside=True), earlier)

    def _read(self, earlier: Slice) -> None:
        """Record the transactions that ``earlier`` prepared and did not end, and those that it ended."""
        decoder = self._decoder(lambda _database, _table: None)
        decoder.prepared_rows = rows = PreparedRows(None)
        for _ in decoder.decode(open_dump(self._task, earlier, beside=True), earlier):
            pass
        for xid, prepared in rows.left.items():
            self._known.setdefault(xid, prepared)
        for xid in rows.ended:
            self._known.setdefault(xid, None)
        self._oldest = f"{earlier.file}:{earlier.start}"

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
        """The binlog before the slice, the latest part first: the window's slices, then the files before the window."""
        yield from reversed([each for each in self._task.slices if each.number < self._slice.number])
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
