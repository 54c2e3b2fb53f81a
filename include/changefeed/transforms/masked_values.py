"""Masks of columns in plain Python: where Python writes values, and not the kernel."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

import orjson

from changefeed.errors import SettingsError
from changefeed.model.column_rules import Constant, Excluded, FirstCharacters, HmacSha256, Sha256, Treatment
from changefeed.transforms.change import Row


def masked_row(row: Row | None, treatments: Mapping[str, Treatment]) -> Row | None:
    """``row`` as messages have it: without the columns that are left out, and with others masked; ``treatments`` are by
    the columns' names."""
    if row is None or not treatments:
        return row
    return {
        name: masked_value(value, treatments.get(name), name)
        for name, value in row.items()
        if treatments.get(name) != Excluded()
    }


def masked_value(value: Any, treatment: Treatment | None, name: str) -> Any:
    """What stands in place of ``value``, as the kernel's masks make it; NULL stays.

    Raises SettingsError for a value that is no text and is to be cut.
    """
    if value is None or treatment is None:
        return value
    match treatment:
        case Constant(text):
            return text
        case FirstCharacters(count):
            if not isinstance(value, str):
                raise SettingsError(
                    f"column {name!r} is no text behind the pipeline's functions, so columns.mask cannot keep its "
                    f"first {count} characters: mask it with `text` or a hash, or leave it out"
                )
            return value[:count]
        case Sha256(salt):
            return hashlib.sha256(salt.encode() + masked_text(value)).hexdigest()
        case HmacSha256(key):
            return hmac.new(key.encode(), masked_text(value), "sha256").hexdigest()
    raise ValueError(f"{treatment} leaves no value")


def masked_text(value: Any) -> bytes:
    """What is hashed of ``value``: a text's bytes, and the JSON of anything else."""
    return value.encode() if isinstance(value, str) else orjson.dumps(value)
