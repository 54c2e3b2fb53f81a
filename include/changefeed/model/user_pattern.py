"""Regular expressions of users, matched in linear time by RE2.

Python's own engine backtracks. One expression in a YAML file could block a process forever.

Source: https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import re2

LONGEST = 1000
"""Limit of a pattern in characters: the names to match have at most 129, or 194 with a column."""
MOST = 10_000
"""Limit of the patterns of one setting."""
MOST_REGEXES = 100
"""Limit of the regular expressions of one setting. Each takes a hundred times as long as a shell pattern."""
_COMPILED_BYTES = 1 << 20
"""Limit of a compiled expression; `(x{1000}){1000}` would take gigabytes."""


@dataclass(frozen=True)
class UserPattern:
    """A regular expression in RE2's syntax, which has no lookaround and no backreferences.

    For an invalid expression, all methods and properties except `problem` raise ValueError with the reason.
    """

    text: str
    ignore_case: bool = False

    def fullmatch(self, text: str) -> Any | None:
        """The match of the complete ``text``, with `groups()`, `groupdict()` and `[group]`; None if there is none."""
        return self._compile.fullmatch(text.encode("utf-8", "replace").decode())

    @property
    def groups(self) -> int:
        """The number of its groups."""
        return int(self._compile.groups)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its named groups."""
        return tuple(self._compile.groupindex)

    @property
    def problem(self) -> str:
        """Why the expression is invalid or cannot be matched in linear time; '' for a valid expression."""
        try:
            _ = self._compile
        except ValueError as error:
            return str(error)
        return ""

    @property
    def _compile(self) -> Any:
        return _compile(self.text, self.ignore_case)


@lru_cache(maxsize=1024)
def _compile(text: str, ignore_case: bool) -> Any:
    if len(text) > LONGEST:
        raise ValueError(f"it has {len(text)} characters, expected at most {LONGEST}")
    options = re2.Options()
    options.case_sensitive, options.log_errors, options.max_mem = not ignore_case, False, _COMPILED_BYTES
    try:
        return re2.compile(text, options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error, re2.error) else str(error)
        raise ValueError(reason.removesuffix(f": {text}") + _HINTS.get(reason[:21], "")) from None


_NOT_LINEAR = ". Expressions are in RE2's syntax, without lookaround (?=…) and backreferences \\1"
_HINTS = {"invalid perl operator": _NOT_LINEAR, "invalid escape sequen": _NOT_LINEAR}


def check_number(patterns: Collection[str], regexes: int) -> None:
    """Raises ValueError if one setting has too many ``patterns`` or ``regexes``."""
    for count, most, what in ((len(patterns), MOST, "patterns"), (regexes, MOST_REGEXES, "regular expressions")):
        if count > most:
            raise ValueError(
                f"has {count} {what}: expected at most {most}. Take several names together, as in shop.orders_* or "
                "'/shop\\.(orders|items|lines)/'"
            )
