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
    """A compiled pattern that matches complete names."""

    def fullmatch(self, text: str, /) -> Any | None:
        """The match, with its groups; None where there is none."""
        ...


@lru_cache(maxsize=1024)
def matcher(pattern: str, *, ignore_case: bool = False) -> Matcher:
    """The compiled pattern, for complete "database.table" names. `fullmatch` raises ValueError for a bad expression."""
    if is_regex(pattern):
        return UserPattern(pattern[1:-1], ignore_case)
    return re.compile(fnmatch.translate(pattern), re.IGNORECASE if ignore_case else re.NOFLAG)


def matches(pattern: str, database: str, table: str) -> bool:
    """Whether the pattern matches the table."""
    return matcher(pattern).fullmatch(f"{database}.{table}") is not None


def matches_any(patterns: tuple[str, ...], database: str, table: str) -> bool:
    """Whether one of the patterns matches the table."""
    name = f"{database}.{table}"
    return any(each.fullmatch(name) for each in _compile(patterns))


@lru_cache(maxsize=32)
def _compile(patterns: tuple[str, ...]) -> tuple[Matcher, ...]:
    """Shell patterns as one expression, as there may be thousands; regular expressions one by one, because of their
    groups."""
    globs = "|".join(fnmatch.translate(pattern) for pattern in patterns if not is_regex(pattern))
    return (re.compile(globs or "(?!)"), *(matcher(pattern) for pattern in patterns if is_regex(pattern)))


def names_database(pattern: str, database: str) -> bool:
    """Whether the pattern may match tables of this database.

    For a regular expression, only the part before the first `\\.` is compared. True if it cannot be split there.
    """
    if not is_regex(pattern):
        return fnmatch.fnmatchcase(database, pattern.partition(".")[0])
    part, dot, _ = pattern[1:-1].partition(r"\.")
    try:
        return not dot or UserPattern(part).fullmatch(database) is not None
    except ValueError:
        return True


def check_pattern(pattern: str) -> None:
    """Raises ValueError for a pattern that is too long, and for an invalid regular expression between slashes."""
    if len(pattern) > LONGEST:
        raise ValueError(f"{pattern[:30]!r}… has {len(pattern)} characters: expected at most {LONGEST}")
    if is_regex(pattern) and (problem := UserPattern(pattern[1:-1]).problem):
        raise ValueError(f"{pattern!r} is no regular expression: {problem}")


def check_patterns(patterns: Collection[str]) -> None:
    """Raises ValueError for too many patterns in one setting."""
    check_number(patterns, sum(map(is_regex, patterns)))
