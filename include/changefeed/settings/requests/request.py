"""What the models of actions have in common: how they are read, their kinds of values, and their fields as a form."""

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
from changefeed.model.seek import SeekTarget, seconds_of
from changefeed.model.user_pattern import LONGEST, MOST
from changefeed.settings.section import Section
from changefeed.settings.table_pattern import TablePattern, few


class Request(Section):
    """What a person asks for. Its fields are the options of the command, the params of the DAG and the body of the REST
    call: each is declared, described and checked here, and nowhere else.
    """

    model_config = ConfigDict(strict=False)

    ACTION: ClassVar[str]
    """What the command calls it; mistakes begin with it."""

    @model_validator(mode="before")
    @classmethod
    def _without_emptied_fields(cls, values: Any) -> Any:
        """A field that a form sends empty is not given, where it need not be."""
        if not isinstance(values, dict):
            return values
        optional = {name for name, field in cls.model_fields.items() if not field.is_required() and not field.default}
        return {name: value for name, value in values.items() if value != "" or name not in optional}

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """From the values of options or of a form, of which None and '' are not given.

        Raises SettingsError, a line a mistake.
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


class OfPipeline(Request):
    """A request that travels, or is stored, with the name of its pipeline."""

    pipeline: str


def _read_by(parse: Callable[[str], object]) -> AfterValidator:
    """A check that ``parse`` can read a text, which stays as it was written; its error is the message."""

    def checked(text: str) -> str:
        try:
            parse(text)
        except SettingsError as error:
            raise ValueError(str(error)) from None
        return text

    return AfterValidator(checked)


Coordinates = Annotated[
    str,
    Field(max_length=1000, json_schema_extra={"pattern": COORDINATES_PATTERN}),
    _read_by(BinlogCoordinates.parse),
]
"""FILE:POSITION."""
FileName = Annotated[
    str,
    Field(max_length=1000, json_schema_extra={"pattern": FILE_PATTERN}),
    _read_by(lambda name: BinlogCoordinates(name, FIRST_POSITION)),
]
"""Of a binlog."""
GtidText = Annotated[str, Field(max_length=1_000_000), _read_by(GtidSet.parse)]
Time = Annotated[str, Field(max_length=1000, json_schema_extra={"format": "date-time"}), _read_by(seconds_of)]
"""ISO 8601; one without an offset is UTC."""
Place = Annotated[str, Field(min_length=1, max_length=60_000), _read_by(SeekTarget.parse)]
"""What a seek can go to: a word, or one of the above."""

Tables = Annotated[
    list[Annotated[TablePattern, Field(max_length=LONGEST)]],
    AfterValidator(few),
    Field(
        max_length=MOST,
        title="Tables",
        description="Patterns of DATABASE.TABLE, as in shop.*, among the tables that the pipeline captures. Default: "
        "all of them.",
    ),
]
Count = Annotated[int, Field(gt=0, lt=2**31)]


@cache
def form_of(model: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """The JSON schema of each field of ``model``, flat: its `type` is ["null", TYPE] where it may be null, and
    bounds are included."""
    whole = model.model_json_schema()
    return {name: _flat(schema, whole.get("$defs", {})) for name, schema in whole["properties"].items()}


def _flat(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
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
