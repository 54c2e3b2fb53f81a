"""How long a regular expression may take for a name: Python tries all ways to match, one after the other, and in the
API server nothing else is done meanwhile."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

LONGEST_NAME = 64 + 1 + 64
"""Of "database.table", in characters."""
MOST_WAYS = (LONGEST_NAME + 1) ** 3
"""As three repeats of any length have: some milliseconds."""
_parse: Any = import_module("re._parser").parse


def check_steps(expression: str) -> None:
    """Raises ValueError, which quotes ``expression``, where there may be more than MOST_WAYS to match a name."""
    try:
        ways = _ways(_parse(expression))
    except RecursionError:
        ways = MOST_WAYS + 1
    except re.error:
        return  # it is refused as what it is
    if ways > MOST_WAYS:
        raise ValueError(
            f"there may be too many ways to match a name with {expression[:200]!r}: one could take minutes, in which "
            "nothing else is done. Wanted at most three repeats of any length (* and +), and none of a group that "
            "repeats or chooses itself; patterns with * and ? have no such bound"
        )


def _ways(nodes: Any) -> int:
    """At most so many, or more than MOST_WAYS."""
    ways = 1
    for kind, of in nodes:
        ways = min(ways * _of_node(str(kind), of), MOST_WAYS + 1)
    return ways


def _of_node(kind: str, of: Any) -> int:
    match kind:
        case "LITERAL" | "NOT_LITERAL" | "IN" | "ANY" | "AT" | "CATEGORY" | "GROUPREF" | "FAILURE":
            return 1
        case "BRANCH":
            return sum(map(_ways, of[1]))
        case "GROUPREF_EXISTS":
            return _ways(of[1]) + _ways(of[2] or ())
        case "SUBPATTERN" | "ASSERT" | "ASSERT_NOT":
            return _ways(of[-1])
        case "ATOMIC_GROUP":
            return _ways(of)
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            least, most, repeated = of
            times = min(int(most), LONGEST_NAME)
            ends = times - min(int(least), times) + 1
            ways: int = ends * _ways(repeated) ** times
            return ways
    return MOST_WAYS + 1
