"""Cases that only `make test-long` runs: others of the same test are in `make test-all`."""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest

FOLDERS = re.compile(r"tests/(faults|integration)/")
"""The tests on real servers, whose cases take seconds each."""


def long(*cases: Any) -> list[Any]:
    """Parameters for `pytest.mark.parametrize` that belong to the long form; a tuple is a case of several arguments."""
    marks = [pytest.mark.extended, pytest.mark.long]
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=marks) for case in cases]


def mark_further_cases(items: Iterable[pytest.Item]) -> None:
    """Add the mark `long` to all but one of the extended cases of each test on real servers.

    Which one stays depends on the test's name, so that each server, stage and format stays in about as many tests. A
    test with the mark `each_case` keeps all.
    """
    cases = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if FOLDERS.match(item.nodeid) and item.get_closest_marker("extended") and not _is_kept(item):
            cases[item.nodeid.partition("[")[0]].append(item)
    for test, ones in cases.items():
        ones.pop(zlib.crc32(test.encode()) % len(ones))
        for item in ones:
            item.add_marker(pytest.mark.long)


def _is_kept(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(mark) for mark in ("long", "each_case"))
