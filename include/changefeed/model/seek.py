"""A seek: where a checkpoint shall go, what that skips or repeats, and the record that is kept of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from changefeed.errors import SettingsError
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.gtid import GtidSet

Kind = Literal["earliest", "latest", "coordinates", "gtids", "time"]


@dataclass(frozen=True)
class SeekTarget:
    """Where to: earliest, latest, FILE:POSITION, a GTID set, or a time. The field that ``kind`` names is set."""

    kind: Kind
    coordinates: BinlogCoordinates | None = None
    gtids: GtidSet | None = None
    ts_seconds: int | None = None

    @classmethod
    def parse(cls, text: str) -> SeekTarget:
        """Read what a person writes; raises SettingsError with the forms that are known."""
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
        f"{text[:200]!r} is not where a pipeline can seek to: wanted earliest, latest, FILE:POSITION "
        "(binlog.000012:4077), a GTID set (3e11fa47-71ca-11e1-9e33-c80aa9429562:1-42), or a time (2026-01-31T12:00:00Z)"
    )


def seconds_of(text: str) -> int:
    """Unix time of an ISO 8601 time; one without an offset is UTC. Raises SettingsError for anything else."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise SettingsError(f"{text!r} is no time: wanted ISO 8601, as in 2026-01-31T12:00:00Z") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def is_time(text: str) -> bool:
    """Whether `seconds_of` can read ``text``."""
    try:
        seconds_of(text)
    except SettingsError:
        return False
    return True


@dataclass(frozen=True)
class UnfinishedWindow:
    """A window behind the checkpoint that was sealed and not committed, or begun and not sealed.

    ``messages`` are those of it that are in Kafka already.
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
    """The audit of one seek, kept in the commit log. ``number`` is the window number that it took."""

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
    """The server whose coordinates ``to`` are."""
    discarded: tuple[int, ...] = ()
    """Numbers of the windows that were left unfinished and given up."""

    def to_json(self) -> dict[str, Any]:
        """Plain values, as the commit log keeps them; `from_json` reads them back."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> SeekRecord:
        """Read what `to_json` made; fields of a newer version are left out."""
        known = {name: value for name, value in values.items() if name in cls.__dataclass_fields__}
        return cls(**{**known, "discarded": tuple(known["discarded"])})
