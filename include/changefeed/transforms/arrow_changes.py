"""Changes for functions: as objects or as Arrow batches, with conversion in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray

from changefeed.native.memory import Words
from changefeed.transforms.change import Change, Coordinates, Row

NUMBER = "change"
"""The column of a batch that has, for each row, the number of its input change, from 0."""
MEMBERS = "members"
"""The column of a batch that has the added members of the records: JSON objects as text, or null."""
FIXED_COLUMNS = ("database", "table", "topic", MEMBERS, "timestamp", "gtid", "file", "position", "row")
"""The columns of a batch except its images and numbers."""

Fail = Callable[[int, Exception], None]
"""Called with the number of a change from which no messages can be made, and the reason."""


@dataclass(frozen=True)
class ObjectChanges:
    """Changes as objects; ``numbers`` has the number of each change's input row, in rising order."""

    numbers: Words
    changes: Sequence[Change]

    def objects(self) -> ObjectChanges:
        """The changes unchanged."""
        return self

    def batches(self, fail: Fail) -> Iterator[ArrowChanges]:
        """The same changes as Arrow batches, one for each series of images with the same columns. ``fail`` is called
        for changes without an Arrow type."""
        at = 0
        for key, run in groupby(self.changes, key=lambda change: change.key):
            for alike in _alike(list(run)):
                yield from in_arrow(self.numbers[at : at + len(alike)], key, partial(_batch_of_some, alike), fail)
                at += len(alike)

    def without(self, numbers: set[int]) -> ObjectChanges:
        """The changes without the changes of the input rows ``numbers``."""
        stays = [number not in numbers for number in self.numbers.tolist()]
        changes = [change for change, each in zip(self.changes, stays, strict=True) if each]
        return ObjectChanges(self.numbers[np.array(stays, bool)], changes)


@dataclass(frozen=True)
class ArrowChanges:
    """Changes as a batch, with the columns that functions get; ``key`` names the columns of their keys."""

    numbers: Words
    key: tuple[str, ...]
    batch: pa.RecordBatch

    def objects(self) -> ObjectChanges:
        """The same changes as objects."""
        columns = {name: self.batch[name].to_pylist() for name in ("op", *FIXED_COLUMNS)}
        images = (_rows(self.batch["before"]), _rows(self.batch["after"]))
        changes = [
            Change(
                *(op, database, table, before, after, self.key, topic, time.astimezone(UTC), gtid, Coordinates(*at)),
                orjson.loads(members) if members else {},
            )
            for op, database, table, topic, members, time, gtid, *at, before, after in zip(
                *columns.values(), *images, strict=True
            )
        ]
        return ObjectChanges(self.numbers, changes)

    def batches(self, _fail: Fail) -> Iterator[ArrowChanges]:
        """The changes unchanged."""
        yield self

    def without(self, numbers: set[int]) -> ArrowChanges:
        """The changes without the changes of the input rows ``numbers``."""
        stays = ~np.isin(self.numbers, list(numbers))
        return ArrowChanges(self.numbers[stays], self.key, renumber(self.batch.filter(pa.array(stays))))

    def part(self, first: int, last: int) -> ArrowChanges:
        """The changes from ``first`` to before ``last``."""
        return ArrowChanges(self.numbers[first:last], self.key, renumber(self.batch.slice(first, last - first)))


Changes = ObjectChanges | ArrowChanges


def in_arrow(
    numbers: Words, key: tuple[str, ...], batch: Callable[[int, int], pa.RecordBatch], fail: Fail
) -> Iterator[ArrowChanges]:
    """Arrow batches of the changes ``numbers``; ``batch`` makes the batch of a range of them.

    If the JSON documents of a range have no common Arrow type, the range is split in halves. ``fail`` is called for a
    single change without an Arrow type.
    """

    def parts(first: int, last: int) -> Iterator[ArrowChanges]:
        try:
            yield ArrowChanges(numbers[first:last], key, batch(first, last))
        except pa.ArrowException as error:
            if last - first == 1:
                fail(int(numbers[first]), error)
                return
            middle = (first + last) // 2
            yield from parts(first, middle)
            yield from parts(middle, last)

    return parts(0, len(numbers))


