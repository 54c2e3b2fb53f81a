"""Functions of batches one after the other, from what the kernel left to finished messages without an object a row.

What cannot be done so is left to `chain`, row by row, with the same results: rows that lack columns, a change that is
split, values that only Python writes, and whatever a function fails on, so that the error names the change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from changefeed.binlog.kernel.memory import Words
from changefeed.binlog.output import Output
from changefeed.binlog.programs.topics import Topics, UnfinishedTable
from changefeed.block import Arrays
from changefeed.errors import SettingsError
from changefeed.formats.format import RowFormat
from changefeed.formats.template import OPS
from changefeed.pipelines.column_rules import ColumnRules
from changefeed.transforms.batches import NEEDED, NUMBER
from changefeed.transforms.chain import Transform
from changefeed.transforms.column_messages import ColumnMessages, Results
from changefeed.transforms.plain_columns import NotByColumns, PlainTable

_OPS = pa.array(OPS)
_WITHOUT_BEFORE, _WITHOUT_AFTER = np.array([True, False, False, True]), np.array([False, False, True, False])
"""By op, as OPS has them."""


class ColumnTable:
    """A table all of whose functions take batches; ``dropped`` counts as a `Chain`'s."""

    def __init__(
        self,
        unfinished: UnfinishedTable,
        functions: Sequence[Transform],
        format: RowFormat,
        rules: ColumnRules,
        *,
        suffix: str,
        has_event: bool,
        dropped: Counter[str],
    ) -> None:
        schema = unfinished.schema
        self._functions, self._dropped = functions, dropped
        self._rows = PlainTable(unfinished, unfinished.route.topic.removesuffix(suffix), has_event)
        self._messages = ColumnMessages(unfinished, format, rules, suffix)
        self._key = frozenset(schema.columns[number].name for number in schema.primary_key)

    def finished(
        self, output: Output, partitions: Callable[[str], int], topics: Topics
    ) -> list[tuple[Arrays, Words]] | None:
        """The messages that are made of all rows in ``output``, and their groups; None where that cannot be done."""
        try:
            given = self._rows.read(output)
            results, dropped = self._through(given.batch)
            made = list(self._messages.written(results, given, partitions, topics))
        except (NotByColumns, ValueError, TypeError, pa.ArrowException, SettingsError):
            return None
        self._dropped += dropped
        return made

    def _through(self, batch: pa.RecordBatch) -> tuple[Results, Counter[str]]:
        results, numbers, dropped = None, np.arange(len(batch)), Counter[str]()
        for transform in self._functions:
            if results is not None:
                batch = _given_on(batch, results)
            try:
                made = transform.function(batch)
            except Exception as error:
                raise NotByColumns(f"{transform.name} failed on a batch") from error
            results = _results(made, batch, self._key)
            numbers = numbers[results.numbers]
            if len(batch) > len(numbers):
                dropped[transform.name] += len(batch) - len(numbers)
        assert results is not None
        return replace(results, numbers=numbers), dropped


def _given_on(batch: pa.RecordBatch, results: Results) -> pa.RecordBatch:
    """What the next function gets: of what none may change, that which it was."""
    columns: dict[str, Any] = dict(zip(batch.schema.names, batch.take(pa.array(results.numbers)).columns, strict=True))
    columns |= {
        NUMBER: np.arange(len(results.numbers)),
        "op": _OPS.take(pa.array(results.ops)),
        "topic": results.topics,
        "before": results.before,
        "after": results.after,
    }
    return pa.RecordBatch.from_pydict(columns)


def _results(made: Any, given: pa.RecordBatch, key: frozenset[str]) -> Results:
    """What a function returned for ``given``; raises NotByColumns where it is not one row each of some of those, as
    `chain` wants them."""
    if not isinstance(made, pa.RecordBatch | pa.Table) or any(name not in made.schema.names for name in NEEDED):
        raise NotByColumns("no batch, or one that lacks columns")
    numbers, ops = _array(made[NUMBER]), pc.index_in(_array(made["op"]), _OPS)
    before, after = _array(made["before"]), _array(made["after"])
    topics = _array(made["topic"]) if "topic" in made.schema.names else given["topic"].take(numbers)
    if numbers.null_count or ops.null_count or topics.null_count or not pa.types.is_integer(numbers.type):
        raise NotByColumns("nulls")
    if not pa.types.is_struct(before.type) or not pa.types.is_struct(after.type) or not pa.types.is_string(topics.type):
        raise NotByColumns("other types")
    results = Results(numbers.to_numpy().astype(np.int64), ops.to_numpy().astype(np.int64), before, after, topics)
    if not _are_some_of(results.numbers, len(given)):
        raise NotByColumns("changes are split, or in another order")
    for images, without in ((before, _WITHOUT_BEFORE), (after, _WITHOUT_AFTER)):
        if (images.is_null().to_numpy(zero_copy_only=False) != without[results.ops]).any():
            raise NotByColumns("an op does not have the images that it has to have")
        if images.null_count < len(images) and not key <= {field.name for field in images.type}:
            raise NotByColumns("the key's columns are not all in the row")
    return results


def _are_some_of(numbers: Words, count: int) -> bool:
    return len(numbers) == 0 or bool(numbers[0] >= 0 and numbers[-1] < count and (np.diff(numbers) > 0).all())


def _array(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
