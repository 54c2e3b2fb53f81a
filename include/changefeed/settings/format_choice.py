"""`format` of a pipeline's YAML: the name of a wire format, and its options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ConfigDict, PrivateAttr, field_validator, model_serializer, model_validator

from changefeed.errors import OptionError, SettingsError
from changefeed.formats.format import FormatSettings, RowRules, row_rules_of
from changefeed.formats.registry import WITH_SCHEMA_REGISTRY, check_name, format_of
from changefeed.settings.section import NestedSettingError, Section, check_connection_id


class FormatChoice(Section):
    """A format: its name alone, or a mapping of `name` and options, which the format checks."""

    model_config = ConfigDict(extra="allow")

    name: str
    """Name of the format, as `formats.registry` has it."""
    _row_rules: RowRules = PrivateAttr(default=RowRules())

    @property
    def row_rules(self) -> RowRules:
        """The options of the format that select rows and keys."""
        return self._row_rules

    @property
    def options(self) -> Mapping[str, object]:
        """The format's options, by name."""
        return self.model_extra or {}

    @property
    def registry(self) -> str | None:
        """Connection id of the schema registry; None for a format without a registry."""
        registry = self.options.get("registry")
        return str(registry) if registry and self.name in WITH_SCHEMA_REGISTRY else None

    @property
    def registers_incompatible(self) -> bool:
        """Whether a schema is registered although it violates the compatibility rule of its subject."""
        return self.registry is not None and self.options.get("on_incompatible") == "register"

    def check_registry(self, other_settings: Sequence[str]) -> None:
        """Raises ValueError if the format requires a schema registry that is not set, or cannot be combined with one of
        ``other_settings``."""
        if self.name not in WITH_SCHEMA_REGISTRY:
            return
        if self.registry is None:
            raise ValueError(
                f"format {self.name!r} needs a schema registry: give its connection id, as in "
                f"`format: {{name: {self.name}, registry: schema_registry}}`"
            )
        check_connection_id(self.registry)
        for setting in other_settings:
            raise ValueError(f"format {self.name!r} does not support `{setting}`: remove that setting")

    @model_validator(mode="before")
    @classmethod
    def _expand_name(cls, given: Any) -> Any:
        if isinstance(given, str):
            _check_name(given)
            return {"name": given}
        if not isinstance(given, dict | FormatChoice):
            raise ValueError("expected the name of a format, or a mapping with `name` and options of that format")
        return given

    @field_validator("name")
    @classmethod
    def _check_registered(cls, name: str) -> str:
        _check_name(name)
        return name

    @model_validator(mode="after")
    def _check_options(self) -> FormatChoice:
        try:
            self._row_rules = row_rules_of(format_of(self.name, FormatSettings("", 0, options=self.options)))
        except OptionError as error:
            raise NestedSettingError(str(error), *error.path) from None
        return self

    @model_serializer
    def _serialize(self) -> str | dict[str, object]:
        """As in YAML: the name alone if there are no options."""
        return {"name": self.name, **self.options} if self.options else self.name


def _check_name(name: str) -> None:
    try:
        check_name(name)
    except SettingsError as error:
        raise ValueError(str(error)) from None