def _alike(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """``changes`` in series; in a series all before images have the same columns, and all after images too."""
    together: list[Change] = []
    columns: list[frozenset[str] | None] = [None, None]
    for change in changes:
        own = [None if row is None else frozenset(row) for row in (change.before, change.after)]
        if any(None not in pair and pair[0] != pair[1] for pair in zip(columns, own, strict=True)):
            yield together
            together, columns = [], [None, None]
        together.append(change)
        columns = [known if known is not None else new for known, new in zip(columns, own, strict=True)]
    if together:
        yield together


def _batch_of_some(changes: Sequence[Change], first: int, last: int) -> pa.RecordBatch:
    return batch_of(changes[first:last])


def batch_of(changes: Sequence[Change]) -> pa.RecordBatch:
    """A row for each change: its number, fields and coordinates; ``before`` and ``after`` are structs or null."""
    columns: dict[str, Any] = {
        NUMBER: pa.array(range(len(changes)), pa.int64()),
        "op": [change.op for change in changes],
        "database": [change.database for change in changes],
        "table": [change.table for change in changes],
        "topic": [change.topic for change in changes],
        MEMBERS: members_of(changes),
        "timestamp": pa.array([change.timestamp for change in changes], pa.timestamp("s", "UTC")),
        "gtid": pa.array([change.gtid for change in changes], pa.string()),
        "file": [change.coordinates.file for change in changes],
        "position": [change.coordinates.position for change in changes],
        "row": [change.coordinates.row for change in changes],
    }
    before, after = [change.before for change in changes], [change.after for change in changes]
    names = next((list(row) for row in (*after, *before) if row is not None), [])
    columns["before"], columns["after"] = _images(before, names), _images(after, names)
    return pa.RecordBatch.from_pydict(columns)


def members_of(changes: Sequence[Change]) -> pa.Array:
    """The column MEMBERS of a batch of ``changes``."""
    texts = [orjson.dumps(change.members).decode() if change.members else None for change in changes]
    return pa.array(texts, pa.string())


def _images(rows: Sequence[Row | None], names: Sequence[str]) -> pa.StructArray:
    """Structs of the rows' columns; if there is no row, they have the columns ``names``."""
    columns = next((list(row) for row in rows if row is not None), names)
    values = {name: values_array([None if row is None else row[name] for row in rows]) for name in columns}
    return image_of(values, np.array([row is None for row in rows], bool))


def image_of(columns: Mapping[str, pa.Array], absent: NDArray[np.bool_]) -> pa.StructArray:
    """Images with ``columns``, null where they are ``absent``."""
    if not columns:
        return pa.array([None if each else {} for each in absent.tolist()], pa.struct([]))
    return pa.StructArray.from_arrays(list(columns.values()), list(columns), mask=pa.array(absent))


def _rows(images: pa.StructArray) -> list[Row | None]:
    """The rows of structs, built column by column, which is faster than Arrow's conversion."""
    names = [field.name for field in images.type]
    columns = [column.to_pylist() for column in images.flatten()]
    values = zip(*columns, strict=True) if columns else iter([()] * len(images))
    there = images.is_valid().to_pylist()
    return [dict(zip(names, row, strict=True)) if each else None for each, row in zip(there, values, strict=True)]


def values_array(values: Sequence[object]) -> pa.Array:
    """The Arrow array of ``values``; of type string if all are null."""
    try:
        made = pa.array(values)
    except OverflowError:
        return pa.array(values, pa.uint64())
    return made.cast(pa.string()) if pa.types.is_null(made.type) else made


def join_chunks(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column of a batch or a table as one array."""
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def renumber(batch: pa.RecordBatch) -> pa.RecordBatch:
    """``batch`` with the numbers of changes from 0 on."""
    at = batch.schema.names.index(NUMBER)
    return batch.set_column(at, batch.schema.field(at), pa.array(np.arange(len(batch)), batch.schema.field(at).type))
