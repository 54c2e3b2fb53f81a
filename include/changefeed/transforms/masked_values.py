"""Masks of columns in plain Python, for values that Python writes."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

import orjson

from changefeed.errors import SettingsError
from changefeed.model.column_rules import Constant, Excluded, FirstCharacters, HmacSha256, Sha256, Treatment
from changefeed.transforms.change import Row


def mask_row(row: Row | None, treatments: Mapping[str, Treatment]) -> Row | None:
    """``row`` without excluded columns and with masks, as in messages; ``treatments`` are by column name."""
    if row is None or not treatments:
        return row
    return {
        name: mask_value(value, treatments.get(name), name)
        for name, value in row.items()
        if treatments.get(name) != Excluded()
    }


def mask_value(value: Any, treatment: Treatment | None, name: str) -> Any:
    """The masked ``value``, equal to the result of the kernel's masks; NULL stays NULL.

    Raises SettingsError if the mask keeps characters and the value is not text.
    """
    if value is None or treatment is None:
        return value
    match treatment:
        case Constant(text):
            return text
        case FirstCharacters(count):
            if not isinstance(value, str):
                raise SettingsError(
                    f"column {name!r} is no text after the pipeline's functions, so columns.mask cannot keep its "
                    f"first {count} characters: mask it with `text` or a hash, or leave it out"
                )
            return value[:count]
        case Sha256(salt):
            return hashlib.sha256(salt.encode() + text_to_hash(value)).hexdigest()
        case HmacSha256(key):
            return hmac.new(key.encode(), text_to_hash(value), "sha256").hexdigest()
    raise ValueError(f"{treatment} leaves no value")


def text_to_hash(value: Any) -> bytes:
    """The bytes of ``value`` for a hash: the bytes of a text, or the JSON of another value."""
    return value.encode() if isinstance(value, str) else orjson.dumps(value)
