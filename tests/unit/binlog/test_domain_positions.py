"""A MariaDB position is proved by its transactions, and not by their numbers."""

from __future__ import annotations

import pytest

from changefeed.binlog.search.finder import DomainPositions
from changefeed.model.gtid import GtidSet


def positions(expected: str, begin: str, *seen: str) -> DomainPositions:
    found = DomainPositions(GtidSet.parse(expected).mariadb_gtids, GtidSet.parse(begin))
    for gtid in seen:
        found.see(*map(int, gtid.split("-")))
    return found


@pytest.mark.parametrize(
    ("expected", "begin", "seen"),
    [
        ("0-1-11", "0-1-11", []),
        ("0-1-11", "0-1-8", ["0-1-9", "0-1-10", "0-1-11"]),
        ("0-1-11", "", ["0-1-1", "0-1-11", "0-2-12"]),
        ("0-1-11,1-1-5", "0-1-11", ["0-2-12", "1-1-4", "1-1-5"]),
        ("0-1-11,1-1-5", "0-1-9,1-1-5,2-9-9", ["2-9-1", "0-1-11"]),
        ("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5", "", []),
    ],
)
def test_present_transactions_are_seen(expected: str, begin: str, seen: list[str]) -> None:
    found = positions(expected, begin, *seen)
    assert found.complete
    assert found.fault(at_end=True) == ""


@pytest.mark.parametrize(
    ("expected", "begin", "seen", "fault"),
    [
        ("0-1-11", "0-2-11", [], "does not have transactions 0-1-11"),
        ("0-1-11", "0-1-8", ["0-2-9", "0-2-10", "0-2-11"], "does not have transactions 0-1-11"),
        ("0-1-11", "0-1-8", ["0-2-12"], "does not have transactions 0-1-11"),
        ("0-1-11,1-1-5", "0-1-11,1-1-4", ["0-2-12", "1-2-5"], "does not have transactions 1-1-5"),
        ("0-1-11", "0-1-8", ["0-2-9", "0-1-9"], "has transaction 0-1-9 after a higher or equal number"),
    ],
)
def test_same_numbers_of_another_server_are_other_transactions(
    expected: str, begin: str, seen: list[str], fault: str
) -> None:
    assert fault in positions(expected, begin, *seen).fault()


def test_unseen_transactions_are_missing_only_at_the_end() -> None:
    found = positions("0-1-11", "0-1-8", "0-1-9")
    assert not found.complete
    assert found.fault() == ""
    assert found.fault(at_end=True) == "does not have transactions 0-1-11"
