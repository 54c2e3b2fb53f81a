"""Base class of the sections of YAML settings, and the types of values that several sections use."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def check_connection_id(text: str) -> str:
    """Return ``text``; raises ValueError if it looks like an address or a password instead of a connection id."""
    if "://" in text or "@" in text:
        raise ValueError("expected the id of a connection: its address and password belong in that connection")
    return text


_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration_seconds(text: str) -> float:
    """The seconds of a `Duration`; raises ValueError for another text."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h)", text)
    if found is None:
        raise ValueError("expected a time such as 500ms, 1s, 10m or 1h")
    return float(found[1]) * _SECONDS[found[2]]


def check_duration(text: str) -> str:
    """Return ``text``; raises ValueError if it is no `Duration`."""
    duration_seconds(text)
    return text


Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]
Positive = Annotated[int, Field(gt=0, lt=2**63)]
Duration = Annotated[str, AfterValidator(check_duration), Field(max_length=20)]
"""A number with a unit: 500ms, 1s, 10m, 1h."""
ConnectionId = Annotated[str, AfterValidator(check_connection_id), Field(max_length=250)]


class NestedSettingError(ValueError):
    """Raised by a section's validator for a wrong setting inside it; ``path`` are the keys that lead to the setting."""

    def __init__(self, message: str, *path: str | int) -> None:
        super().__init__(message)
        self.path = path


class Section(BaseModel):
    """A section of YAML settings: unknown keys are refused, and values are frozen after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, serialize_by_alias=True)
