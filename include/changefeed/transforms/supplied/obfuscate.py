"""Make text unreadable and leave its shape: letters become x or X, digits 9."""

from __future__ import annotations

from collections.abc import Sequence

from changefeed.transforms.change import Change


def transform(change: Change, columns: Sequence[str], keep: int = 0) -> Change:
    """``change`` with the text of ``columns`` obfuscated but for its last ``keep`` characters.

    Raises TypeError for a column that is no text.
    """
    for row in change.rows:
        for column in columns:
            if row.get(column) is not None:
                row[column] = obfuscated(row[column], keep)
    return change


def obfuscated(text: str, keep: int) -> str:
    """The text with its characters but the last ``keep`` replaced by such as tell their kind only."""
    if not isinstance(text, str):
        raise TypeError(f"wanted text to obfuscate, found {type(text).__name__}")
    end = max(0, len(text) - keep)
    return "".join(map(_kind, text[:end])) + text[end:]


def _kind(character: str) -> str:
    if character.isdigit():
        return "9"
    return ("X" if character.isupper() else "x") if character.isalpha() else character
