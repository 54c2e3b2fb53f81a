"""`transforms` of a pipeline's YAML: Python functions that are applied to changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, PrivateAttr, field_validator, model_validator

from changefeed.errors import SettingsError
from changefeed.model.connection import ConnectionLookup
from changefeed.model.table_pattern import matches
from changefeed.settings.column_settings import SecretSettings
from changefeed.settings.section import Section
from changefeed.settings.table_pattern import TablePattern
from changefeed.settings.transform_source import TransformSource, transform_source


@dataclass(frozen=True)
class TransformCall:
    """A function that is called for the tables of ``pattern``, with its arguments, including secrets."""

    pattern: str
    source: TransformSource
    arguments: Mapping[str, Any] = field(repr=False)

    def matches(self, database: str, table: str) -> bool:
        """Whether the function is applied to changes of the table."""
        return matches(self.pattern, database, table)


class TransformSettings(Section):
    """A Python function that is applied to changes."""

    tables: TablePattern
    """Pattern of the tables."""
    function: Annotated[str, Field(max_length=100)]
    """Name of the function's file, without `.py`, in `include/transforms`; or of a function that comes with changefeed.
    """
    arguments: dict[str, Any] = Field(default={}, repr=False)
    """Arguments of the function, by name."""
    secrets: dict[str, SecretSettings] = Field(default={}, repr=False)
    """Further arguments, by name, whose values are not in the YAML."""
    _source: TransformSource = PrivateAttr()

    @field_validator("function")
    @classmethod
    def _check_exists(cls, name: str) -> str:
        try:
            transform_source(name)
        except SettingsError as error:
            raise ValueError(str(error)) from None
        return name

    @model_validator(mode="after")
    def _check_arguments(self) -> TransformSettings:
        if twice := self.arguments.keys() & self.secrets.keys():
            raise ValueError(f"{', '.join(sorted(twice))} is in `arguments` and in `secrets`: expected one of them")
        try:
            self._source = transform_source(self.function)
            self._source.check_arguments({**self.arguments, **dict.fromkeys(self.secrets, "")})
        except SettingsError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def source(self) -> TransformSource:
        """The function as it was when the YAML file was read."""
        return self._source

    def call(self, lookup: ConnectionLookup) -> TransformCall:
        """The function with its arguments; raises SettingsError if a secret is missing."""
        secrets = {name: where.read(lookup) for name, where in self.secrets.items()}
        return TransformCall(self.tables, self._source, {**self.arguments, **secrets})
