"""`outbox` of a pipeline's YAML: tables whose rows are messages, under the names of Debezium's outbox event router.

Source: https://debezium.io/documentation/reference/stable/transformations/outbox-event-router.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from changefeed.errors import did_you_mean
from changefeed.model.table_pattern import matches_any
from changefeed.model.user_pattern import UserPattern
from changefeed.settings.section import MistakeInsideError, Section
from changefeed.settings.table_pattern import TablePatterns

_DEFAULTS: Mapping[str, Any] = {
    "table.field.event.id": "id",
    "table.field.event.key": "aggregateid",
    "table.field.event.payload": "payload",
    "table.fields.additional.placement": "",
    "table.fields.additional.error.on.missing": True,
    "table.expand.json.payload": False,
    "table.json.payload.null.behavior": "ignore",
    "route.by.field": "aggregatetype",
    "route.topic.regex": "(?<routedByValue>.*)",
    "route.topic.replacement": "outbox.event.${routedByValue}",
    "route.tombstone.on.empty.payload": False,
    "table.op.invalid.behavior": "warn",
}
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "table.json.payload.null.behavior": ("ignore", "optional_bytes"),
    "table.op.invalid.behavior": ("warn", "error", "fatal"),
}
_NOT_HERE: Mapping[str, str] = {
    "table.field.event.timestamp": "a record's timestamp is that of the event in the binlog here: place the column in "
    "a header or the envelope",
    "table.field.event.schema.version": "messages of an outbox have no Connect schema here, whose version that would "
    "be: place the column in a header or the envelope",
}
"""Options of Debezium's that there are not, and why."""
PAYLOAD = "payload"
"""The payload's name in an envelope."""
_GROUP = re.compile(r"\$(?:\{(\w+)\}|(\d))")
"""A group of the expression in a topic, as Java spells it."""


class Place(StrEnum):
    """Where else a column goes."""

    HEADER = "header"
    ENVELOPE = "envelope"
    PARTITION = "partition"


@dataclass(frozen=True)
class Placement:
    """A further column of the table, and what it is called in its place."""

    column: str
    place: Place
    name: str


@dataclass(frozen=True)
class OutboxColumns:
    """Which column of an outbox table is what, and where its messages go.

    ``regex`` and ``replacement`` make the topic of the text of column ``route_by``, as Java spells them.
    ``expands_payload`` makes JSON of the payload, without its nulls unless ``keeps_nulls``. ``stops_at_updates`` says
    that an update of a row stops the run, ``stops_at_missing`` that a placement of a column does that the table does
    not have.
    """

    id: str
    key: str
    payload: str
    route_by: str
    regex: str
    replacement: str
    empty_is_tombstone: bool = False
    expands_payload: bool = False
    keeps_nulls: bool = False
    stops_at_updates: bool = False
    stops_at_missing: bool = True
    placements: tuple[Placement, ...] = ()

    def topic(self, value: str) -> str:
        """The topic of a row with ``value`` in its column ``route_by``: ``value`` itself where it does not match."""
        matched = self._expression.fullmatch(value)
        if matched is None:
            return value
        return _GROUP.sub(lambda group: matched[group[1] or int(group[2])] or "", self.replacement)

    @cached_property
    def _expression(self) -> UserPattern:
        return UserPattern(self.regex)


