"""Base class of requests, the types of their values, and the JSON schemas of their fields for forms."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from changefeed.errors import SettingsError, did_you_mean
from changefeed.model.coordinates import COORDINATES_PATTERN, FILE_PATTERN, FIRST_POSITION, BinlogCoordinates
from changefeed.model.gtid import GtidSet
from changefeed.model.iso_time import seconds_of
from changefeed.model.seek import SeekTarget
from changefeed.model.user_pattern import LONGEST, MOST
from changefeed.settings.section import Section
from changefeed.settings.table_pattern import TablePattern, check_pattern_count


class Request(Section):
    """A request. Its fields are the options of the command, the params of the DAG and the body of the REST call: each
    is declared, described and checked here only.
    """

    model_config = ConfigDict(strict=False)

    ACTION: ClassVar[str]
    """The action's name in the command; error messages begin with it."""

    @model_validator(mode="before")
    @classmethod
    def _drop_empty_fields(cls, values: Any) -> Any:
        """Drop optional fields that a form sends empty."""
        if not isinstance(values, dict):
            return values
        optional = {name for name, field in cls.model_fields.items() if not field.is_required() and not field.default}
        return {name: value for name, value in values.items() if value != "" or name not in optional}

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """The request with ``values``, which come from options or a form; None and '' mean that a value is missing.

        Raises SettingsError with one line for each mistake.
        """
        try:
            return cls.model_validate({name: value for name, value in values.items() if value is not None})
        except ValidationError as error:
            raise SettingsError("\n".join(map(cls._line, error.errors()))) from None

    @classmethod
    def _line(cls, mistake: Any) -> str:
        key = ".".join(str(part) for part in mistake["loc"])
        hint = ""
        if mistake["type"] == "extra_forbidden":
            hint = f"{did_you_mean(key, cls.model_fields)}; valid: {', '.join(cls.model_fields)}"
        return f"{cls.ACTION}: {key + ': ' if key else ''}{mistake['msg'].removeprefix('Value error, ')}{hint}"


class PipelineRequest(Request):
    """A request with the name of its pipeline."""

    pipeline: str


def check_reason(why: str, action: str) -> None:
    """Raises SettingsError if the reason of ``action`` ("a seek") is empty."""
    if not why.strip():
        raise SettingsError(f"{action} needs a reason (why): it is what the next person reads in the record")


def _check_by(parse: Callable[[str], object]) -> AfterValidator:
    """A validator that accepts a text if ``parse`` can read it, and does not change the text."""

    def check(text: str) -> str:
        try:
            parse(text)
        except SettingsError as error:
            raise ValueError(str(error)) from None
        return text

    return AfterValidator(check)


Coordinates = Annotated[
    str,
    Field(max_length=1000, json_schema_extra={"pattern": COORDINATES_PATTERN}),
    _check_by(BinlogCoordinates.parse),
]
"""FILE:POSITION."""
FileName = Annotated[
    str,
    Field(max_length=1000, json_schema_extra={"pattern": FILE_PATTERN}),
    _check_by(lambda name: BinlogCoordinates(name, FIRST_POSITION)),
]
"""Name of a binlog file."""
GtidText = Annotated[str, Field(max_length=1_000_000), _check_by(GtidSet.parse)]
Time = Annotated[str, Field(max_length=1000, json_schema_extra={"format": "date-time"}), _check_by(seconds_of)]
"""ISO 8601; a time without an offset is UTC."""
Target = Annotated[str, Field(min_length=1, max_length=60_000), _check_by(SeekTarget.parse)]
"""Target of a seek: earliest, latest, coordinates, a GTID set or a time."""

Tables = Annotated[
    list[Annotated[TablePattern, Field(max_length=LONGEST)]],
    AfterValidator(check_pattern_count),
    Field(
        max_length=MOST,
        title="Tables",
        description="Patterns of DATABASE.TABLE, such as shop.*, of tables that the pipeline captures. Default: all of "
        "them.",
    ),
]
Count = Annotated[int, Field(gt=0, lt=2**31)]


@cache
def build_form_schemas(model: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """The JSON schema of each field of ``model``, without references. The `type` of a field that may be null is
    ["null", TYPE]; bounds are inclusive."""
    complete = model.model_json_schema()
    return {name: _flatten(schema, complete.get("$defs", {})) for name, schema in complete["properties"].items()}


def _flatten(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    flat = dict(schema)
    if choices := flat.pop("anyOf", None):
        (value,) = [choice for choice in choices if choice != {"type": "null"}]
        flat = {**value, **flat, "type": ["null", value["type"]]}
    if reference := flat.pop("$ref", None):
        flat = {**definitions[reference.rpartition("/")[2]], **flat}
    for excluded, included, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
        if excluded in flat:
            flat[included] = flat.pop(excluded) + step
    return flat
