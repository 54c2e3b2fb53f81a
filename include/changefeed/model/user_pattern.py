"""Regular expressions that users give, matched in a time that is linear in the text: RE2's.

Python's own engine tries all ways in which an expression may match, so that one line of YAML, or the rows that it is
matched with, would keep a process for ever.

Source: https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import re2

LONGEST = 1000
"""Characters of a pattern: a name that it is matched with has 129 at most, and one of a column 194."""
MOST = 10_000
"""Patterns of one setting."""
MOST_REGEXES = 100
"""Of them regular expressions, which are tried one after another: a shell pattern takes a hundredth of their time."""
_COMPILED_BYTES = 1 << 20
"""Of a compiled expression; `(x{1000}){1000}` would take gigabytes."""


@dataclass(frozen=True)
class UserPattern:
    """A regular expression in RE2's syntax, which has no lookaround and no backreferences.

    All but `problem` raise ValueError, which says why, for a text that is none.
    """

    text: str
    ignore_case: bool = False

    def fullmatch(self, text: str) -> Any | None:
        """The match of the whole of ``text``, with `groups()`, `groupdict()` and `[group]`; None without one."""
        return self._compiled.fullmatch(text.encode("utf-8", "replace").decode())

    @property
    def groups(self) -> int:
        """How many groups it has."""
        return int(self._compiled.groups)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the groups that have one."""
        return tuple(self._compiled.groupindex)

    @property
    def problem(self) -> str:
        """Why it is no expression, or can only be matched by trying all ways; '' for one that is matched."""
        try:
            _ = self._compiled
        except ValueError as error:
            return str(error)
        return ""

    @property
    def _compiled(self) -> Any:
        return _compiled(self.text, self.ignore_case)


@lru_cache(maxsize=1024)
def _compiled(text: str, ignore_case: bool) -> Any:
    if len(text) > LONGEST:
        raise ValueError(f"it has {len(text)} characters, and {LONGEST} are wanted at most")
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
    """Raises ValueError for more ``patterns``, or more of them ``regexes``, than one setting may have."""
    for count, most, what in ((len(patterns), MOST, "patterns"), (regexes, MOST_REGEXES, "regular expressions")):
        if count > most:
            raise ValueError(
                f"has {count} {what}: wanted at most {most}. Take several names together, as in shop.orders_* or "
                "'/shop\\.(orders|items|lines)/'"
            )
