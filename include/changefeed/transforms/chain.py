"""The functions that a table's changes go through, one after the other, and what became of the changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from changefeed.errors import BadRecordError
from changefeed.pipelines.transform_settings import TransformCall
from changefeed.pipelines.transform_source import BATCH_FUNCTION
from changefeed.transforms.change import Change
from changefeed.transforms.loading import function_of

_FIXED = ("database", "table", "timestamp", "gtid", "coordinates")


class TransformFailed(Exception):
    """A function raised an exception, or returned what no message can be made of."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name, self.reason = name, reason

    def error(self, change: Change) -> BadRecordError:
        """The error of a run that stops for it; ``change`` is as the source has it."""
        key = repr({name: change.row.get(name) for name in change.key})[:200]
        return BadRecordError(
            f"transform {self.name!r} failed on a change of table '{change.database}.{change.table}' with key {key} at "
            f"{change.coordinates} (GTID {change.gtid!r}, op {change.op}): {self.reason}. Nothing of its window is "
            "published. Correct the function and run again; or set kafka.on_bad_record: dead_letter, and such changes "
            "go there without their rows."
        )


Outcome = Sequence[Change] | TransformFailed
"""What became of one change: those that were made of it, or why none could be."""


@dataclass(frozen=True)
class Transform:
    """A function with its arguments, under the name that the pipeline calls it by."""

    name: str
    function: Callable[[Change], Any]

    @classmethod
    def of(cls, call: TransformCall) -> Transform:
        """The function that ``call`` names; raises SettingsError where it cannot be imported."""
        function = partial(function_of(call.source), **call.arguments)
        return (BatchTransform if call.source.function == BATCH_FUNCTION else cls)(call.source.name, function)

    def __call__(self, changes: Sequence[Change]) -> list[Outcome]:
        """What the function makes of each of ``changes``."""
        return [self._outcome(change) for change in changes]

    def _outcome(self, change: Change) -> Outcome:
        try:
            made = self.function(change)
            if made is None:
                return ()
            changes = made if isinstance(made, list | tuple) else (made,)
            for each in changes:
                _check(each, change)
        except Exception as error:
            return TransformFailed(self.name, f"{type(error).__name__}: {error}")
        return changes


@dataclass(frozen=True)
class BatchTransform(Transform):
    """A function of Arrow batches. Where it fails on a batch, it gets each change of that alone."""

    def __call__(self, changes: Sequence[Change]) -> list[Outcome]:
        from changefeed.transforms import batches  # loads pyarrow, which no other function needs

        outcomes: list[Outcome] = []
        for alike in batches.alike(changes):
            try:
                made: list[Outcome] = list(batches.taken_through(self.function, alike))
                for change, results in zip(alike, made, strict=True):
                    for each in results if not isinstance(results, TransformFailed) else ():
                        _check(each, change)
            except Exception as error:
                failed = TransformFailed(self.name, f"{type(error).__name__}: {error}")
                made = [failed] if len(alike) == 1 else [self([change])[0] for change in alike]
            outcomes += made
        return outcomes


class Chain:
    """All functions of a table in their order; ``dropped`` counts by name the changes of which one made nothing."""

    def __init__(self, transforms: Sequence[Transform], dropped: Counter[str]) -> None:
        self._transforms, self._dropped = transforms, dropped

    def __call__(self, changes: Sequence[Change]) -> list[Outcome]:
        """What all functions make of each of ``changes``."""
        outcomes: list[Outcome] = [(change,) for change in changes]
        for transform in self._transforms:
            outcomes = list(self._through(transform, outcomes))
        return outcomes

    def _through(self, transform: Transform, given: Sequence[Outcome]) -> Iterator[Outcome]:
        changes = [change for each in given if not isinstance(each, TransformFailed) for change in each]
        results = iter(transform(changes))
        for each in given:
            if isinstance(each, TransformFailed):
                yield each
                continue
            own = list(islice(results, len(each)))
            if dropped := sum(not isinstance(result, TransformFailed) and not result for result in own):
                self._dropped[transform.name] += dropped
            failed = next((result for result in own if isinstance(result, TransformFailed)), None)
            yield failed or [change for result in own if not isinstance(result, TransformFailed) for change in result]

    @property
    def last(self) -> str:
        """The name of the last function, whose results are written."""
        return self._transforms[-1].name


def _check(made: object, given: Change) -> None:
    """Raises TypeError or ValueError where a function returned what no message can be made of."""
    if not isinstance(made, Change):
        raise TypeError(f"it returned {type(made).__name__}: wanted a Change, a list of them, or None")
    changed = [name for name in _FIXED if getattr(made, name) != getattr(given, name)] if made is not given else []
    if changed:
        raise ValueError(f"it changed {', '.join(changed)}: wanted other op, before, after, key or topic only")
    wanted = {"c": (False, True), "r": (False, True), "d": (True, False), "u": (True, True)}.get(made.op)
    if wanted is None:
        raise ValueError(f"op is {made.op!r}: wanted c, u, d or r")
    if (made.before is not None, made.after is not None) != wanted:
        raise ValueError(f"of op {made.op} wanted {'before' * wanted[0]}{' and ' * all(wanted)}{'after' * wanted[1]}")
    if not isinstance(made.topic, str):
        raise TypeError(f"topic is {type(made.topic).__name__}: wanted its name")
    for row in made.rows:
        if not isinstance(row, dict):
            raise TypeError(f"a row is {type(row).__name__}: wanted a dict of column values")
    missing = [name for name in made.key if name not in made.row]
    if missing:
        raise ValueError(
            f"the key's column {missing[0]!r} is not in the row: leave it in, or change `key` to columns that are"
        )
