"""Definitions of a follower's tables beside those of the source: what differs, and what cannot be compared."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from changefeed.model.identifier import quoted
from changefeed.model.table_schema import Column
from changefeed.source.mysql import source
from changefeed.source.mysql.catalog import table_schema
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.table_definition import DefinitionReader, Part, TableDefinition
from changefeed.verify.job import VerifyJob
from changefeed.verify.positions import standing

_LOOK_SECONDS = 2.0

TableName = tuple[str, str]


@dataclass(frozen=True)
class Difference:
    """``what`` differs: what the source has of it, and what the follower has; '' for nothing."""

    what: str
    source: str
    follower: str

    def __str__(self) -> str:
        return f"{self.what}: {self.source or 'nothing'} on the source, {self.follower or 'nothing'} on the follower"


@dataclass(frozen=True)
class Compared:
    """What two definitions have that is not alike, and what of them could not be compared, with the reason."""

    differences: tuple[Difference, ...]
    notes: tuple[str, ...]


_NO_TABLE = "no such table"
_NO_TRIGGER = "none that the pipeline's user may see (privilege TRIGGER)"


def compare_definitions(source: TableDefinition | None, follower: TableDefinition | None) -> Compared:
    """All that differs; None is a table that is not there."""
    if source is None or follower is None:
        same = source is follower
        whole = Difference("table", _whole(source), _whole(follower))
        return Compared(() if same else (whole,), ())
    crossed = source.is_mariadb != follower.is_mariadb
    differences: list[Difference] = []
    notes: list[str] = []
    for what in [*source.parts, *(what for what in follower.parts if what not in source.parts)]:
        mine, its = source.parts.get(what), follower.parts.get(what)
        if mine is None or its is None:
            if crossed and what.startswith("check "):
                notes.append(_crossed(what))
            else:
                differences.append(Difference(what, _line(mine), _line(its)))
            continue
        for name, one in mine.items():
            other = its[name]
            if one.normal == other.normal:
                continue
            if crossed and (one.is_expression or other.is_expression):
                notes.append(_crossed(f"{what}: {name}"))
            else:
                differences.append(Difference(f"{what}: {name}", one.shown, other.shown))
    if not differences and not crossed and source.version == follower.version:
        if source.shown and follower.shown:
            differences += _shown(source, follower)
        else:
            notes.append("not compared: what only SHOW CREATE TABLE has, as a server does not say it to the user")
    differences += _triggers(source, follower)
    notes += [
        f"the follower does not have the source's trigger {quoted(name)}: followers have none, as what triggers did is "
        "in the rows"
        for name in source.triggers
        if name not in follower.triggers
    ]
    return Compared(tuple(differences), tuple(notes))


def _triggers(source: TableDefinition, follower: TableDefinition) -> Iterator[Difference]:
    for name, its in follower.triggers.items():
        mine = source.triggers.get(name)
        if mine is None or mine.normal != its.normal:
            yield Difference(f"trigger {quoted(name)}", _NO_TRIGGER if mine is None else mine.shown, its.shown)


def _shown(source: TableDefinition, follower: TableDefinition) -> Iterator[Difference]:
    """What only SHOW CREATE TABLE has of definitions, such as the order of indexes and their parsers, or WITH SYSTEM
    VERSIONING. Servers of one version write it alike."""
    for mine, its in zip_longest(source.shown, follower.shown, fillvalue=""):
        if mine != its:
            yield Difference("SHOW CREATE TABLE", mine.strip(), its.strip())
            return


def _whole(table: TableDefinition | None) -> str:
    if table is None:
        return _NO_TABLE
    return f"a table with columns {table.parts['columns']['order'].shown}"


def _line(part: Part | None) -> str:
    return "" if part is None else " ".join(each.shown for each in part.values() if each.shown) or "there"


def _crossed(what: str) -> str:
    return f"not compared: {what}, because MySQL and MariaDB spell it in ways that have no common form"


# --- characters that a charset has twice

_DOUBLED = frozenset({"cp932", "eucjpms", "sjis", "ujis", "big5", "gbk", "gb2312", "gb18030", "euckr"})
"""Charsets in which Unicode's text may have been other bytes."""
_TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})


