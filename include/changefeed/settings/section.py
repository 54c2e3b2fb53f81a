"""What the parts of a pipeline's YAML have in common: how they are read, and the kinds of values that several have."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def check_connection_id(text: str) -> str:
    """``text``; ValueError where it is no id, but what belongs in the connection."""
    if "://" in text or "@" in text:
        raise ValueError("wanted the id of a connection: its address and password belong in that connection")
    return text


Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]
Positive = Annotated[int, Field(gt=0, lt=2**63)]
ConnectionId = Annotated[str, AfterValidator(check_connection_id), Field(max_length=250)]


class MistakeInsideError(ValueError):
    """Raised by the validator of a section about what stands inside of it, at ``path``."""

    def __init__(self, message: str, *path: str | int) -> None:
        super().__init__(message)
        self.path = path


class Section(BaseModel):
    """A part of a pipeline's YAML: nothing unknown passes, nothing changes after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, serialize_by_alias=True)
