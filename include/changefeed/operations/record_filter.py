"""Conditions on records: key, event id, coordinates and time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from changefeed.errors import SettingsError
from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.iso_time import seconds_of
from changefeed.operations.record_search import event_id
from changefeed.records.event_id import EventId

COMMIT_HEADER = "changefeed.commit"
_PREFIX = "pk."
"""The beginning of the names of key columns in Maxwell's keys."""


@dataclass(frozen=True)
class RecordFilter:
    """All conditions that are set must hold; None and '' are not set.

    - ``key``: the key as JSON or text, or the value of its only column
    - ``id``: the header `changefeed.id`
    - ``coordinates``: FILE:POSITION of the change, or of the XA COMMIT of its transaction
    - ``since_ms``, ``until_ms``: the record's timestamp, in Unix milliseconds; ``until_ms`` is not included
    """

    key: str = ""
    id: str = ""
    coordinates: str = ""
    since_ms: int | None = None
    until_ms: int | None = None

    @classmethod
    def of(
        cls, key: str | None, id: str | None, coordinates: str | None, since: str | None, until: str | None
    ) -> RecordFilter:
        """The filter of a request; times are ISO 8601. Raises SettingsError for an invalid value."""
        event, place = (id or "").strip(), (coordinates or "").strip()
        if event and EventId.parse(event.encode()) is None:
            raise SettingsError(
                f"{event!r} is no event id: expected SERVER_UUID/FILE:POSITION/ROW, the header `changefeed.id`"
            )
        if place:
            BinlogCoordinates.parse(place)
        return cls((key or "").strip(), event, place, _milliseconds(since), _milliseconds(until))

    @property
    def place(self) -> BinlogCoordinates | None:
        """The coordinates in the binlog that the filter names; None if it names none."""
        event = EventId.parse(self.id.encode()) if self.id else None
        if event is not None:
            return None if event.is_read else BinlogCoordinates(event.origin, event.position)
        return BinlogCoordinates.parse(self.coordinates) if self.coordinates else None

    def matches(self, record: KafkaRecord) -> bool:
        """Whether the record fulfils all conditions except that on the key."""
        if self.since_ms is not None and record.timestamp_ms < self.since_ms:
            return False
        if self.until_ms is not None and record.timestamp_ms >= self.until_ms:
            return False
        headers = dict(record.headers)
        if self.id and headers.get("changefeed.id") != self.id.encode():
            return False
        if not self.coordinates:
            return True
        event = event_id(record)
        found = f"{event.origin}:{event.position}" if event else ""
        return self.coordinates in (found, headers.get(COMMIT_HEADER, b"").decode("utf-8", "replace"))

    def matches_key(self, key: Any) -> bool:
        """Whether ``key``, a decoded key of JSON types, is the requested one."""
        if not self.key:
            return True
        if _is_same(key, self.key):
            return True
        if isinstance(key, dict):
            columns = {name: value for name, value in key.items() if name.startswith(_PREFIX)} or key
            return len(columns) == 1 and _is_same(next(iter(columns.values())), self.key)
        return False

    @property
    def key_bytes(self) -> bytes | None:
        """The bytes of the requested key if records have it as compact JSON; None unless it is a JSON object."""
        try:
            parsed = orjson.loads(self.key)
        except orjson.JSONDecodeError:
            return None
        return orjson.dumps(parsed) if isinstance(parsed, dict) else None


def _is_same(value: Any, text: str) -> bool:
    """Whether ``text`` is ``value`` as JSON, or the value itself if it is a text."""
    if value == text and isinstance(value, str):
        return True
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return type(parsed) is type(value) and bool(parsed == value)


def _milliseconds(text: str | None) -> int | None:
    """Unix milliseconds; those before 1970 are 0, as Kafka takes none below."""
    return max(0, seconds_of(text.strip()) * 1000) if text and text.strip() else None
