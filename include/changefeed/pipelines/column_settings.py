"""`columns` of a pipeline's YAML: what is left out of records, and what is masked."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import Field, SecretStr, field_validator, model_validator

from changefeed.pipelines.column_rules import Constant, FirstCharacters, Sha256, Treatment
from changefeed.pipelines.section import Section

Patterns = TypeVar("Patterns", list[str], dict[str, Any])


class MaskSettings(Section):
    """What stands in place of a column's values: exactly one of these."""

    text: str | None = None
    """This text; or `text: null`."""
    characters: Annotated[int, Field(ge=0)] | None = None
    """The first so many characters of a text column."""
    sha256: SecretStr | None = Field(default=None, repr=False)
    """The SHA-256 of this salt and the value's text, in hexadecimal."""

    @model_validator(mode="after")
    def _is_one(self) -> MaskSettings:
        if len(self.model_fields_set) != 1 or (
            self.treatment == Constant(None) and "text" not in self.model_fields_set
        ):
            raise ValueError("wanted one of text (or text: null), characters, sha256 (its salt)")
        return self

    @property
    def treatment(self) -> Treatment:
        """The mask as a value."""
        if self.characters is not None:
            return FirstCharacters(self.characters)
        return Constant(self.text) if self.sha256 is None else Sha256(self.sha256.get_secret_value())


class ColumnSettings(Section):
    """Which columns are left out of the records, and which are masked."""

    exclude: list[str] = Field(default=[])
    """Patterns of "database.table.column": these columns are left out of all records."""
    mask: dict[str, MaskSettings] = Field(default={})
    """By such a pattern, what stands in place of the values."""

    @field_validator("exclude", "mask")
    @classmethod
    def _name_a_column(cls, patterns: Patterns) -> Patterns:
        for pattern in patterns:
            if pattern.count(".") < 2:
                raise ValueError(f"{pattern!r} names no column: wanted DATABASE.TABLE.COLUMN, as in shop.*.email")
        return patterns
