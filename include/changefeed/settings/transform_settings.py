"""`transforms` of a pipeline's YAML: which Python functions the changes of which tables go through."""

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
    """A function with its arguments, secrets among them, as it is called for the tables of ``pattern``."""

    pattern: str
    source: TransformSource
    arguments: Mapping[str, Any] = field(repr=False)

    def takes(self, database: str, table: str) -> bool:
        """Whether changes of the table go through it."""
        return matches(self.pattern, database, table)


class TransformSettings(Section):
    """One function, and the tables whose changes go through it."""

    tables: TablePattern
    """Pattern of "database.table"."""
    function: Annotated[str, Field(max_length=100)]
    """The name of its file, without `.py`, in the folder of transforms; or of a supplied one."""
    arguments: dict[str, Any] = Field(default={}, repr=False)
    """What it is called with besides the change, by name."""
    secrets: dict[str, SecretSettings] = Field(default={}, repr=False)
    """Further arguments, by name, whose texts do not stand in the YAML."""
    _source: TransformSource = PrivateAttr()

    @field_validator("function")
    @classmethod
    def _is_there(cls, name: str) -> str:
        try:
            transform_source(name)
        except SettingsError as error:
            raise ValueError(str(error)) from None
        return name

    @model_validator(mode="after")
    def _fits(self) -> TransformSettings:
        if twice := self.arguments.keys() & self.secrets.keys():
            raise ValueError(f"{', '.join(sorted(twice))} stands in `arguments` and in `secrets`: wanted one of them")
        try:
            self._source = transform_source(self.function)
            self._source.check_arguments({**self.arguments, **dict.fromkeys(self.secrets, "")})
        except SettingsError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def source(self) -> TransformSource:
        """The function as it was when the YAML was read."""
        return self._source

    def call(self, lookup: ConnectionLookup) -> TransformCall:
        """The function with its arguments; raises SettingsError for a secret that cannot be had."""
        secrets = {name: where.read(lookup) for name, where in self.secrets.items()}
        return TransformCall(self.tables, self._source, {**self.arguments, **secrets})
