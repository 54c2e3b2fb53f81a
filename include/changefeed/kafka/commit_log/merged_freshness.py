"""The freshness of the last hour's windows whose seals are merged, in one record of the commit log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.records import Note, compressed_value
from changefeed.model.freshness import NONE_MERGED, MergedFreshness, SealedFreshness


@dataclass(frozen=True)
class FreshnessRecord(Note, kind="freshness"):
    """See `MergedFreshness`. It is written in the transaction that forgets the seals; see `PeriodRecord`."""

    merged: MergedFreshness

    @property
    def parts(self) -> tuple[str | int, ...]:
        return ()

    def to_json(self) -> Any:
        return self.merged.to_json()

    @classmethod
    def from_json(cls, _parts: Sequence[Any], value: Any, /) -> Self:
        return cls(MergedFreshness.from_json(value))

    def value(self) -> bytes:
        """Its JSON, always compressed: it has the names of tables and many numbers."""
        return compressed_value(self.to_json())


def merged_freshness(state: CommitLogState) -> MergedFreshness:
    """That of the windows whose seals ``state`` has no more; empty without a readable record."""
    return next((record.merged for record in state.of(FreshnessRecord)), NONE_MERGED)


def add_freshness(
    state: CommitLogState, windows: Sequence[SealedFreshness], identity: str
) -> dict[bytes, bytes | None]:
    """The record, value by key, that adds ``windows`` to that of ``state``; {} if none of them has rows."""
    if not any(seconds for _, seconds in windows):
        return {}
    return {FreshnessRecord.key_of(identity): FreshnessRecord(merged_freshness(state).add(windows)).value()}
