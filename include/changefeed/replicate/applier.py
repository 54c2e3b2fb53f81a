"""Applies records to a follower in the source's commit order. A commit has several transactions and the position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from changefeed.formats.reader import Envelope, Envelopes
from changefeed.kafka.progress import TopicPartition
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.native.memory import Words
from changefeed.records.block import ForeignKeys
from changefeed.records.index_kernel import FOREIGN_KEYS, GTID, STEP_BITS, VALUE, VALUE_END
from changefeed.replicate.block import OrderedRecords, PackedOrder, pack_order
from changefeed.replicate.commits import Commits
from changefeed.replicate.ddl_runner import DdlRunner
from changefeed.replicate.follower_tables import FollowerTables
from changefeed.replicate.row_texts import RowTexts
from changefeed.replicate.sealed_range import SealedRange
from changefeed.replicate.source_order import ChangeId
from changefeed.replicate.statements import ChangeStatement, Statements
from changefeed.replicate.table_changes import TableChanges

_NO_CHANGE_OF_ROWS = frozenset({"t", "r"})
"""The ops that the applier skips: a TRUNCATE also comes as DDL, and `filler` applies the rows of snapshots."""

_INNODB, _LOGGED, _UNCHECKED = (
    ord(flags.name[0].lower()) for flags in (ForeignKeys.INNODB, ForeignKeys.LOGGED, ForeignKeys.UNCHECKED)
)
"""Values of the index word FOREIGN_KEYS, from a record's header."""


@dataclass
class AppliedCounts:
    """The numbers of row changes by table, of DDL statements and of changes in statement format that were applied."""

    tables: Counter[tuple[str, str]] = field(default_factory=Counter)
    ddl_statements: int = 0
    statements: int = 0
    expected_rows: int = 0
    """About how many row changes the run applies; 0 if it is not known."""

    @property
    def rows(self) -> int:
        """The number of row changes of all tables."""
        return self.tables.total()


