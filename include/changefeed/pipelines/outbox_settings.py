"""`outbox` of a pipeline's YAML: tables whose rows are messages, under the names of Debezium's outbox event router.

Source: https://debezium.io/documentation/reference/stable/transformations/outbox-event-router.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from changefeed.errors import did_you_mean
from changefeed.pipelines.section import MistakeInsideError, Section
from changefeed.pipelines.table_pattern import TablePattern, matches_any

_DEFAULTS: Mapping[str, Any] = {
    "table.field.event.id": "id",
    "table.field.event.key": "aggregateid",
    "table.field.event.payload": "payload",
    "table.fields.additional.placement": "",
    "route.by.field": "aggregatetype",
    "route.topic.regex": "(?<routedByValue>.*)",
    "route.topic.replacement": "outbox.event.${routedByValue}",
    "route.tombstone.on.empty.payload": False,
    "table.op.invalid.behavior": "warn",
}


@dataclass(frozen=True)
class OutboxColumns:
    """Which column of an outbox table is what, and where its messages go.

    ``replacement`` is the topic with `${routedByValue}` for the text of column ``route_by``. ``placements`` are further
    headers: column and header's name. ``stops_at_updates`` says that an update of a row stops the run.
    """

    id: str
    key: str
    payload: str
    route_by: str
    replacement: str
    empty_is_tombstone: bool = False
    stops_at_updates: bool = False
    placements: tuple[tuple[str, str], ...] = field(default=())

    def topic(self, value: str) -> str:
        """The topic of a row with ``value`` in its column ``route_by``."""
        return self.replacement.replace("${routedByValue}", value)


class OutboxSettings(Section):
    """Outbox tables, and of Debezium's options those whose values are other than its defaults."""

    model_config = ConfigDict(extra="allow")

    tables: Annotated[list[TablePattern], Field(min_length=1)]

    def takes(self, database: str, table: str) -> bool:
        """Whether the table's rows are messages."""
        return matches_any(tuple(self.tables), database, table)

    @property
    def columns(self) -> OutboxColumns:
        """The options, read."""
        given = {**_DEFAULTS, **(self.model_extra or {})}
        return OutboxColumns(
            given["table.field.event.id"],
            given["table.field.event.key"],
            given["table.field.event.payload"],
            given["route.by.field"],
            given["route.topic.replacement"],
            given["route.tombstone.on.empty.payload"],
            given["table.op.invalid.behavior"] != "warn",
            tuple(_placements(given["table.fields.additional.placement"])),
        )

    @model_validator(mode="after")
    def _has_known_options(self) -> OutboxSettings:
        for name, value in (self.model_extra or {}).items():
            try:
                _check(name, value)
            except ValueError as error:
                raise MistakeInsideError(str(error), name) from None
        return self


def _check(name: str, value: object) -> None:
    """Raises ValueError for an option that there is not, or that cannot be had here with this value."""
    if name not in _DEFAULTS:
        valid = ("tables", *_DEFAULTS)
        raise ValueError(f"unknown option{did_you_mean(name, valid)}; valid options: {', '.join(valid)}")
    wanted = type(_DEFAULTS[name])
    if type(value) is not wanted:
        raise ValueError(f"is {value!r}: wanted {'true or false' if wanted is bool else 'text'}")
    if name == "route.topic.regex" and value != _DEFAULTS[name]:
        raise ValueError(
            "no other expression than the default is known here: write the topic in route.topic.replacement"
        )
    if name == "route.topic.replacement" and re.search(r"\$(?!\{routedByValue\})", str(value)):
        raise ValueError(f"is {value!r}: wanted a topic with ${{routedByValue}} where the column's value is to stand")
    if name == "table.op.invalid.behavior" and value not in ("warn", "error", "fatal"):
        raise ValueError(f"is {value!r}: wanted warn, error or fatal")
    if name == "table.fields.additional.placement":
        _placements(str(value))


def _placements(text: str) -> list[tuple[str, str]]:
    """Column and header of each `column:header[:name]`; raises ValueError for another placement."""
    placements = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        column, _, rest = part.partition(":")
        kind, _, name = rest.partition(":")
        if kind != "header" or not column:
            raise ValueError(f"{part!r} is placed in {kind!r}: wanted column:header or column:header:name")
        placements.append((column, name or column))
    return placements