def doubled_characters(session: Session, database: str, table: str) -> Iterator[Difference]:
    """For each column of the source's table the rows whose bytes do not come back from Unicode, which is what records
    have: a follower stores the bytes that its server makes of that."""
    schema = table_schema(session, database, table)
    charsets = {column: _charset(column) for column in schema.columns} if schema is not None else {}
    columns = [column for column, charset in charsets.items() if charset in _DOUBLED and not column.generated]
    if not columns:
        return
    counts = session.row(
        f"SELECT {', '.join(_others(column.name, charsets[column]) for column in columns)} "
        f"FROM {quoted(database)}.{quoted(table)}"
    )
    for column, count in zip(columns, counts, strict=True):
        if count:
            rows = f"{int(count):,} rows with characters that {charsets[column]} has twice"
            yield Difference(f"column {quoted(column.name)}: bytes", rows, "the bytes that Unicode is converted to")


def _charset(column: Column) -> str:
    return (column.collation or "").partition("_")[0] if column.data_type in _TEXTS else ""


def _others(name: str, charset: str) -> str:
    there = f"CONVERT(CONVERT({quoted(name)} USING utf8mb4) USING {charset})"
    return f"SUM(CAST({quoted(name)} AS BINARY) <> CAST({there} AS BINARY))"


# --- where the follower stands


@dataclass(frozen=True)
class ComparedTable:
    """``compared`` of a table; ``reason`` says why equal cannot be said of it, '' where it can."""

    compared: Compared
    reason: str = ""


def compared_definitions(job: VerifyJob) -> dict[TableName, ComparedTable]:
    """Of each table of a comparison with a follower what its definition there has that the source's has not.

    What differs is read again until the follower has come to where the source was when its definition was read, for
    ``job.wait_seconds`` at most: a definition that is still to be applied there is no difference.
    """
    deadline = time.monotonic() + job.wait_seconds
    found: dict[TableName, ComparedTable] = {}
    with job.connections.session() as at_source, job.session() as at_follower:
        readers = DefinitionReader(at_source), DefinitionReader(at_follower)
        left = list(job.names)
        while left:
            mine = {name: readers[0].read(*name) for name in left}
            until = _Reached.of(job, at_source, at_follower)
            its = {name: readers[1].read(*name) for name in left}
            is_last = until.never or time.monotonic() >= deadline
            for name in left:
                compared = compare_definitions(mine[name], its[name])
                if not compared.differences:
                    compared = Compared(tuple(doubled_characters(at_source, *name)), compared.notes)
                    found[name] = _equal(mine[name], its[name], compared, until)
                elif until.reached and mine[name] == readers[0].read(*name):
                    found[name] = ComparedTable(compared)
                elif is_last:
                    found[name] = ComparedTable(Compared((), compared.notes), until.words(compared))
            left = [name for name in left if name not in found]
            if left:
                time.sleep(_LOOK_SECONDS)
    return found


@dataclass(frozen=True)
class _Reached:
    """Whether all that the source had done at ``until`` is done on the follower, which is at ``at``."""

    until: str
    at: str
    reached: bool
    never: bool
    """It is another server's binlog that it follows: positions do not compare."""

    @classmethod
    def of(cls, job: VerifyJob, at_source: Session, at_follower: Session) -> _Reached:
        until = source.head(at_source).coordinates
        stands = standing(at_follower, job.connections.pipeline.name)
        at, uuid = stands.coordinates, source.server_uuid(at_source)
        same = stands.server_uuid == uuid and at.base == until.base
        return cls(str(until), str(at), same and at >= until, not same)

    def words(self, compared: Compared) -> str:
        first = compared.differences[0]
        return (
            f"its definition differs ({first}), which may be still to be applied: the follower is at {self.at}, and "
            f"the source's was read at {self.until}. Run `changefeed replicate` and verify again"
        )


def _equal(
    mine: TableDefinition | None, its: TableDefinition | None, compared: Compared, until: _Reached
) -> ComparedTable:
    if mine is None or its is None or mine.next_number is None or its.next_number is None:
        return ComparedTable(compared)
    if its.next_number >= mine.next_number:
        return ComparedTable(compared)
    numbers = f"its next AUTO_INCREMENT is {its.next_number} on the follower and {mine.next_number} on the source"
    if not until.reached:
        note = f"{numbers}, which is {until.until}, and the follower at {until.at}: not compared"
        return ComparedTable(Compared((), (*compared.notes, note)))
    return ComparedTable(
        compared,
        f"{numbers}: numbers between them may have been those of rows that are gone, or of statements that were rolled "
        f"back, which no binlog has. Before applications write to the follower: ALTER TABLE ... AUTO_INCREMENT = "
        f"{mine.next_number}",
    )
