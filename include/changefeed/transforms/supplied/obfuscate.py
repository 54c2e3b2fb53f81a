"""Make text unreadable but keep its shape: letters become x or X, digits become 9."""

from __future__ import annotations

from collections.abc import Sequence

from changefeed.transforms.change import Change


def transform(change: Change, columns: Sequence[str], keep: int = 0) -> Change:
    """``change`` with the text of ``columns`` obfuscated, except its last ``keep`` characters.

    Raises TypeError for a column that is not text.
    """
    for row in change.rows:
        for column in columns:
            if row.get(column) is not None:
                row[column] = obfuscate(row[column], keep)
    return change


def obfuscate(text: str, keep: int) -> str:
    """The text with all characters except the last ``keep`` replaced by a character of the same kind."""
    if not isinstance(text, str):
        raise TypeError(f"expected text to obfuscate, found {type(text).__name__}")
    end = max(0, len(text) - keep)
    return "".join(map(_kind, text[:end])) + text[end:]


def _kind(character: str) -> str:
    if character.isdigit():
        return "9"
    return ("X" if character.isupper() else "x") if character.isalpha() else character
