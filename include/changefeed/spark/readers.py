"""The two readers of a slice, put together: the dump stream of its own connection, and what decodes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from changefeed.archive.binlogs import ArchivedBinlogs
from changefeed.binlog.decoder import KernelDecoder
from changefeed.block import Block
from changefeed.mysql.catalog import catalog_lookup
from changefeed.mysql.dump import DumpStream
from changefeed.mysql.reference import ReferenceReader
from changefeed.mysql.session import Session
from changefeed.reader import SliceReader, SliceReport
from changefeed.spark.job import IngestJob
from changefeed.window import Slice


def dump_of(job: IngestJob, piece: Slice) -> Iterable[bytes]:
    """The events of ``piece``, over a connection of its own, or out of the archive."""
    if job.archive is not None:
        return ArchivedBinlogs(job.archive).chunks(piece.file, piece.start, piece.end)
    session = Session(job.mysql)
    return DumpStream(session, file=piece.file, start=piece.start, end=piece.end, server_id=job.server_id(piece.number))


class KernelReader:
    """A `SliceReader` on row programs and the kernel; programs made for one slice serve the next."""

    def __init__(self, job: IngestJob) -> None:
        self._job = job
        schemas = catalog_lookup(lambda: Session(job.mysql))
        self._decoder = KernelDecoder(job.route, schemas, job.format(), job.window.server_uuid)

    def read(self, piece: Slice) -> Iterator[Block | SliceReport]:
        return self._decoder.decode(dump_of(self._job, piece), piece)


class LibraryReader:
    """A `SliceReader` on mysql-replication."""

    def __init__(self, job: IngestJob) -> None:
        self._job = job
        self._schemas = catalog_lookup(lambda: Session(job.mysql))

    def read(self, piece: Slice) -> Iterator[Block | SliceReport]:
        with Session(self._job.mysql) as session:
            is_mariadb, version = session.is_mariadb, session.version_number
        reader = ReferenceReader(
            dump_of(self._job, piece),
            is_mariadb=is_mariadb,
            version=version,
            server_uuid=self._job.window.server_uuid,
            router=self._job.route,
            schemas=self._schemas,
            format=self._job.format(),
        )
        return reader.read(piece)


def reader_of(job: IngestJob) -> SliceReader:
    """The reader that the pipeline names."""
    return KernelReader(job) if job.pipeline.reader == "kernel" else LibraryReader(job)
