"""A MariaDB position is proved by its transactions, and not by their numbers."""

from __future__ import annotations

import pytest

from changefeed.binlog.search.finder import DomainPositions
from changefeed.model.gtid import GtidSet


def positions(wanted: str, begin: str, *seen: str) -> DomainPositions:
    found = DomainPositions(GtidSet.parse(wanted).mariadb_gtids, GtidSet.parse(begin))
    for gtid in seen:
        found.see(*map(int, gtid.split("-")))
    return found


@pytest.mark.parametrize(
    ("wanted", "begin", "seen"),
    [
        ("0-1-11", "0-1-11", []),
        ("0-1-11", "0-1-8", ["0-1-9", "0-1-10", "0-1-11"]),
        ("0-1-11", "", ["0-1-1", "0-1-11", "0-2-12"]),
        ("0-1-11,1-1-5", "0-1-11", ["0-2-12", "1-1-4", "1-1-5"]),
        ("0-1-11,1-1-5", "0-1-9,1-1-5,2-9-9", ["2-9-1", "0-1-11"]),
        ("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5", "", []),
    ],
)
def test_transactions_that_are_there_are_seen(wanted: str, begin: str, seen: list[str]) -> None:
    found = positions(wanted, begin, *seen)
    assert found.complete
    assert found.fault(at_end=True) == ""


@pytest.mark.parametrize(
    ("wanted", "begin", "seen", "fault"),
    [
        ("0-1-11", "0-2-11", [], "lacks transactions 0-1-11"),
        ("0-1-11", "0-1-8", ["0-2-9", "0-2-10", "0-2-11"], "lacks transactions 0-1-11"),
        ("0-1-11", "0-1-8", ["0-2-12"], "lacks transactions 0-1-11"),
        ("0-1-11,1-1-5", "0-1-11,1-1-4", ["0-2-12", "1-2-5"], "lacks transactions 1-1-5"),
        ("0-1-11", "0-1-8", ["0-2-9", "0-1-9"], "has transaction 0-1-9 behind a higher number"),
    ],
)
def test_another_server_s_transactions_under_the_same_numbers_are_told_apart(
    wanted: str, begin: str, seen: list[str], fault: str
) -> None:
    assert fault in positions(wanted, begin, *seen).fault()


def test_what_did_not_come_yet_is_lost_at_the_end_only() -> None:
    found = positions("0-1-11", "0-1-8", "0-1-9")
    assert not found.complete
    assert found.fault() == ""
    assert found.fault(at_end=True) == "lacks transactions 0-1-11"
