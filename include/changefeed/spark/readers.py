"""The two readers of a slice, put together: the dump stream of its own connection, and what decodes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from changefeed.binlog.decoder import KernelDecoder
from changefeed.binlog.prepared_rows import PreparedRows
from changefeed.block import Block
from changefeed.ddl.history import read_logged
from changefeed.ddl.schemas import Schemas
from changefeed.kafka.topics import TopicSettings
from changefeed.mysql.catalog import catalog_lookup
from changefeed.mysql.reference import ReferenceReader
from changefeed.mysql.server_schemas import server_of
from changefeed.reader import Route, SliceReader, SliceReport
from changefeed.spark.dump import dump_of
from changefeed.spark.earlier_slices import EarlierSlices
from changefeed.spark.job import IngestJob
from changefeed.spark.publish import dead_letters_of
from changefeed.spark.statement_changes import StatementChanges
from changefeed.spark.statement_follower import StatementFollower
from changefeed.topic_name import check_chosen_name
from changefeed.transforms.finisher import TransformFinisher
from changefeed.window import Slice


class KernelReader:
    """A `SliceReader` on row programs and the kernel; programs made for one slice serve the next, also in the task
    after it.

    Records of statements stand between the rows before and after them.
    """

    def __init__(self, job: IngestJob) -> None:
        self._job, self._finisher = job, finisher_of(job)
        self._changes = StatementChanges(job)
        self._own: KernelDecoder | None = None

    def read(self, piece: Slice) -> Iterator[Block | SliceReport]:
        """The slice's blocks, then its report."""
        decoder = self._own or _kept.pop(self._job.attempt, None) or self._new_decoder()
        follower = StatementFollower(self._job, piece, self._changes)
        decoder.programs.schema_lookup = follower.lookup
        decoder.programs.with_other_names = follower.with_other_names
        decoder.on_statement = follower.take
        decoder.prepared_rows = PreparedRows(EarlierSlices(self._job, piece, follower.lookup, self._finisher))
        number = 0
        for item in decoder.decode(dump_of(self._job, piece), piece):
            for block in (*follower.taken(), *([item] if isinstance(item, Block) else [])):
                yield replace(block, number=number)
                number += 1
            if isinstance(item, SliceReport):
                yield item if self._finisher is None else replace(item, transformed_away=self._finisher.taken_counts())
        if self._job.attempt and self._finisher is None and decoder.programs.are_lasting:
            _kept.clear()
            _kept[self._job.attempt] = decoder
        else:
            self._own = decoder

    def _new_decoder(self) -> KernelDecoder:
        job = self._job
        return KernelDecoder(
            job.route,
            lambda _database, _table: None,
            job.format(),
            job.window.server_uuid,
            columns=job.endpoints.column_rules,
            block_bytes=job.pipeline.kafka.publishing.batch_bytes,
            finisher=self._finisher,
            transactions=_transactions_of(job),
        )


_kept: dict[str, KernelDecoder] = {}
"""The decoder of the attempt that this process worked for last, while no slice is read with it. To make the programs of
its tables anew for each task took a worker as long as to write what it decoded."""


def _transactions_of(job: IngestJob) -> Route | None:
    """Where the records of transactions go."""
    topic = job.pipeline.transaction_topic
    return None if topic is None else Route(topic, job.topics.of(topic).partitions)


def finisher_of(job: IngestJob) -> TransformFinisher | None:
    """What makes messages of the rows that the pipeline's functions are for; None for a pipeline without any."""
    if not job.pipeline.transforms and job.pipeline.outbox is None:
        return None

    topics = job.pipeline.topics
    settings = TopicSettings(topics.partitions, topics.replication_factor, topics.configs)

    def partitions(topic: str) -> int:
        if topic not in job.topics.known:
            check_chosen_name(topic)
        return job.topics.made(topic, settings).partitions

    return TransformFinisher(
        job.endpoints.transform_calls,
        job.format(),
        job.endpoints.column_rules,
        partitions,
        suffix=topics.suffix,
        dead_letters=dead_letters_of(job.pipeline),
        outbox=job.pipeline.outbox,
    )


class LibraryReader:
    """A `SliceReader` on mysql-replication."""

    def __init__(self, job: IngestJob) -> None:
        self._job = job
        self._schemas = catalog_lookup(job.session)

    def read(self, piece: Slice) -> Iterator[Block | SliceReport]:
        """The slice's blocks, then its report; raises SourceError for a change in statement format."""
        with self._job.session() as session:
            version, server = session.version_number, server_of(session)
        reader = ReferenceReader(
            dump_of(self._job, piece),
            is_mariadb=server.is_mariadb,
            version=version,
            server_uuid=self._job.window.server_uuid,
            router=self._job.route,
            schemas=self._schemas,
            format=self._job.format(),
        )
        changes = StatementChanges(self._job)
        for item in reader.read(piece):
            for statement in item.statements if isinstance(item, SliceReport) else ():
                read = read_logged(statement, server, {})
                if read.changes_rows and changes.touched(statement, read, Schemas())[1]:
                    raise changes.refusal(statement, "`reader: reference` makes no records of statements")
            yield item


def reader_of(job: IngestJob) -> SliceReader:
    """The reader that the pipeline names."""
    return KernelReader(job) if job.pipeline.reader == "kernel" else LibraryReader(job)
