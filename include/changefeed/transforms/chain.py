"""Calls the functions of a table's changes in order, and checks their results."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from changefeed.errors import BadRecordError
from changefeed.formats.template import OPS
from changefeed.native.memory import Words
from changefeed.transforms.arrow_changes import (
    FIXED_COLUMNS,
    MEMBERS,
    NUMBER,
    ArrowChanges,
    Changes,
    ObjectChanges,
    join_chunks,
)
from changefeed.transforms.change import Change
from changefeed.transforms.loading import Transform
from changefeed.transforms.plain_rows import PlainRows

NEEDED = (NUMBER, "op", "before", "after")
"""The columns that a batch function must return."""
_FIXED = ("database", "table", "timestamp", "gtid", "coordinates")
_IMAGES_OF = {"c": (False, True), "r": (False, True), "d": (True, False), "u": (True, True)}
"""Whether a change with an op has a before image, and whether it has an after image."""
_WITH_BEFORE = np.array([_IMAGES_OF[op][0] for op in OPS])
_WITH_AFTER = np.array([_IMAGES_OF[op][1] for op in OPS])

_log = logging.getLogger(__name__)


_OUTAGES = (OSError, MemoryError, ImportError)
"""Exceptions of a function that say something of the worker or of what it calls (no connection, no space, no package),
and nothing of the change."""


class TransformFailed(Exception):
    """A function raised an exception or returned an invalid change; ``is_outage`` says that the cause is not in the
    change."""

    def __init__(self, name: str, reason: str, *, is_outage: bool = False) -> None:
        super().__init__(reason)
        self.name, self.reason, self.is_outage = name, reason, is_outage

    def error(self, change: Change) -> BadRecordError:
        """The error that stops the run; ``change`` is the change before all functions."""
        key = repr({name: change.row.get(name) for name in change.key})[:200]
        at = change.coordinates
        return BadRecordError(
            f"transform {self.name!r} failed on change {at.file}:{at.position}/{at.row} of table "
            f"'{change.database}.{change.table}' with key {key} (op {change.op}, GTID {change.gtid!r}): {self.reason}. "
            "Nothing of its window is published. Correct the function and run again; or set kafka.on_bad_record: "
            "dead_letter, and such changes go there without their rows."
        ).of_tables(*([] if self.is_outage else [f"{change.database}.{change.table}"]), function=self.name)


Failures = dict[int, TransformFailed]
"""The failures of changes from which no messages can be made, by the number of the change."""


class Chain:
    """All functions of a table in order; ``dropped`` counts the changes for which a function returned nothing, by the
    function's name."""

    def __init__(self, transforms: Sequence[Transform], dropped: Counter[str]) -> None:
        self._transforms, self._dropped = transforms, dropped

    @property
    def last(self) -> str:
        """The name of the last function."""
        return self._transforms[-1].name

    def of_rows(self, rows: PlainRows) -> tuple[Sequence[Changes], Failures]:
        """The results of all functions for ``rows``, and the failures; a failed row has no results."""
        failures: Failures = {}
        first = self._transforms[0]
        if not first.takes_batches:
            return self([rows.objects()], failures)
        return self(list(rows.batches(partial(note, failures, first.name))), failures)

    def of_change(self, change: Change) -> tuple[list[Change], Failures]:
        """The results of all functions for one change, whose number is 0."""
        returned, failures = self([ObjectChanges(np.zeros(1, np.int64), [change])], {})
        return [each for some in returned for each in some.objects().changes], failures

    def __call__(self, changes: Sequence[Changes], failures: Failures) -> tuple[Sequence[Changes], Failures]:
        """The results of all functions for ``changes``, and ``failures``, to which new failures are added."""
        for transform in self._transforms:
            returned: list[Changes] = []
            for some in changes:
                if transform.takes_batches:
                    for batch in some.batches(partial(note, failures, transform.name)):
                        returned += self._call_with_batch(transform, batch, failures)
                else:
                    returned.append(self._call_with_each(transform, some.objects(), failures))
            failed = set(failures)
            changes = [some.without(failed) for some in returned] if failed else returned
        return changes, failures

    def _call_with_each(self, transform: Transform, changes: ObjectChanges, failures: Failures) -> ObjectChanges:
        numbers: list[int] = []
        returned: list[Change] = []
        dropped = 0
        for number, change in zip(changes.numbers.tolist(), changes.changes, strict=True):
            try:
                made = transform.function(change)
                if made is None:
                    dropped += 1
                    continue
                several = made if isinstance(made, list | tuple) else (made,)
                for each in several:
                    _check(each, change)
            except Exception as error:
                note(failures, transform.name, number, error)
                continue
            dropped += not several
            returned += several
            numbers += [number] * len(several)
        if dropped:
            self._dropped[transform.name] += dropped
        return ObjectChanges(np.array(numbers, np.int64), returned)

    def _call_with_batch(self, transform: Transform, changes: ArrowChanges, failures: Failures) -> list[ArrowChanges]:
        """The results for a batch. If the function fails, the batch is halved until the failing change is found."""
        count = len(changes.numbers)
        if count == 0:
            return []
        try:
            rows, returned = _results(transform.function(changes.batch), changes)
        except Exception as error:
            if count == 1:
                note(failures, transform.name, int(changes.numbers[0]), error)
                return []
            before = len(failures)
            halves = [changes.part(0, count // 2), changes.part(count // 2, count)]
            made = [each for half in halves for each in self._call_with_batch(transform, half, failures)]
            if len(failures) == before:
                _log.warning(
                    "transform %r failed on a batch of %d changes of %s.%s and on no change of it: %s. It was called "
                    "again with fewer changes. What it returns for a change must not depend on the others in the batch",
                    *(transform.name, count, changes.batch["database"][0], changes.batch["table"][0], error),
                )
            return made
        failed_rows = {
            int(returned.numbers[row]): TransformFailed(transform.name, reason) for row, reason in _faults(returned)
        }
        for number, why in failed_rows.items():
            failures.setdefault(number, why)
        if dropped := count - len(np.unique(rows)):
            self._dropped[transform.name] += dropped
        return [returned.without(set(failed_rows)) if failed_rows else returned]


def note(failures: Failures, name: str, number: int, error: Exception) -> None:
    """Add to ``failures`` that transform ``name`` failed with ``error`` on change ``number``."""
    reason = f"{type(error).__name__}: {error}"
    failures.setdefault(number, TransformFailed(name, reason, is_outage=is_outage(error)))


def is_outage(error: BaseException) -> bool:
    """Whether ``error``, or an exception that it was raised from or while handling, is one of _OUTAGES."""
    causes: list[BaseException] = []
    while error not in causes:
        if isinstance(error, _OUTAGES):
            return True
        causes.append(error)
        error = error.__cause__ or error.__context__ or error
    return False


def _check(made: object, given: Change) -> None:
    """Raise TypeError or ValueError if a function returned an invalid change."""
    if not isinstance(made, Change):
        raise TypeError(f"it returned {type(made).__name__}: expected a Change, a list of them, or None")
    changed = [name for name in _FIXED if getattr(made, name) != getattr(given, name)] if made is not given else []
    if changed:
        raise ValueError(
            f"it changed {', '.join(changed)}: expected other op, before, after, key, topic or members only"
        )
    if made.op not in _IMAGES_OF:
        raise ValueError(_op_fault(made.op))
    if (made.before is not None, made.after is not None) != _IMAGES_OF[made.op]:
        raise ValueError(_images_fault(made.op))
    if not isinstance(made.topic, str):
        raise TypeError(f"topic is {type(made.topic).__name__}: expected its name")
    for row in made.rows:
        if not isinstance(row, dict):
            raise TypeError(f"a row is {type(row).__name__}: expected a dict of column values")
    missing = [name for name in made.key if name not in made.row]
    if missing:
        raise ValueError(_key_fault(missing[0]))
    if made.members:
        try:
            orjson.dumps(made.members)
        except TypeError as error:
            raise TypeError(f"its members {made.members!r} are not JSON: {error}") from None


def _op_fault(op: object) -> str:
    return f"op is {op!r}: expected c, u, d or r"


def _images_fault(op: str) -> str:
    before, after = _IMAGES_OF[op]
    return f"of op {op} expected {'before' * before}{' and ' * (before and after)}{'after' * after}"


def _key_fault(name: str) -> str:
    return f"the key's column {name!r} is not in the row: leave it in, or change `key` to columns that are"


def _results(made: Any, changes: ArrowChanges) -> tuple[Words, ArrowChanges]:
    """The result of a batch function for ``changes``, and the number of the input change of each row.

    Raises TypeError or ValueError for an invalid batch.
    """
    if not isinstance(made, pa.RecordBatch | pa.Table):
        raise TypeError(f"it returned {type(made).__name__}: expected a RecordBatch or a Table")
    if missing := [name for name in NEEDED if name not in made.schema.names]:
        raise ValueError(f"the batch that it returned has no column {missing[0]!r}")
    rows = _row_numbers(join_chunks(made[NUMBER]), len(changes.numbers))
    fixed = changes.batch.select(list(FIXED_COLUMNS))
    if len(rows) != len(changes.numbers) or (np.diff(rows) != 1).any():
        fixed = fixed.take(pa.array(rows))
    columns: dict[str, Any] = dict(zip(fixed.schema.names, fixed.columns, strict=True))
    columns |= {NUMBER: np.arange(len(rows)), "op": _strings("op", join_chunks(made["op"]))}
    columns |= {name: _structs(name, join_chunks(made[name])) for name in ("before", "after")}
    for name in (name for name in ("topic", MEMBERS) if name in made.schema.names):
        columns[name] = _strings(name, join_chunks(made[name]))
    return rows, ArrowChanges(changes.numbers[rows], changes.key, pa.RecordBatch.from_pydict(columns))


def _row_numbers(numbers: pa.Array, count: int) -> Words:
    if pa.types.is_integer(numbers.type) and not numbers.null_count:
        rows: Words = numbers.to_numpy(zero_copy_only=False).astype(np.int64)
        if len(rows) == 0 or (rows[0] >= 0 and rows[-1] < count and (np.diff(rows) >= 0).all()):
            return rows
    if len(numbers) == 0:
        return np.zeros(0, np.int64)
    raise ValueError(f"column {NUMBER!r} of the batch that it returned: expected rising numbers of given changes")


def _strings(name: str, values: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if (
        values.null_count < len(values)
        and not pa.types.is_string(values.type)
        and not pa.types.is_large_string(values.type)
    ):
        raise TypeError(f"column {name!r} is of type {values.type}: expected strings")
    return values.cast(pa.string())


def _structs(name: str, images: pa.Array) -> pa.StructArray:
    if images.null_count == len(images) and not pa.types.is_struct(images.type):
        return pa.nulls(len(images), pa.struct([]))
    if not pa.types.is_struct(images.type):
        raise TypeError(f"column {name!r} is of type {images.type}: expected structs of column values")
    return images


def _faults(changes: ArrowChanges) -> Iterator[tuple[int, str]]:
    """The numbers of invalid rows in results, each with a reason; of several reasons for a row, the last one counts."""
    batch = changes.batch
    ops = pc.index_in(batch["op"], pa.array(OPS))  # created here, not at import, because pyarrow loads pandas for it
    known = pc.fill_null(ops, 0).to_numpy(zero_copy_only=False)
    unknown = ops.is_null().to_numpy(zero_copy_only=False)
    images = [batch[name] for name in ("before", "after")]
    there = [each.is_valid().to_numpy(zero_copy_only=False) for each in images]
    for number, each in enumerate(images):
        names = {field.name for field in each.type}
        if missing := [name for name in changes.key if name not in names]:
            of_image = known == OPS.index("d") if number == 0 else known != OPS.index("d")
            yield from ((row, f"ValueError: {_key_fault(missing[0])}") for row in np.flatnonzero(of_image).tolist())
    if batch[MEMBERS].null_count < len(batch):
        texts = batch[MEMBERS].to_pylist()
        yield from ((row, _members_fault(text)) for row, text in enumerate(texts) if text and not _is_object(text))
    no_topic = batch["topic"].is_null().to_numpy(zero_copy_only=False)
    yield from ((row, "TypeError: topic is NoneType: expected its name") for row in np.flatnonzero(no_topic).tolist())
    unlike = (there[0] != _WITH_BEFORE[known]) | (there[1] != _WITH_AFTER[known])
    yield from ((row, f"ValueError: {_images_fault(OPS[known[row]])}") for row in np.flatnonzero(unlike).tolist())
    for row in np.flatnonzero(unknown).tolist():
        yield row, f"ValueError: {_op_fault(batch['op'][row].as_py())}"


def _is_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except ValueError:
        return False


def _members_fault(text: str) -> str:
    return f"ValueError: {MEMBERS} is {text[:100]!r}: expected the text of a JSON object, or null"
