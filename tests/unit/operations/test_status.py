"""How a pipeline's state is told to people."""

from __future__ import annotations

import pytest

from changefeed.errors import SourceError
from changefeed.operations.status import Status


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
def test_a_state_is_told_as_what_happened_since_the_last_run(status: Status, words: str) -> None:
    assert status.summary == words


def test_what_is_wrong_is_told_with_its_class() -> None:
    assert Status.in_error("shop", SourceError("no")).error == "SourceError: no"
