"""Applies records to a follower: transactions of the source in their order, some as one, the position with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from changefeed.formats.reader import Envelope, Envelopes
from changefeed.kafka.progress import TopicPartition
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.native.memory import Words
from changefeed.records.block import ForeignKeys
from changefeed.records.index_kernel import FOREIGN_KEYS, GTID, STEP_BITS, VALUE, VALUE_END
from changefeed.replicate.block import OrderedRecords, Packed, packed
from changefeed.replicate.commits import Commits
from changefeed.replicate.definition_runner import DefinitionRunner
from changefeed.replicate.follower_tables import FollowerTables
from changefeed.replicate.row_texts import RowTexts
from changefeed.replicate.sealed import SealedStretch
from changefeed.replicate.source_order import ChangeId
from changefeed.replicate.statements import ChangeStatement, Statements
from changefeed.replicate.table_changes import TableChanges

_NO_CHANGE_OF_ROWS = frozenset({"t", "r"})
"""Truncates come as definitions, too; rows that a SELECT read are for tables that a snapshot fills (`filler`)."""

_INNODB, _LOGGED, _UNCHECKED = (
    ord(said.name[0].lower()) for said in (ForeignKeys.INNODB, ForeignKeys.LOGGED, ForeignKeys.UNCHECKED)
)
"""As records' index has what their header says of foreign keys."""


@dataclass
class Applied:
    """What was applied: row changes, definitions, and changes in statement format."""

    rows: int = 0
    definitions: int = 0
    statements: int = 0


