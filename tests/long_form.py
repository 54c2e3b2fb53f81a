"""Cases that only `make test-long` runs: others of the same test are in `make test-all`."""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest


def long(*cases: Any) -> list[Any]:
    """Parameters for `pytest.mark.parametrize` that belong to the long form; a tuple is a case of several arguments."""
    marks = [pytest.mark.extended, pytest.mark.long]
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=marks) for case in cases]


def mark_second_servers(items: Iterable[pytest.Item]) -> None:
    """Add the mark `long` to one of two cases that differ only in their server, MySQL or MariaDB, if `make test` runs
    neither. Which one, depends on the test's name: each kind of server keeps half of these tests."""
    cases = defaultdict[tuple[str, str], list[pytest.Item]](list)
    for item in items:
        test, _, case = item.nodeid.partition("[")
        if item.get_closest_marker("extended") and not item.get_closest_marker("long"):
            cases[test, re.sub(r"(mysql|mariadb)_?", "", case.lower())].append(item)
    for (test, _), pair in cases.items():
        if len(pair) == 2:
            pair[zlib.crc32(test.encode()) % 2].add_marker(pytest.mark.long)
