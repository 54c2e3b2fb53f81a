"""How many bytes a character takes at most, by charset: `information_schema.character_sets.maxlen` of both servers."""

from __future__ import annotations

_MAX_BYTES = {
    **dict.fromkeys(("big5", "cp932", "euckr", "gb2312", "gbk", "sjis", "ucs2"), 2),
    **dict.fromkeys(("eucjpms", "ujis", "utf8mb3"), 3),
    **dict.fromkeys(("gb18030", "utf16", "utf16le", "utf32", "utf8mb4"), 4),
}


def max_bytes(charset: str) -> int:
    """The most bytes that one character takes."""
    return _MAX_BYTES.get(charset, 1)
