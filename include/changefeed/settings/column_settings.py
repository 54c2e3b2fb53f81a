"""`columns` of a pipeline's YAML: excluded and masked columns."""

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
    """A secret that is not in the YAML: exactly one of these keys."""

    connection: ConnectionId | None = None
    """Connection id. The secret is the connection's password."""
    environment: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,249}$")] | None = None
    """Name of an environment variable: of the process that starts the job, or of the API server for `scrape_token`."""

    @model_validator(mode="after")
    def _check_exactly_one(self) -> SecretSettings:
        if (self.connection is None) == (self.environment is None):
            raise ValueError(
                "expected exactly one of connection (its password is the secret), environment (a variable's name)"
            )
        return self

    def read(self, lookup: ConnectionLookup) -> str:
        """The secret; raises SettingsError if the connection has no password or the variable is not set."""
        if self.connection is not None:
            return password_of(lookup(self.connection), self.connection)
        name = self.environment or ""
        if text := os.environ.get(name):
            return text
        raise SettingsError(
            f"environment variable {name!r}, which the settings name as a secret, is not set. Set it where it is read "
            "(a job's: on Airflow's workers, or in the shell; the page's: on the API server), or name a connection "
            "instead"
        )


class MaskSettings(Section):
    """What a record has instead of a column's value: exactly one of these keys."""

    text: str | None = None
    """This text, or null with `text: null`."""
    text_from: SecretSettings | None = Field(default=None, repr=False)
    """A secret text."""
    characters: Annotated[int, Field(ge=0)] | None = None
    """The first characters of a text column: this many."""
    sha256: SecretSettings | None = Field(default=None, repr=False)
    """The SHA-256 of a secret salt and the value's text, as 64 hexadecimal digits."""
    hmac_sha256: SecretSettings | None = Field(default=None, repr=False)
    """The HMAC-SHA256 of the value's text under a secret key, as 64 hexadecimal digits."""

    @field_validator("text_from", "sha256", "hmac_sha256", mode="before")
    @classmethod
    def _refuse_plain_text(cls, value: Any) -> Any:
        if value is None or isinstance(value, dict | SecretSettings):
            return value
        raise ValueError(
            "expected {connection: ITS_ID} or {environment: ITS_NAME}, because this file is read, copied and kept "
            "under version control. Store the secret as the password of a connection or in an environment variable. "
            "With the same salt the digests do not change"
        )

    @model_validator(mode="after")
    def _check_exactly_one(self) -> MaskSettings:
        given = {name for name in self.model_fields_set if name == "text" or getattr(self, name) is not None}
        if len(given) != 1 or given != self.model_fields_set:
            raise ValueError("expected exactly one of text (or text: null), text_from, characters, sha256, hmac_sha256")
        return self

    @property
    def secret(self) -> tuple[str, SecretSettings] | None:
        """The mask's key and the place of its secret; None for a mask without a secret."""
        keys = ("text_from", "sha256", "hmac_sha256")
        return next(((key, where) for key in keys if (where := getattr(self, key)) is not None), None)

    def build_treatment(self, lookup: ConnectionLookup) -> Treatment:
        """The mask with its secret, as a value; raises SettingsError if the secret is missing."""
        if self.characters is not None:
            return FirstCharacters(self.characters)
        if self.sha256 is not None:
            return Sha256(self.sha256.read(lookup))
        if self.hmac_sha256 is not None:
            return HmacSha256(self.hmac_sha256.read(lookup))
        return Constant(self.text_from.read(lookup) if self.text_from is not None else self.text)


class ColumnSettings(Section):
    """Columns that records do not have, and columns that are masked."""

    exclude: list[str] = Field(default=[])
    """Patterns of `DATABASE.TABLE.COLUMN`. Records do not have these columns."""
    mask: dict[str, MaskSettings] = Field(default={})
    """By pattern of `DATABASE.TABLE.COLUMN`, what replaces the values. The first pattern that matches a column counts.
    """

    @field_validator("exclude", "mask")
    @classmethod
    def _check_column_patterns(cls, patterns: Patterns) -> Patterns:
        check_patterns(patterns)
        for pattern in patterns:
            check_pattern(pattern)
            if not is_regex(pattern) and pattern.count(".") < 2:
                raise ValueError(f"{pattern!r} names no column: expected DATABASE.TABLE.COLUMN, as in shop.*.email")
        return patterns

    @property
    def secrets(self) -> Iterator[tuple[str, SecretSettings]]:
        """The places of the secrets of all masks, each with the key of its mask."""
        return (mask.secret for mask in self.mask.values() if mask.secret is not None)