@dataclass
class Applier:
    """Applies records to a follower: rows to its ``tables``, in transactions of ``commits``.

    - ``ddl_runner``: runs the records of ``ddl_topic``.
    - ``statements``: runs the changes in statement format.
    - ``read_envelopes``: reads the values of records. With ``reads_texts``, the kernel may read values of the formats
      that it supports.
    """

    commits: Commits
    tables: FollowerTables
    ddl_runner: DdlRunner
    read_envelopes: Envelopes
    statements: Statements
    ddl_topic: str = ""
    reads_texts: bool = True
    counts: AppliedCounts = field(default_factory=AppliedCounts)
    _table_of: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By topic, the table of the last row that was read from it."""
    _last: tuple[PackedOrder, int] | None = None
    """The commit order and GTID of the last record."""
    _deleted: tuple[PackedOrder, Envelope, bool] | None = None
    """A delete that is not applied yet, and whether it cascades to rows of other tables.

    It may be the first half of a change of key. Both halves must be applied as one UPDATE: foreign keys update rows of
    other tables with the key, and a partial image does not have all columns of the row.
    """

    def take(self, block: OrderedRecords, sealed_range: SealedRange, offsets: Mapping[TopicPartition, int]) -> None:
        """Apply the records of ``block``, which is in ``sealed_range``, now or with a later commit.

        ``offsets`` are the partitions' offsets before the block, or earlier ones. After an error, the follower is at a
        commit of the source.

        Raises FollowerError if the follower refuses a statement, AccountingError if a row is missing on the follower,
        and BadRecordError or SchemaError for records that do not match its tables.
        """
        commits = np.array(sorted(pack_order(order)[0] for order in sealed_range.commits), np.int64)
        may_commit = block.commits_before(self._last, commits)
        ddl = [topic == self.ddl_topic for topic in block.topics]
        defines = np.flatnonzero(np.array(ddl, np.bool_)[block.topic]).tolist()
        first, count = 0, len(block)
        while first < count:
            if self.commits.is_full and may_commit[first] and self.commits.end_of_changes is not None:
                self.commit_here(offsets)
            if defines and defines[0] == first:
                self._run_ddl(block.ddl(first), block.change_id(defines.pop(0)))
                last = first + 1
            else:
                last = self._end(first, defines[0] if defines else count, may_commit)
                self._change(block, first, last)
            self._last = block.order(last - 1), int(block.words[last - 1, GTID])
            change = block.change_id(last - 1)
            # One byte after the beginning of an event is a position after its changes and before the next event.
            self.commits.end_of_changes = BinlogCoordinates(change.file, change.order.position + 1)
            first = last

    def _end(self, first: int, last: int, may_commit: Sequence[bool]) -> int:
        """The number of the record at which to check again whether to commit, at most ``last``.

        It is the first commit of the source at which the follower's transaction is full.
        """
        end = first + max(self.commits.rows_left, 1)
        while end < last and not may_commit[end]:
            end += 1
        return min(end, last)

    def _run_ddl(self, value: bytes, change: ChangeId) -> None:
        self._resolve_delete(None)
        if self.ddl_runner.run_record(value, BinlogCoordinates(change.file, change.order.position)):
            self._table_of.clear()
            self.counts.ddl_statements += 1

    def commit(self, to: BinlogCoordinates, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Write all pending changes and commit them with the position ``to``."""
        self._write()
        self._last = None
        self.commits.commit(to, offsets)

    def commit_here(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit after the last change, which is at a commit of the source."""
        self.commit(self.commits.end_of_changes or self.commits.position.coordinates, offsets)

    def finish(self, watermark: BinlogCoordinates, offsets: Mapping[TopicPartition, int]) -> None:
        """Write and commit all pending changes. Afterwards the follower is at ``watermark``."""
        self._write()
        self.commits.finish(watermark, offsets)

    def count(self, table: tuple[str, str], rows: int) -> None:
        """Add ``rows`` to the number of rows of ``table`` that were written in the open transaction."""
        self.commits.uncommitted_rows += rows
        self.commits.uncommitted[table] += rows
        self.counts.tables[table] += rows

    def forget_tables(self) -> None:
        """Read table definitions again from now on. No change may be pending."""
        self.tables.forget()
        self._table_of.clear()

    # --- rows

    def _change(self, block: OrderedRecords, first: int, last: int) -> None:
        """Apply row changes: table by table if the kernel can write their SQL, else one by one.

        The order between tables matters only if foreign keys cascade. If they do, all changes are applied in order,
        except rows that did not cascade, or whose cascaded changes the source logged, according to their headers.
        """
        self._resolve_delete(block.order(first))
        texts: list[tuple[TableChanges, RowTexts]] = []
        others: list[Words] = []
        numbers = block.topic[first:last]
        values = block.words[first:last, [VALUE, VALUE_END]]
        cascades = self._cascades(block.words[first:last, FOREIGN_KEYS])
        for topic in np.unique(numbers).tolist():
            chosen = np.flatnonzero(numbers == topic)
            known = self._table_of.get(block.topics[topic]) or self._learn_table(block, first + int(chosen[0]), topic)
            changes = self.tables.changes_of(*known) if known else None
            in_order = known is not None and bool(cascades[chosen].any()) and self.tables.has_cascades(*known)
            reads_texts = self.reads_texts and not in_order
            created = changes.texts_of(block.data, values[chosen]) if changes and reads_texts else None
            if changes and created:
                texts.append((changes, created))
            else:
                others.append(chosen)
        one_by_one = np.sort(np.concatenate(others)).tolist() if others else []
        read = list(self._read_each(block, first, one_by_one, cascades))
        is_ordered = any(in_order for _, _, in_order in read)
        has_statements = any(change.op == "q" for _, change, _ in read)
        if texts and (self._deleted is not None or has_statements or is_ordered):
            read = list(self._read_each(block, first, range(last - first), cascades))
            texts = []
        for changes, created in texts:
            changes.take_texts(created)
            self.count((changes.table.database, changes.table.table), len(created.words))
        for order, change, in_order in read:
            self._resolve_delete(order)
            self._take(order, change, in_order=in_order)

    def _cascades(self, flags: Words) -> np.typing.NDArray[np.bool_]:
        """For each record, whether foreign keys may have changed rows of other tables that are in no record."""
        if self.tables.logs_cascades:
            return np.equal(flags, _INNODB)
        return np.isin(flags, (_LOGGED, _UNCHECKED), invert=True)

    def _in_order(self, cascades: bool, change: Envelope) -> bool:
        """Whether the row change also changes rows of other tables. ``cascades`` says whether its header allows it."""
        return bool(cascades) and change.op != "q" and self.tables.has_cascades(change.database, change.table)

    def _read_each(
        self, block: OrderedRecords, first: int, numbers: Iterable[int], cascades: np.typing.NDArray[np.bool_]
    ) -> Iterator[tuple[PackedOrder, Envelope, bool]]:
        """Yield commit order and change of each row in the records ``first`` + ``numbers``, and whether it cascades.

        Rows that share a record get consecutive orders.
        """
        for number in numbers:
            event, own, row = block.order(first + number)
            for step, change in enumerate(self._read(block.value(first + number))):
                in_order = self._in_order(cascades[number], change)
                yield (event, own, row + (step << STEP_BITS)), change, in_order

    def _learn_table(self, block: OrderedRecords, number: int, topic: int) -> tuple[str, str] | None:
        """The table of a record, which is stored as the table of its topic; None if the record is not applied."""
        change = next(iter(self._read(block.value(number))), None)
        if change is None:
            return None
        self._table_of[block.topics[topic]] = change.database, change.table
        return change.database, change.table

    def _read(self, value: bytes) -> list[Envelope]:
        """The row changes of a value that are applied. DDL is left out, because it comes from its own topic."""
        return [change for change in self.read_envelopes(value) if self._is_applied(change)]

    def _is_applied(self, change: Envelope) -> bool:
        if (
            change.op == "q"
            and not self.tables.scope.follows(change.database)
            and self._may_write_followed_databases(change)
        ):
            raise ChangeStatement.of(change).refusal("it may also write databases that are followed")
        if change.op in _NO_CHANGE_OF_ROWS or not self.tables.scope.follows(change.database):
            return False
        is_skipped = self.tables.is_skipped(change.database, change.table)
        if change.op == "q":
            self.statements.check(change, is_skipped=is_skipped)
        return not is_skipped

    def _may_write_followed_databases(self, change: Envelope) -> bool:
        """Whether a change in statement format of a database that is not followed may write one that is followed."""
        if len(change.fields.get("tables") or ()) != 1 or change.fields.get("doubt"):
            return True
        children = self.tables.cascades_to(change.database, change.table)
        return any(self.tables.scope.follows(child.database) for child in children)

    def _take(self, order: PackedOrder, change: Envelope, *, in_order: bool) -> None:
        changes = self.tables.changes_of(change.database, change.table)
        change = changes.without_hidden_columns(change)
        if change.op == "q":
            self.tables.write()
            ran = self.statements.run(change, changes)
            self.commits.uncommitted_rows += ran
            self.counts.statements += ran
            return
        if change.op == "d" and (in_order or not changes.is_mergeable(change)):
            self._deleted = order, change, in_order
            return
        if self._deleted is not None:
            change = replace(change, op="u", before=self._deleted[1].before)
            in_order = self._deleted[2]
            self._deleted = None
        self._apply(change, in_order=in_order)

    def _resolve_delete(self, following: PackedOrder | None) -> None:
        """Apply the pending delete, unless the change at ``following`` is the second half of the same row change."""
        if self._deleted is not None:
            order, change, in_order = self._deleted
            if following is None or _row(following) != _row(order):
                self._deleted = None
                self._apply(change, in_order=in_order)

    def _apply(self, change: Envelope, *, in_order: bool) -> None:
        changes = self.tables.changes_of(change.database, change.table)
        if in_order:
            self.tables.write()
        changes.take(change, in_order=in_order)
        self.count((change.database, change.table), 1)

    def _write(self) -> None:
        self._resolve_delete(None)
        self.tables.write()


def _row(order: PackedOrder) -> tuple[int, int, int]:
    """The commit order of the row, without the step within it."""
    return order[0], order[1], order[2] >> STEP_BITS
