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
from changefeed.settings.section import NestedSettingError, Section
from changefeed.settings.table_pattern import TablePatterns


@dataclass(frozen=True)
class OutboxOption:
    """An option of Debezium's router: its default, its effect, and its valid values if they are limited."""

    default: Any
    description: str
    choices: tuple[str, ...] = ()


OPTIONS: Mapping[str, OutboxOption] = {
    "table.field.event.id": OutboxOption("id", "Column of the header `id`."),
    "table.field.event.key": OutboxOption("aggregateid", "Column of the record's key, which chooses the partition."),
    "table.field.event.payload": OutboxOption(
        "payload", "Column of the record's value. If it is NULL, the record has no value."
    ),
    "table.fields.additional.placement": OutboxOption(
        "",
        "Where other columns go, separated by commas: `column:header[:name]` (no header for NULL), "
        "`column:envelope[:name]`, or `column:partition` (the partition's number; for NULL the key chooses).",
    ),
    "table.fields.additional.error.on.missing": OutboxOption(
        True, "`false`: a placement of a column that the table does not have is skipped."
    ),
    "table.expand.json.payload": OutboxOption(
        False, "`true`: a payload that is a JSON object or array is written as compact JSON, in an envelope as JSON."
    ),
    "table.json.payload.null.behavior": OutboxOption(
        "ignore",
        "`ignore`: null members of an expanded payload are left out; `optional_bytes`: they stay.",
        ("ignore", "optional_bytes"),
    ),
    "route.by.field": OutboxOption("aggregatetype", "Column that chooses the topic."),
    "route.topic.regex": OutboxOption(
        "(?<routedByValue>.*)",
        "Regular expression (RE2) that the column's complete text has to match. If it does not, the text is the topic.",
    ),
    "route.topic.replacement": OutboxOption(
        "outbox.event.${routedByValue}", "The topic, with groups of the expression: `${name}` or `$1`."
    ),
    "route.tombstone.on.empty.payload": OutboxOption(
        False, "`true`: an empty payload also makes a record without a value."
    ),
    "table.op.invalid.behavior": OutboxOption(
        "warn",
        "What an update of a row does: `warn` logs a warning, `error` and `fatal` stop the run.",
        ("warn", "error", "fatal"),
    ),
}
_DEFAULTS: Mapping[str, Any] = {name: option.default for name, option in OPTIONS.items()}
_UNSUPPORTED: Mapping[str, str] = {
    "table.field.event.timestamp": "a record's timestamp is that of the binlog event: place the column in a header "
    "or the envelope",
    "table.field.event.schema.version": "messages of an outbox have no Connect schema: place the column in a header "
    "or the envelope",
}
"""Options of Debezium's router that changefeed does not have, and why."""
PAYLOAD = "payload"
"""The payload's field in an envelope."""
_GROUP = re.compile(r"\$(?:\{(\w+)\}|(\d))")
"""A reference to a group of the expression, in Java's syntax."""


class Place(StrEnum):
    """Where an additional column is placed: in a header, in the envelope, or as the partition number."""

    HEADER = "header"
    ENVELOPE = "envelope"
    PARTITION = "partition"


@dataclass(frozen=True)
class Placement:
    """An additional column of the table, where it is placed, and its name in that place."""

    column: str
    place: Place
    name: str


