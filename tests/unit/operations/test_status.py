"""The texts of a pipeline's state for people."""

from __future__ import annotations

import pytest

from changefeed.errors import SourceError
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.operations.status import Status, _after_failover
from changefeed.source.mysql.source import Head

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (Status("shop", "new"), "no run yet"),
        (Status("shop", "current", lag_bytes=0), "nothing new since the last run"),
        (Status("shop", "behind", lag_bytes=12_345), "12,345 bytes of binlog since the last run"),
        (Status("shop", "behind"), "on another server since the last run"),
        (Status.in_error("shop", SourceError("no")), "error"),
    ],
)
def test_summary_says_what_happened_since_the_last_run(status: Status, words: str) -> None:
    assert status.summary == words


@pytest.mark.parametrize(
    ("gtids", "head", "state"),
    [
        (f"{UUID}:1-9", f"{UUID}:1-9", "current"),
        (f"{UUID}:1-9", f"{UUID}:1-10", "behind"),
        (f"{UUID}:1-9", f"{UUID}:1-8", "behind"),
        ("0-1-9", "0-1-9", "current"),
        ("0-1-9", "0-2-9", "behind"),
    ],
)
def test_after_a_failover_only_a_server_with_the_same_transactions_has_nothing_new(
    gtids: str, head: str, state: str
) -> None:
    at = BinlogCoordinates("binlog.000007", 4)
    found = _after_failover(Checkpoint("shop", 3, "old", at, gtids, 0), Head(at, head))
    assert (found.state, found.lag_bytes) == (state, None)


def test_error_is_reported_with_its_class() -> None:
    assert Status.in_error("shop", SourceError("no")).error == "SourceError: no"
