"""Changes as Arrow batches, for functions that take many at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from changefeed.transforms.change import Change, Row

NUMBER = "change"
"""The column that says which of the given changes a row was made of, from 0."""
NEEDED = (NUMBER, "op", "before", "after")
"""The columns that a function has to return."""


def alike(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """``changes`` in runs in which all before images have the same columns, and all after images too: in an Arrow
    column nothing is missing, it is null."""
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


def batch_of(changes: Sequence[Change]) -> pa.RecordBatch:
    """A row for each change: its number, fields and coordinates; ``before`` and ``after`` are structs or null."""
    columns: dict[str, Any] = {
        NUMBER: pa.array(range(len(changes)), pa.int64()),
        "op": [change.op for change in changes],
        "database": [change.database for change in changes],
        "table": [change.table for change in changes],
        "topic": [change.topic for change in changes],
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


def taken_through(function: Callable[[Any], Any], changes: Sequence[Change]) -> Iterator[list[Change]]:
    """What ``function`` makes of each of ``changes``, which have the same columns.

    Raises TypeError or ValueError where it returns no batch as is wanted of it, and whatever it raises.
    """
    made = function(batch_of(changes))
    if not isinstance(made, pa.RecordBatch | pa.Table):
        raise TypeError(f"it returned {type(made).__name__}: wanted a RecordBatch or a Table")
    if missing := [name for name in NEEDED if name not in made.schema.names]:
        raise ValueError(f"the batch that it returned has no column {missing[0]!r}")
    numbers = made[NUMBER].to_pylist()
    if None in numbers or numbers != sorted(numbers) or (numbers and not 0 <= numbers[0] <= numbers[-1] < len(changes)):
        raise ValueError(f"column {NUMBER!r} of the batch that it returned: wanted rising numbers of given changes")
    results: list[list[Change]] = [[] for _ in changes]
    columns = {"op": made["op"].to_pylist(), "before": _rows(made["before"]), "after": _rows(made["after"])}
    if "topic" in made.schema.names:
        columns["topic"] = made["topic"].to_pylist()
    names = list(columns)
    for number, *values in zip(numbers, *columns.values(), strict=True):
        results[number].append(changes[number].changed(**dict(zip(names, values, strict=True))))
    yield from results


def _images(rows: Sequence[Row | None], names: Sequence[str]) -> pa.StructArray:
    """Structs of the columns that the rows have; ``names`` are those where there is no row."""
    columns = next((list(row) for row in rows if row is not None), names)
    values = [values_array([None if row is None else row[name] for row in rows]) for name in columns]
    mask = pa.array([row is None for row in rows])
    return pa.StructArray.from_arrays(values, list(columns), mask=mask)


def _rows(images: pa.Array | pa.ChunkedArray) -> list[Row | None]:
    """The rows of structs: column by column, which is faster than Arrow's own way."""
    if isinstance(images, pa.ChunkedArray):
        images = images.combine_chunks()
    if not pa.types.is_struct(images.type):
        return list(images.to_pylist())
    names = [field.name for field in images.type]
    rows = zip(images.is_valid().to_pylist(), *(column.to_pylist() for column in images.flatten()), strict=True)
    return [dict(zip(names, values, strict=True)) if there else None for there, *values in rows]


def values_array(values: Sequence[object]) -> pa.Array:
    """Their Arrow array; of strings where all are null."""
    try:
        made = pa.array(values)
    except OverflowError:
        return pa.array(values, pa.uint64())
    return made.cast(pa.string()) if pa.types.is_null(made.type) else made