class OutboxSettings(Section):
    """Outbox tables, and of Debezium's options those whose values are other than its defaults."""

    model_config = ConfigDict(extra="allow")

    tables: Annotated[TablePatterns, Field(min_length=1)]

    def takes(self, database: str, table: str) -> bool:
        """Whether the table's rows are messages."""
        return matches_any(tuple(self.tables), database, table)

    @property
    def columns(self) -> OutboxColumns:
        """The options, read."""
        given = {**_DEFAULTS, **(self.model_extra or {})}
        return OutboxColumns(
            id=given["table.field.event.id"],
            key=given["table.field.event.key"],
            payload=given["table.field.event.payload"],
            route_by=given["route.by.field"],
            regex=given["route.topic.regex"],
            replacement=given["route.topic.replacement"],
            empty_is_tombstone=given["route.tombstone.on.empty.payload"],
            expands_payload=given["table.expand.json.payload"],
            keeps_nulls=given["table.json.payload.null.behavior"] != "ignore",
            stops_at_updates=given["table.op.invalid.behavior"] != "warn",
            stops_at_missing=given["table.fields.additional.error.on.missing"],
            placements=tuple(_placements(given["table.fields.additional.placement"])),
        )

    @model_validator(mode="after")
    def _has_known_options(self) -> OutboxSettings:
        given = self.model_extra or {}
        for name, value in given.items():
            try:
                _check(name, value)
            except ValueError as error:
                raise MistakeInsideError(str(error), name) from None
        name = "route.topic.replacement"
        try:
            _check_topic({**_DEFAULTS, **given}["route.topic.regex"], {**_DEFAULTS, **given}[name])
        except ValueError as error:
            raise MistakeInsideError(str(error), name) from None
        return self


def _check(name: str, value: object) -> None:
    """Raises ValueError for an option that there is not, or that cannot be had here with this value."""
    if name in _NOT_HERE:
        raise ValueError(f"there is no such option here: {_NOT_HERE[name]}")
    if name not in _DEFAULTS:
        valid = ("tables", *_DEFAULTS)
        raise ValueError(f"unknown option{did_you_mean(name, valid)}; valid options: {', '.join(valid)}")
    wanted = type(_DEFAULTS[name])
    if type(value) is not wanted:
        raise ValueError(f"is {value!r}: wanted {'true or false' if wanted is bool else 'text'}")
    if name in _CHOICES and value not in _CHOICES[name]:
        *others, last = _CHOICES[name]
        raise ValueError(f"is {value!r}: wanted {', '.join(others)} or {last}")
    if name == "route.topic.regex":
        problem = UserPattern(str(value)).problem
        if problem:
            raise ValueError(f"is {str(value)[:100]!r}, which is no regular expression: {problem}")
    if name == "table.fields.additional.placement":
        list(_placements(str(value)))


def _check_topic(regex: str, replacement: str) -> None:
    expression = UserPattern(regex)
    for group in _GROUP.finditer(replacement):
        if group[1] is not None and group[1] not in expression.names:
            names = ", ".join(expression.names) or "none"
            raise ValueError(
                f"is {replacement!r}: route.topic.regex has no group {group[1]!r}, its groups are: {names}"
            )
        if group[2] is not None and int(group[2]) > expression.groups:
            raise ValueError(
                f"is {replacement!r}: route.topic.regex has {expression.groups} groups, and no ${group[2]}"
            )
    if "$" in _GROUP.sub("", replacement):
        raise ValueError(
            f"is {replacement!r}: wanted a topic with ${{routedByValue}} where the column's value is to stand"
        )


def _placements(text: str) -> Iterator[Placement]:
    """Each `column:place[:name]`; raises ValueError for another place, and for one that is taken twice."""
    taken: set[tuple[Place, str]] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        column, _, rest = part.partition(":")
        word, _, name = rest.partition(":")
        if not column or word not in list(Place):
            near = did_you_mean(word, [place.value for place in Place])
            raise ValueError(
                f"{part!r} is placed in {word!r}{near}: wanted column:header, column:envelope, each with :name or "
                "without, or column:partition"
            )
        place = Place(word)
        placed = (place, "" if place is Place.PARTITION else name or column)
        if placed in taken or placed == (Place.ENVELOPE, PAYLOAD) or placed == (Place.HEADER, "id"):
            raise ValueError(f"{part!r} is placed where something stands already: give it another name")
        taken.add(placed)
        yield Placement(column, place, name or column)
