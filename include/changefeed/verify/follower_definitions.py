"""Compares the table definitions of a follower and its source."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from changefeed.model.identifier import quote_name
from changefeed.model.table_schema import Column
from changefeed.source.mysql import source
from changefeed.source.mysql.catalog import table_schema
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.table_definition import DefinitionReader, Part, TableDefinition
from changefeed.verify.job import VerifyJob
from changefeed.verify.positions import read_follower_position

_LOOK_SECONDS = 2.0

TableName = tuple[str, str]


@dataclass(frozen=True)
class Difference:
    """A difference in the part ``what``: its value on the source and on the follower; '' for no value."""

    what: str
    source: str
    follower: str

    def __str__(self) -> str:
        return f"{self.what}: {self.source or 'nothing'} on the source, {self.follower or 'nothing'} on the follower"


@dataclass(frozen=True)
class DefinitionComparison:
    """The differences between two table definitions, and notes on the parts that could not be compared."""

    differences: tuple[Difference, ...]
    notes: tuple[str, ...]


_NO_TABLE = "no such table"
_NO_TRIGGER = "no trigger that the pipeline's user may see (privilege TRIGGER)"


def compare_definitions(source: TableDefinition | None, follower: TableDefinition | None) -> DefinitionComparison:
    """Return the differences between two table definitions. None means that the table does not exist."""
    if source is None or follower is None:
        same = source is follower
        table_difference = Difference("table", _table_text(source), _table_text(follower))
        return DefinitionComparison(() if same else (table_difference,), ())
    is_other_vendor = source.is_mariadb != follower.is_mariadb
    differences: list[Difference] = []
    notes: list[str] = []
    for what in [*source.parts, *(what for what in follower.parts if what not in source.parts)]:
        mine, its = source.parts.get(what), follower.parts.get(what)
        if mine is None or its is None:
            if is_other_vendor and what.startswith("check "):
                notes.append(_vendor_note(what))
            else:
                differences.append(Difference(what, _line(mine), _line(its)))
            continue
        if what == "sequence" and not (mine and its):
            notes.append("not compared: the sequence's increment, bounds and cache, as the user may not SELECT it")
            continue
        for name, one in mine.items():
            other = its[name]
            if one.normal == other.normal:
                continue
            if is_other_vendor and (one.is_expression or other.is_expression):
                notes.append(_vendor_note(f"{what}: {name}"))
            else:
                differences.append(Difference(f"{what}: {name}", one.shown, other.shown))
    if not differences and not is_other_vendor and source.version == follower.version:
        if source.shown and follower.shown:
            differences += _text_differences(source, follower)
        else:
            notes.append(
                "not compared: parts that only SHOW CREATE TABLE has, as a server does not show them to the user"
            )
    differences += _trigger_differences(source, follower)
    notes += [
        f"the follower does not have the source's trigger {quote_name(name)}: followers need none, as the binlog has "
        "the rows that triggers changed"
        for name in source.triggers
        if name not in follower.triggers
    ]
    return DefinitionComparison(tuple(differences), tuple(notes))


def _trigger_differences(source: TableDefinition, follower: TableDefinition) -> Iterator[Difference]:
    for name, its in follower.triggers.items():
        mine = source.triggers.get(name)
        if mine is None or mine.normal != its.normal:
            yield Difference(f"trigger {quote_name(name)}", _NO_TRIGGER if mine is None else mine.shown, its.shown)
    orders = [_trigger_order(one.triggers, other.triggers) for one, other in ((source, follower), (follower, source))]
    for of_what, mine_first in orders[0].items():
        if (its_first := orders[1].get(of_what, mine_first)) != mine_first:
            yield Difference(f"order of triggers {of_what}", ", ".join(mine_first), ", ".join(its_first))


def _trigger_order(triggers: Part, others: Part) -> dict[str, list[str]]:
    """By timing and event, the triggers that ``others`` has with the same text, in the order of their execution."""
    order: dict[str, list[str]] = {}
    for name, trigger in triggers.items():
        if name in others and others[name].normal == trigger.normal:
            order.setdefault(" ".join(trigger.shown.split(" ", 2)[:2]), []).append(quote_name(name))
    return order


def _text_differences(source: TableDefinition, follower: TableDefinition) -> Iterator[Difference]:
    """Yield the first difference between the outputs of SHOW CREATE TABLE of two servers of the same version.

    They have parts that `information_schema` does not have: the order of indexes, their parsers, WITH SYSTEM
    VERSIONING.
    """
    for mine, its in zip_longest(source.shown, follower.shown, fillvalue=""):
        if mine != its:
            yield Difference("SHOW CREATE TABLE", mine.strip(), its.strip())
            return


def _table_text(table: TableDefinition | None) -> str:
    if table is None:
        return _NO_TABLE
    return f"a table with columns {table.parts['columns']['order'].shown}"


def _line(part: Part | None) -> str:
    return "" if part is None else " ".join(each.shown for each in part.values() if each.shown) or "there"


def _vendor_note(what: str) -> str:
    return f"not compared: {what}, because MySQL and MariaDB write it in different forms"


# --- characters with two encodings in a charset

_DOUBLED = frozenset({"cp932", "eucjpms", "sjis", "ujis", "big5", "gbk", "gb2312", "gb18030", "euckr"})
"""Charsets with several encodings of one Unicode character."""
_TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})


def doubled_characters(session: Session, database: str, table: str) -> Iterator[Difference]:
    """Yield a difference for each column of the source's table whose bytes a conversion to Unicode and back changes.

    It has the number of rows.

    Records contain Unicode text, so a follower stores the converted bytes.
    """
    schema = table_schema(session, database, table)
    charsets = {column: _charset(column) for column in schema.columns} if schema is not None else {}
    columns = [column for column, charset in charsets.items() if charset in _DOUBLED and not column.generated]
    if not columns:
        return
    counts = session.row(
        f"SELECT {', '.join(_other_bytes(column.name, charsets[column]) for column in columns)} "
        f"FROM {quote_name(database)}.{quote_name(table)}"
    )
    for column, count in zip(columns, counts, strict=True):
        if count:
            rows = f"{int(count):,} rows with characters that have two encodings in {charsets[column]}"
            yield Difference(f"column {quote_name(column.name)}: bytes", rows, "the bytes that Unicode is converted to")


def _charset(column: Column) -> str:
    return (column.collation or "").partition("_")[0] if column.data_type in _TEXTS else ""


def _other_bytes(name: str, charset: str) -> str:
    there = f"CONVERT(CONVERT({quote_name(name)} USING utf8mb4) USING {charset})"
    return f"SUM(CAST({quote_name(name)} AS BINARY) <> CAST({there} AS BINARY))"


# --- the position of the follower


@dataclass(frozen=True)
class DefinitionResult:
    """The ``comparison`` of a table, and the ``reason`` why it is incomplete, or ''."""

    comparison: DefinitionComparison
    reason: str = ""


def compare_follower_definitions(job: VerifyJob) -> dict[TableName, DefinitionResult]:
    """By table, compare its definition on the follower with its definition on the source.

    DDL that the follower still has to apply is not a difference. So a definition that differs is read again until the
    follower has reached the source's position, for at most ``job.wait_seconds``.
    """
    deadline = time.monotonic() + job.wait_seconds
    found: dict[TableName, DefinitionResult] = {}
    with job.connections.session() as at_source, job.session() as at_follower:
        readers = DefinitionReader(at_source), DefinitionReader(at_follower)
        left = list(job.names)
        while left:
            mine = {name: readers[0].read(*name) for name in left}
            until = _FollowerProgress.of(job, at_source, at_follower)
            its = {name: readers[1].read(*name) for name in left}
            is_last = until.never or time.monotonic() >= deadline
            for name in left:
                compared = compare_definitions(mine[name], its[name])
                if not compared.differences:
                    compared = DefinitionComparison(tuple(doubled_characters(at_source, *name)), compared.notes)
                    found[name] = _result_of_equal(mine[name], its[name], compared, until)
                elif until.reached and mine[name] == readers[0].read(*name):
                    found[name] = DefinitionResult(compared)
                elif is_last:
                    found[name] = DefinitionResult(DefinitionComparison((), compared.notes), until.words(compared))
            left = [name for name in left if name not in found]
            if left:
                time.sleep(_LOOK_SECONDS)
    return found


@dataclass(frozen=True)
class _FollowerProgress:
    """The follower's position ``at``, and whether it has ``reached`` the source's position ``until``."""

    until: str
    at: str
    reached: bool
    never: bool
    """Whether the positions cannot be compared, because the follower follows another server's binlog."""

    @classmethod
    def of(cls, job: VerifyJob, at_source: Session, at_follower: Session) -> _FollowerProgress:
        until = source.head(at_source).coordinates
        position = read_follower_position(at_follower, job.connections.pipeline.name)
        at, uuid = position.coordinates, source.server_uuid(at_source)
        same = position.server_uuid == uuid and at.base == until.base
        return cls(str(until), str(at), same and at >= until, not same)

    def words(self, compared: DefinitionComparison) -> str:
        first = compared.differences[0]
        return (
            f"its definition differs ({first}), and DDL may be still to be applied: the follower is at {self.at}, and "
            f"the source's definition was read at {self.until}. Run `changefeed replicate` and verify again"
        )


def _result_of_equal(
    mine: TableDefinition | None, its: TableDefinition | None, compared: DefinitionComparison, until: _FollowerProgress
) -> DefinitionResult:
    if mine is None or its is None or mine.next_number is None or its.next_number is None:
        return DefinitionResult(compared)
    if its.next_number >= mine.next_number:
        return DefinitionResult(compared)
    numbers = f"its next AUTO_INCREMENT is {its.next_number} on the follower and {mine.next_number} on the source"
    if not until.reached:
        note = f"not compared: {numbers}; the source is at {until.until}, the follower at {until.at}"
        return DefinitionResult(DefinitionComparison((), (*compared.notes, note)))
    return DefinitionResult(
        compared,
        f"{numbers}: the numbers between them may belong to deleted rows, or to rolled-back statements, which the "
        f"binlog does not have. Before applications write to the follower: ALTER TABLE ... AUTO_INCREMENT = "
        f"{mine.next_number}",
    )
