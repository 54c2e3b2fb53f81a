"""Patterns of tables: "database.table" with * and ? as in a shell, or a regular expression between slashes."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection
from functools import lru_cache
from typing import Any, Protocol

from changefeed.model.user_pattern import LONGEST, UserPattern, check_number


def is_regex(pattern: str) -> bool:
    """Whether the pattern is a regular expression: `/shop\\.orders_\\d+/`."""
    return len(pattern) > 2 and pattern.startswith("/") and pattern.endswith("/")


class Matcher(Protocol):
    """What the whole of a name has to match."""

    def fullmatch(self, text: str, /) -> Any | None:
        """The match, with its groups; None where there is none."""
        ...


@lru_cache(maxsize=1024)
def matcher(pattern: str, *, ignore_case: bool = False) -> Matcher:
    """What the whole of "database.table" has to match; of a bad expression `fullmatch` raises ValueError."""
    if is_regex(pattern):
        return UserPattern(pattern[1:-1], ignore_case)
    return re.compile(fnmatch.translate(pattern), re.IGNORECASE if ignore_case else re.NOFLAG)


def matches(pattern: str, database: str, table: str) -> bool:
    """Whether the pattern takes the table."""
    return matcher(pattern).fullmatch(f"{database}.{table}") is not None


def matches_any(patterns: tuple[str, ...], database: str, table: str) -> bool:
    """Whether one of the patterns takes the table."""
    name = f"{database}.{table}"
    return any(each.fullmatch(name) for each in _compiled(patterns))


@lru_cache(maxsize=32)
def _compiled(patterns: tuple[str, ...]) -> tuple[Matcher, ...]:
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
        return not dot or UserPattern(part).fullmatch(database) is not None
    except ValueError:
        return True


def check_pattern(pattern: str) -> None:
    """Raises ValueError for one that is too long, or where what stands between its slashes is no expression."""
    if len(pattern) > LONGEST:
        raise ValueError(f"{pattern[:30]!r}… has {len(pattern)} characters: wanted at most {LONGEST}")
    if is_regex(pattern) and (problem := UserPattern(pattern[1:-1]).problem):
        raise ValueError(f"{pattern!r} is no regular expression: {problem}")


def check_patterns(patterns: Collection[str]) -> None:
    """Raises ValueError where one setting has more of them than are matched in a short time."""
    check_number(patterns, sum(map(is_regex, patterns)))
