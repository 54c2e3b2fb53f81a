"""How a pipeline's YAML names several tables or columns: with * and ? as in a shell, or as a /regular expression/."""

from __future__ import annotations

import fnmatch
import re


def is_expression(pattern: str) -> bool:
    """Whether ``pattern`` stands between slashes, and so is a regular expression."""
    return len(pattern) > 1 and pattern.startswith("/") and pattern.endswith("/")


def regex_of(pattern: str) -> str:
    r"""``pattern`` as a regular expression of Python's that matches whole names: `shop.*`, `/shop\.orders_\d+/`.

    Raises ValueError, which quotes ``pattern``, where what stands between its slashes is none.
    """
    if not is_expression(pattern):
        return fnmatch.translate(pattern)
    expression = pattern[1:-1]
    try:
        re.compile(expression)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
    return rf"(?s:{expression})\Z"