@dataclass(frozen=True)
class OutboxColumns:
    """The roles of an outbox table's columns, and the rule for the topics of its messages.

    ``regex`` and ``replacement``, in Java's syntax, turn the text of column ``route_by`` into the topic.
    ``expands_payload``: the payload is written as JSON, without nulls unless ``keeps_nulls``. ``stops_at_updates``: an
    update of a row stops the run. ``stops_at_missing``: the run stops if the table does not have a placed column.
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
        """The topic of a row with ``value`` in column ``route_by``. If ``regex`` does not match, it is ``value``."""
        matched = self._expression.fullmatch(value)
        if matched is None:
            return value
        return _GROUP.sub(lambda group: matched[group[1] or int(group[2])] or "", self.replacement)

    @cached_property
    def _expression(self) -> UserPattern:
        return UserPattern(self.regex)


class OutboxSettings(Section):
    """Outbox tables, whose rows are messages. Further keys are options of Debezium's outbox event router."""

    model_config = ConfigDict(extra="allow")

    tables: Annotated[TablePatterns, Field(min_length=1)]
    """Patterns of the outbox tables."""

    def matches(self, database: str, table: str) -> bool:
        """Whether the table's rows are messages."""
        return matches_any(tuple(self.tables), database, table)

    @property
    def columns(self) -> OutboxColumns:
        """The values of all options."""
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
            placements=tuple(_parse_placements(given["table.fields.additional.placement"])),
        )

    @model_validator(mode="after")
    def _check_options(self) -> OutboxSettings:
        given = self.model_extra or {}
        for name, value in given.items():
            try:
                _check_option(name, value)
            except ValueError as error:
                raise NestedSettingError(str(error), name) from None
        name = "route.topic.replacement"
        try:
            _check_topic({**_DEFAULTS, **given}["route.topic.regex"], {**_DEFAULTS, **given}[name])
        except ValueError as error:
            raise NestedSettingError(str(error), name) from None
        return self


def _check_option(name: str, value: object) -> None:
    """Raises ValueError for an unknown option, and for a value that the option does not have."""
    if name in _UNSUPPORTED:
        raise ValueError(f"this option of Debezium is not supported: {_UNSUPPORTED[name]}")
    if name not in _DEFAULTS:
        valid = ("tables", *_DEFAULTS)
        raise ValueError(f"unknown option{did_you_mean(name, valid)}; valid options: {', '.join(valid)}")
    expected = type(_DEFAULTS[name])
    if type(value) is not expected:
        raise ValueError(f"expected {'true or false' if expected is bool else 'text'}, found {value!r}")
    if (choices := OPTIONS[name].choices) and value not in choices:
        *others, last = choices
        raise ValueError(f"expected {', '.join(others)} or {last}, found {value!r}")
    if name == "route.topic.regex":
        problem = UserPattern(str(value)).problem
        if problem:
            raise ValueError(f"{str(value)[:100]!r} is no regular expression: {problem}")
    if name == "table.fields.additional.placement":
        list(_parse_placements(str(value)))


def _check_topic(regex: str, replacement: str) -> None:
    expression = UserPattern(regex)
    for group in _GROUP.finditer(replacement):
        if group[1] is not None and group[1] not in expression.names:
            names = ", ".join(expression.names) or "none"
            raise ValueError(
                f"{replacement!r} refers to group {group[1]!r}, and the groups of route.topic.regex are: {names}"
            )
        if group[2] is not None and int(group[2]) > expression.groups:
            raise ValueError(
                f"{replacement!r} refers to ${group[2]}, and route.topic.regex has {expression.groups} groups"
            )
    if "$" in _GROUP.sub("", replacement):
        raise ValueError(
            f"expected a topic with ${{routedByValue}} in place of the column's value, found {replacement!r}"
        )


def _parse_placements(text: str) -> Iterator[Placement]:
    """Yield each `column:place[:name]`; raises ValueError for an unknown place, and for a place that is used twice."""
    taken: set[tuple[Place, str]] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        column, _, rest = part.partition(":")
        word, _, name = rest.partition(":")
        if not column or word not in list(Place):
            near = did_you_mean(word, [place.value for place in Place])
            raise ValueError(
                f"expected column:header[:name], column:envelope[:name] or column:partition, found {part!r} with place "
                f"{word!r}{near}"
            )
        place = Place(word)
        placed = (place, "" if place is Place.PARTITION else name or column)
        if placed in taken or placed == (Place.ENVELOPE, PAYLOAD) or placed == (Place.HEADER, "id"):
            raise ValueError(f"the place of {part!r} is already in use: give it another name")
        taken.add(placed)
        yield Placement(column, place, name or column)
