"""The two `SliceReader` implementations: each opens the dump of a slice and decodes it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from changefeed.binlog.decoder import KernelDecoder
from changefeed.binlog.prepared_rows import PreparedRows
from changefeed.binlog.slice_reader import SliceReader
from changefeed.ddl.history import read_logged
from changefeed.ddl.schemas import Schemas
from changefeed.kafka.topics import TopicSettings
from changefeed.model.route import Route
from changefeed.model.slice_report import SliceReport
from changefeed.model.window import Slice
from changefeed.records.block import MessageBlock
from changefeed.source.mysql.catalog import catalog_lookup
from changefeed.source.mysql.session import server_of
from changefeed.spark.stages.decode_task import DecodeTask, SourceTask
from changefeed.spark.stages.dump import open_dump
from changefeed.spark.stages.earlier_slices import EarlierSlices
from changefeed.spark.stages.statement_changes import StatementChanges
from changefeed.spark.stages.statement_follower import StatementFollower

if TYPE_CHECKING:  # most pipelines have no functions
    from changefeed.transforms.finisher import TransformFinisher


class KernelReader:
    """A `SliceReader` with row programs and the kernel, which reuses row programs for later slices and tasks.

    It yields the records of a statement between the rows before and after the statement.
    """

    def __init__(self, task: DecodeTask) -> None:
        self._task, self._finisher = task, finisher_of(task)
        self._changes = StatementChanges(task)
        self._own: KernelDecoder | None = None

    def read(self, slice: Slice) -> Iterator[MessageBlock | SliceReport]:
        """The blocks of the slice, then its report."""
        decoder = self._own or _idle_decoders.pop(self._task.window_key, None) or self._new_decoder()
        follower = StatementFollower(self._task, slice, self._changes)
        decoder.programs.schema_lookup = follower.lookup
        decoder.programs.is_frozen = self._task.pipeline.freeze_schema
        decoder.programs.with_other_names = follower.with_other_names
        decoder.on_statement = follower.take
        decoder.prepared_rows = PreparedRows(EarlierSlices(self._task, slice, follower.lookup, self._finisher))
        number = 0
        for item in decoder.decode(open_dump(self._task, slice), slice):
            for block in (*follower.take_blocks(), *([item] if isinstance(item, MessageBlock) else [])):
                yield replace(block, number=number)
                number += 1
            if isinstance(item, SliceReport):
                yield (
                    item
                    if self._finisher is None
                    else replace(item, transformed_away=self._finisher.take_drop_counts())
                )
        if self._task.attempt and self._finisher is None and decoder.programs.are_lasting:
            _idle_decoders.clear()
            _idle_decoders[self._task.window_key] = decoder
        else:
            self._own = decoder

    def _new_decoder(self) -> KernelDecoder:
        task = self._task
        return KernelDecoder(
            task.route,
            lambda _database, _table: None,
            task.format(),
            task.server_uuid,
            columns=task.column_rules,
            block_bytes=task.pipeline.kafka.publish_settings.batch_bytes,
            finisher=self._finisher,
            transactions=_transactions_of(task),
        )


_idle_decoders: dict[Hashable, KernelDecoder] = {}
"""The decoder of the last window of this process, while no slice is read with it. It is kept because a worker needs as
long to compile the programs of the tables as to write the decoded messages. The programs have the window's time, server
and partitions in them, so another window, also one of the same attempt, needs another decoder."""


def _transactions_of(task: DecodeTask) -> Route | None:
    """The route of transaction records; None if the pipeline publishes none."""
    topic = task.connections.routes.transaction_topic
    return None if topic is None else Route(topic, task.topics.of(topic).partitions)


def finisher_of(task: SourceTask) -> TransformFinisher | None:
    """The transformer of rows for the pipeline's functions and outbox; None if it has neither."""
    if not task.pipeline.transforms and task.pipeline.outbox is None:
        return None
    from changefeed.transforms.finisher import TransformFinisher

    topics = task.pipeline.topics
    settings = TopicSettings(topics.partitions, topics.replication_factor, topics.configs)
    transactions = task.connections.routes.transaction_topic
    return TransformFinisher(
        task.connections.transform_calls,
        task.format(),
        task.column_rules,
        lambda topic: task.topics.ensure(topic, settings).partitions,
        suffix=topics.suffix,
        dead_letters=task.pipeline.dead_letter_topic,
        outbox=task.pipeline.outbox,
        reserved=() if transactions is None else (transactions,),
    )


class LibraryReader:
    """A `SliceReader` on mysql-replication."""

    def __init__(self, task: DecodeTask) -> None:
        self._task = task
        self._schemas = catalog_lookup(task.session)

    def read(self, slice: Slice) -> Iterator[MessageBlock | SliceReport]:
        """The blocks of the slice, then its report; raises SourceError for a change in statement format."""
        from changefeed.source.mysql.reference import ReferenceReader  # most pipelines use the kernel

        with self._task.session() as session:
            version, server = session.version_number, server_of(session)
        reader = ReferenceReader(
            open_dump(self._task, slice),
            is_mariadb=server.is_mariadb,
            version=version,
            server_uuid=self._task.server_uuid,
            router=self._task.route,
            schemas=self._schemas,
            format=self._task.format(),
        )
        changes = StatementChanges(self._task)
        for item in reader.read(slice):
            for statement in item.statements if isinstance(item, SliceReport) else ():
                read = read_logged(statement, server, {})
                if read.changes_rows and changes.find_touched(statement, read, Schemas())[1]:
                    raise changes.refusal(statement, "`reader: reference` does not publish statements")
            yield item


def reader_of(task: DecodeTask) -> SliceReader:
    """The reader of the pipeline's setting `reader`."""
    return KernelReader(task) if task.pipeline.reader == "kernel" else LibraryReader(task)
