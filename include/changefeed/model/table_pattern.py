"""Patterns of tables: "database.table" with * and ? as in a shell, or a regular expression between slashes."""

from __future__ import annotations

import fnmatch
import re
from functools import lru_cache


def is_regex(pattern: str) -> bool:
    """Whether the pattern is a regular expression: `/shop\\.orders_\\d+/`."""
    return len(pattern) > 2 and pattern.startswith("/") and pattern.endswith("/")


def regex_of(pattern: str) -> str:
    """The expression that the whole of a name has to match."""
    return rf"(?:{pattern[1:-1]})\Z" if is_regex(pattern) else fnmatch.translate(pattern)


@lru_cache(maxsize=1024)
def matcher(pattern: str) -> re.Pattern[str]:
    """What the whole of "database.table" has to match; raises re.error for a bad expression."""
    return re.compile(regex_of(pattern))


def matches(pattern: str, database: str, table: str) -> bool:
    """Whether the pattern takes the table."""
    return matcher(pattern).match(f"{database}.{table}") is not None


def matches_any(patterns: tuple[str, ...], database: str, table: str) -> bool:
    """Whether one of the patterns takes the table."""
    name = f"{database}.{table}"
    return any(each.match(name) for each in _compiled(patterns))


@lru_cache(maxsize=32)
def _compiled(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    """Shell patterns as one expression, as there may be thousands; the others each by itself, for its groups' sake."""
    globs = "|".join(fnmatch.translate(pattern) for pattern in patterns if not is_regex(pattern))
    return (re.compile(globs or "(?!)"), *(matcher(pattern) for pattern in patterns if is_regex(pattern)))


def names_database(pattern: str, database: str) -> bool:
    """Whether the pattern takes tables of this database, whatever their names are.

    Of an expression the part before its first `\\.` says so; of one that cannot be parted there, nobody knows: True.
    """
    if not is_regex(pattern):
        return fnmatch.fnmatchcase(database, pattern.partition(".")[0])
    part, dot, _ = pattern[1:-1].partition(r"\.")
    try:
        return not dot or re.fullmatch(part, database) is not None
    except re.error:
        return True


def check_regex(pattern: str) -> None:
    """Raises ValueError, which quotes the pattern, where what stands between its slashes is no regular expression."""
    try:
        re.compile(regex_of(pattern))
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
