"""`format` of a pipeline's YAML: a wire format's name, and its own options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ConfigDict, PrivateAttr, field_validator, model_serializer, model_validator

from changefeed.errors import OptionError, SettingsError
from changefeed.formats.format import FormatSettings, RowRules, row_rules_of
from changefeed.formats.registry import WITH_SCHEMA_REGISTRY, check_name, format_of
from changefeed.settings.section import MistakeInsideError, Section, check_connection_id


class FormatChoice(Section):
    """A name alone, or a mapping of `name` and the options that this format knows; the format checks them itself."""

    model_config = ConfigDict(extra="allow")

    name: str
    """A name that `formats.registry` knows."""
    _row_rules: RowRules = PrivateAttr(default=RowRules())

    @property
    def row_rules(self) -> RowRules:
        """What the options say of rows."""
        return self._row_rules

    @property
    def options(self) -> Mapping[str, object]:
        """The format's options, by name."""
        return self.model_extra or {}

    @property
    def registry(self) -> str | None:
        """Connection id of the schema registry; None for a format that has none."""
        registry = self.options.get("registry")
        return str(registry) if registry and self.name in WITH_SCHEMA_REGISTRY else None

    def check_registry(self, beside: Sequence[str]) -> None:
        """Raises ValueError where the format has its schemas in a registry, and none is named, or a setting stands
        ``beside`` it that such a format does not go with."""
        if self.name not in WITH_SCHEMA_REGISTRY:
            return
        if self.registry is None:
            raise ValueError(
                f"format {self.name!r} needs a schema registry: give its connection id, as in "
                f"`format: {{name: {self.name}, registry: schema_registry}}`"
            )
        check_connection_id(self.registry)
        for setting in beside:
            raise ValueError(f"format {self.name!r} does not go with `{setting}`: leave that out")

    @model_validator(mode="before")
    @classmethod
    def _of_name(cls, given: Any) -> Any:
        if isinstance(given, str):
            _check_name(given)
            return {"name": given}
        if not isinstance(given, dict | FormatChoice):
            raise ValueError("wanted the name of a format, or a mapping with `name` and options of that format")
        return given

    @field_validator("name")
    @classmethod
    def _is_registered(cls, name: str) -> str:
        _check_name(name)
        return name

    @model_validator(mode="after")
    def _takes_its_options(self) -> FormatChoice:
        try:
            self._row_rules = row_rules_of(format_of(self.name, FormatSettings("", 0, options=self.options)))
        except OptionError as error:
            raise MistakeInsideError(str(error), *error.path) from None
        return self

    @model_serializer
    def _as_written(self) -> str | dict[str, object]:
        """The name alone where there are no options."""
        return {"name": self.name, **self.options} if self.options else self.name


def _check_name(name: str) -> None:
    try:
        check_name(name)
    except SettingsError as error:
        raise ValueError(str(error)) from None
