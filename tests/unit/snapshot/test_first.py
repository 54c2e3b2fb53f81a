from __future__ import annotations

from typing import Any

import pytest

from changefeed.kafka.commit_log.snapshots import SnapshotRecord
from changefeed.snapshot.first import is_due

FIRST = "shop.snapshot.first"


def taken(*, finished: bool = True, **request: Any) -> SnapshotRecord:
    return SnapshotRecord({"pipeline": "shop", "tables": [], "where": None, **request}, {}, (), 1, finished=finished)


@pytest.mark.parametrize(
    ("begun", "expected"),
    [
        ({}, True),
        ({FIRST: taken(finished=False)}, True),
        ({FIRST: taken()}, False),
        ({"other": taken()}, False),
        ({"other": taken(finished=False)}, False),  # its owner continues it
        ({"other": taken(tables=["shop.orders"])}, True),
        ({"other": taken(where="id > 1")}, True),
        ({FIRST: taken(finished=False), "other": taken()}, False),  # after settings were changed
        ({FIRST: taken(finished=False), "other": taken(finished=False)}, True),
        ({FIRST: taken(finished=False), "other": taken(tables=["shop.orders"])}, True),
    ],
)
def test_first_snapshot_is_due_until_it_or_another_of_all_rows_is_complete(
    begun: dict[str, SnapshotRecord], expected: bool
) -> None:
    assert is_due(begun, FIRST) is expected
