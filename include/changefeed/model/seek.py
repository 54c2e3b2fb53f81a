"""Seeks: the target to which a checkpoint moves, unfinished windows, and the record of a seek in the commit log."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from changefeed.errors import SettingsError
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.gtid import GtidSet
from changefeed.model.iso_time import is_time, seconds_of

Kind = Literal["earliest", "latest", "coordinates", "gtids", "time"]


@dataclass(frozen=True)
class SeekTarget:
    """The target of a seek. ``kind`` says which other field is set; for earliest and latest none is set."""

    kind: Kind
    coordinates: BinlogCoordinates | None = None
    gtids: GtidSet | None = None
    ts_seconds: int | None = None

    @classmethod
    def parse(cls, text: str) -> SeekTarget:
        """The target from a user's text. For other text, raises SettingsError with the valid forms."""
        text = text.strip()
        if text in ("earliest", "latest"):
            return cls(kind=text)  # type: ignore[arg-type]
        if is_time(text):
            return cls("time", ts_seconds=seconds_of(text))
        try:
            return cls("coordinates", coordinates=BinlogCoordinates.parse(text))
        except SettingsError:
            pass
        try:
            return cls("gtids", gtids=GtidSet.parse(text)) if text else _unknown(text)
        except SettingsError:
            return _unknown(text)


def _unknown(text: str) -> SeekTarget:
    raise SettingsError(
        f"{text[:200]!r} is not where a pipeline can seek to: expected earliest, latest, FILE:POSITION "
        "(binlog.000012:4077), a GTID set (3e11fa47-71ca-11e1-9e33-c80aa9429562:1-42), or a time (2026-01-31T12:00:00Z)"
    )


@dataclass(frozen=True)
class UnfinishedWindow:
    """A window after the checkpoint that is sealed and not committed, or begun and not sealed.

    ``messages`` counts its messages that are in Kafka already.
    """

    number: int
    start: str
    head: str
    sealed: bool
    messages: int

    def __str__(self) -> str:
        state = "sealed and not committed" if self.sealed else "begun and not sealed"
        return f"window {self.number} ({self.start} to {self.head}), which is {state}"


@dataclass(frozen=True)
class SeekRecord:
    """The record of a seek in the commit log. ``number`` is its window number."""

    number: int
    at_ms: int
    who: str
    why: str
    asked: str
    before: str | None
    before_gtids: str
    to: str
    to_gtids: str
    skipped_bytes: int
    repeated_bytes: int
    server_uuid: str
    """The server of the coordinates ``to``."""
    discarded: tuple[int, ...] = ()
    """Numbers of the unfinished windows that the seek discarded."""

    def to_json(self) -> dict[str, Any]:
        """Plain values for the commit log; `from_json` reads them back."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> SeekRecord:
        """The record from values of `to_json`. Unknown fields, of a newer version, are ignored."""
        known = {name: value for name, value in values.items() if name in cls.__dataclass_fields__}
        return cls(**{**known, "discarded": tuple(known["discarded"])})
