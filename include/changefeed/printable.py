"""Escapes foreign text for terminals, logs and pages."""

from __future__ import annotations

_KEPT = frozenset("\n\t")


def printable(text: str) -> str:
    """``text`` with an escape, as in \\x1b or \\u202e, for each character that prints nothing, moves the cursor or
    changes the direction of what follows; line ends and tabs stay.

    Names of tables and topics and errors of a server may have any character: some erase a line of the terminal, or show
    `gnp.exe` for `exe.png`.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in _KEPT else _escape(each) for each in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