@dataclass
class Applier:
    """Applies what it is given to a follower: rows to its ``tables``, with ``commits``.

    ``definitions`` runs the records of ``definitions_topic``, ``statements`` changes in statement format. Values are
    read by ``read_envelopes``; with ``reads_texts`` the kernel may read those that it knows.
    """

    commits: Commits
    tables: FollowerTables
    definitions: DefinitionRunner
    read_envelopes: Envelopes
    statements: Statements
    definitions_topic: str = ""
    reads_texts: bool = True
    applied: Applied = field(default_factory=Applied)
    _table_of: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Of a topic: the table that it had a row of last."""
    _last: tuple[Packed, int] | None = None
    """Turn and GTID of the last record."""
    _deleted: tuple[Packed, Envelope, bool] | None = None
    """A delete, and whether it takes rows of other tables along. It may be the first half of a change of key, and is to
    be one statement with the other: rows of other tables follow a key, and a partial image does not say the rest of the
    row."""

    def take(self, block: OrderedRecords, stretch: SealedStretch, offsets: Mapping[TopicPartition, int]) -> None:
        """Apply the records of ``block``, which is of ``stretch``, now or with a later commit, in the queue.

        ``offsets`` are those before it, or earlier. Raises FollowerError for what the follower refuses, AccountingError
        where it lacks a row, BadRecordError and SchemaError for records that do not fit its tables. It stands at a
        commit of the source then.
        """
        commits = np.array(sorted(packed(turn)[0] for turn in stretch.commits), np.int64)
        may_commit = block.changes_transaction(self._last, commits)
        definition = [topic == self.definitions_topic for topic in block.topics]
        defines = np.flatnonzero(np.array(definition, np.bool_)[block.topic]).tolist()
        first, count = 0, len(block)
        while first < count:
            if self.commits.is_full and may_commit[first] and self.commits.reached is not None:
                self.commit_here(offsets)
            if defines and defines[0] == first:
                self._define(block.definition(first), block.change_id(defines.pop(0)))
                last = first + 1
            else:
                last = self._end(first, defines[0] if defines else count, may_commit)
                self._change(block, first, last)
            self._last = block.turn(last - 1), int(block.words[last - 1, GTID])
            change = block.change_id(last - 1)
            # All changes up to this one are before it: no event begins one byte behind the beginning of another.
            self.commits.reached = BinlogCoordinates(change.file, change.turn.position + 1)
            first = last

    def _end(self, first: int, last: int, may_commit: Sequence[bool]) -> int:
        """Where to look again whether to commit: at the first commit of the source where the transaction is full."""
        end = first + max(self.commits.rows_left, 1)
        while end < last and not may_commit[end]:
            end += 1
        return min(end, last)

    def _define(self, value: bytes, change: ChangeId) -> None:
        self._settle_delete(None)
        if self.definitions.is_run(value, BinlogCoordinates(change.file, change.turn.position)):
            self._table_of.clear()
            self.applied.definitions += 1

    def commit(self, to: BinlogCoordinates, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Have what is held written and committed, with the position ``to``."""
        self._write()
        self._last = None
        self.commits.commit(to, offsets)

    def commit_here(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit at a commit of the source, where the last change is."""
        self.commit(self.commits.reached or self.commits.position.coordinates, offsets)

    def finish(self, watermark: BinlogCoordinates, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit what is left: the follower stands at ``watermark`` then."""
        self._write()
        self.commits.finish(watermark, offsets)

    def count(self, rows: int) -> None:
        """Count rows that were written in the transaction that is open."""
        self.commits.held += rows
        self.applied.rows += rows

    def forget_tables(self) -> None:
        """Tables may be others from now on; nothing is held."""
        self.tables.forget()
        self._table_of.clear()

    # --- rows

    def _change(self, block: OrderedRecords, first: int, last: int) -> None:
        """Apply row changes: table by table where the kernel knows their SQL, else one by one.

        Tables do not hang together but by foreign keys that cascade; where one has such, all is in order, but for rows
        of which the source says that they took none along, or that it logged those.
        """
        self._settle_delete(block.turn(first))
        texts: list[tuple[TableChanges, RowTexts]] = []
        others: list[Words] = []
        numbers = block.topic[first:last]
        values = block.words[first:last, [VALUE, VALUE_END]]
        cascades = self._cascades(block.words[first:last, FOREIGN_KEYS])
        for topic in np.unique(numbers).tolist():
            chosen = np.flatnonzero(numbers == topic)
            known = self._table_of.get(block.topics[topic]) or self._learned(block, first + int(chosen[0]), topic)
            changes = self.tables.changes_of(*known) if known else None
            in_order = known is not None and bool(cascades[chosen].any()) and self.tables.takes_along(*known)
            reads_texts = self.reads_texts and not in_order
            made = changes.texts_of(block.data, values[chosen]) if changes and reads_texts else None
            if changes and made:
                texts.append((changes, made))
            else:
                others.append(chosen)
        one_by_one = np.sort(np.concatenate(others)).tolist() if others else []
        read = list(self._read_each(block, first, one_by_one, cascades))
        is_ordered = any(in_order for _, _, in_order in read)
        has_statements = any(change.op == "q" for _, change, _ in read)
        if texts and (self._deleted is not None or has_statements or is_ordered):
            read = list(self._read_each(block, first, range(last - first), cascades))
            texts = []
        for changes, made in texts:
            changes.take_texts(made)
            self.count(len(made.words))
        for turn, change, in_order in read:
            self._settle_delete(turn)
            self._take(turn, change, in_order=in_order)

    def _cascades(self, said: Words) -> np.typing.NDArray[np.bool_]:
        """Whether foreign keys changed rows of other tables with each row, which are in no record."""
        if self.tables.logs_cascades:
            return np.equal(said, _INNODB)
        return np.isin(said, (_LOGGED, _UNCHECKED), invert=True)

    def _in_order(self, cascades: bool, change: Envelope) -> bool:
        """Whether rows of other tables change with that of ``change``, if foreign keys do anything at all there."""
        return bool(cascades) and change.op != "q" and self.tables.takes_along(change.database, change.table)

    def _read_each(
        self, block: OrderedRecords, first: int, numbers: Iterable[int], cascades: np.typing.NDArray[np.bool_]
    ) -> Iterator[tuple[Packed, Envelope, bool]]:
        """The changes of the records ``numbers`` behind the one with number ``first``, each with its turn and whether
        it takes rows of other tables along: rows that share a record follow each other."""
        for number in numbers:
            event, own, row = block.turn(first + number)
            for behind, change in enumerate(self._read(block.value(first + number))):
                in_order = self._in_order(cascades[number], change)
                yield (event, own, row + (behind << STEP_BITS)), change, in_order

    def _learned(self, block: OrderedRecords, number: int, topic: int) -> tuple[str, str] | None:
        """The table of a record, which the others of its topic probably are of too; None where it is not applied."""
        change = next(iter(self._read(block.value(number))), None)
        if change is None:
            return None
        self._table_of[block.topics[topic]] = change.database, change.table
        return change.database, change.table

    def _read(self, value: bytes) -> list[Envelope]:
        """The changes of rows of a database that is followed; none of a definition, which comes with its own topic."""
        return [change for change in self.read_envelopes(value) if self._is_applied(change)]

    def _is_applied(self, change: Envelope) -> bool:
        if change.op == "q" and not self.tables.scope.follows(change.database) and self._reaches(change):
            raise ChangeStatement.of(change).refusal("it may write databases that are followed beside others")
        if change.op in _NO_CHANGE_OF_ROWS or not self.tables.scope.follows(change.database):
            return False
        is_skipped = self.tables.is_skipped(change.database, change.table)
        if change.op == "q":
            self.statements.check(change, is_skipped=is_skipped)
        return not is_skipped

    def _reaches(self, change: Envelope) -> bool:
        """Whether a change in statement format of another database may write one that is followed."""
        if len(change.fields.get("tables") or ()) != 1 or change.fields.get("doubt"):
            return True
        children = self.tables.cascades_to(change.database, change.table)
        return any(self.tables.scope.follows(child.database) for child in children)

    def _take(self, turn: Packed, change: Envelope, *, in_order: bool) -> None:
        changes = self.tables.changes_of(change.database, change.table)
        change = changes.of_own_columns(change)
        if change.op == "q":
            self.tables.write()
            ran = self.statements.run(change, changes)
            self.commits.held += ran
            self.applied.statements += ran
            return
        if change.op == "d" and (in_order or not changes.joins(change)):
            self._deleted = turn, change, in_order
            return
        if self._deleted is not None:
            change = replace(change, op="u", before=self._deleted[1].before)
            in_order = self._deleted[2]
            self._deleted = None
        self._apply(change, in_order=in_order)

    def _settle_delete(self, following: Packed | None) -> None:
        """Apply the delete that is kept, unless the change with turn ``following`` is the same row with another key."""
        if self._deleted is not None:
            turn, change, in_order = self._deleted
            if following is None or _row(following) != _row(turn):
                self._deleted = None
                self._apply(change, in_order=in_order)

    def _apply(self, change: Envelope, *, in_order: bool) -> None:
        changes = self.tables.changes_of(change.database, change.table)
        if in_order:
            self.tables.write()
        changes.take(change, in_order=in_order)
        self.count(1)

    def _write(self) -> None:
        self._settle_delete(None)
        self.tables.write()


def _row(turn: Packed) -> tuple[int, int, int]:
    """The row of the event, without the step."""
    return turn[0], turn[1], turn[2] >> STEP_BITS
