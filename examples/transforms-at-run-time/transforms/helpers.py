"""Helpers of the functions in this folder."""

from __future__ import annotations


def obfuscate(text: str) -> str:
    """``text`` with stars instead of all characters except the first and the last."""
    return text[0] + "*" * (len(text) - 2) + text[-1]
