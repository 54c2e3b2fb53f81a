"""`columns` of a pipeline's YAML: what is left out of records, and what is masked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated, Any, TypeVar

from pydantic import Field, field_validator, model_validator

from changefeed.errors import SettingsError
from changefeed.model.column_rules import Constant, FirstCharacters, HmacSha256, Sha256, Treatment
from changefeed.model.connection import ConnectionLookup, password_of
from changefeed.model.table_pattern import check_pattern, check_patterns, is_regex
from changefeed.settings.section import ConnectionId, Section

Patterns = TypeVar("Patterns", list[str], dict[str, Any])


class SecretSettings(Section):
    """Where a text stands that is not written in the YAML: exactly one of these."""

    connection: ConnectionId | None = None
    """Connection id: the text is the connection's password."""
    environment: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,249}$")] | None = None
    """Name of an environment variable of the job."""

    @model_validator(mode="after")
    def _is_one(self) -> SecretSettings:
        if (self.connection is None) == (self.environment is None):
            raise ValueError("wanted one of connection (its password is taken), environment (a variable's name)")
        return self

    def read(self, lookup: ConnectionLookup) -> str:
        """The text; raises SettingsError where the connection or the variable does not have one."""
        if self.connection is not None:
            return password_of(lookup(self.connection), self.connection)
        name = self.environment or ""
        if text := os.environ.get(name):
            return text
        raise SettingsError(
            f"environment variable {name!r}, which the pipeline takes a secret from, is not set: set it where the job "
            "begins, on Airflow's workers or in the shell, or name a connection instead"
        )


class MaskSettings(Section):
    """What stands in place of a column's values: exactly one of these."""

    text: str | None = None
    """This text; or `text: null`."""
    text_from: SecretSettings | None = Field(default=None, repr=False)
    """A text that the YAML does not show."""
    characters: Annotated[int, Field(ge=0)] | None = None
    """The first so many characters of a text column."""
    sha256: SecretSettings | None = Field(default=None, repr=False)
    """The SHA-256 of a salt and the value's text, in hexadecimal."""
    hmac_sha256: SecretSettings | None = Field(default=None, repr=False)
    """The HMAC-SHA256 of the value's text under a key, in hexadecimal."""

    @field_validator("text_from", "sha256", "hmac_sha256", mode="before")
    @classmethod
    def _stands_elsewhere(cls, value: Any) -> Any:
        if value is None or isinstance(value, dict | SecretSettings):
            return value
        raise ValueError(
            "a secret may not stand in this file, where it is read, copied and kept under version control: keep it as "
            "the password of a connection, or in an environment variable, and write {connection: ITS_ID} or "
            "{environment: ITS_NAME} here. With the same salt, digests stay what they were"
        )

    @model_validator(mode="after")
    def _is_one(self) -> MaskSettings:
        given = {name for name in self.model_fields_set if name == "text" or getattr(self, name) is not None}
        if len(given) != 1 or given != self.model_fields_set:
            raise ValueError("wanted one of text (or text: null), text_from, characters, sha256, hmac_sha256")
        return self

    @property
    def secret(self) -> tuple[str, SecretSettings] | None:
        """The key that names a secret, and where that stands; None for a mask that needs none."""
        keys = ("text_from", "sha256", "hmac_sha256")
        return next(((key, where) for key in keys if (where := getattr(self, key)) is not None), None)

    def treatment(self, lookup: ConnectionLookup) -> Treatment:
        """The mask as a value, with its secret; raises SettingsError where that cannot be had."""
        if self.characters is not None:
            return FirstCharacters(self.characters)
        if self.sha256 is not None:
            return Sha256(self.sha256.read(lookup))
        if self.hmac_sha256 is not None:
            return HmacSha256(self.hmac_sha256.read(lookup))
        return Constant(self.text_from.read(lookup) if self.text_from is not None else self.text)


class ColumnSettings(Section):
    """Which columns are left out of the records, and which are masked."""

    exclude: list[str] = Field(default=[])
    """Patterns of "database.table.column": these columns are left out of all records."""
    mask: dict[str, MaskSettings] = Field(default={})
    """By such a pattern, what stands in place of the values."""

    @field_validator("exclude", "mask")
    @classmethod
    def _name_a_column(cls, patterns: Patterns) -> Patterns:
        check_patterns(patterns)
        for pattern in patterns:
            check_pattern(pattern)
            if not is_regex(pattern) and pattern.count(".") < 2:
                raise ValueError(f"{pattern!r} names no column: wanted DATABASE.TABLE.COLUMN, as in shop.*.email")
        return patterns

    @property
    def secrets(self) -> Iterator[tuple[str, SecretSettings]]:
        """Where the secrets of all masks stand, each with the key of the mask that it is for."""
        return (mask.secret for mask in self.mask.values() if mask.secret is not None)
