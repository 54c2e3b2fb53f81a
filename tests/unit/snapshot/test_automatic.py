from __future__ import annotations

from typing import Any

import pytest

from changefeed.kafka.commit_log.snapshots import SnapshotRecord, TableProgress
from changefeed.settings.message_rules import message_rules
from changefeed.settings.pipeline import Pipeline
from changefeed.snapshot.automatic import automatic_run_id, is_due, next_of_new_tables

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


def shop(*include: str) -> Pipeline:
    values = {"name": "shop", "source": {"connection": "m"}, "kafka": {"connection": "k"}}
    return Pipeline.model_validate({**values, "tables": {"include": list(include)}})


def test_snapshot_of_new_tables_is_continued_until_its_settings_change() -> None:
    pipeline = shop("shop.*")
    first = next_of_new_tables(pipeline, {"shop.a", "shop.b*"}, {FIRST: taken()})
    assert first is not None
    assert first.identity == "shop.snapshot.new_1"
    assert first.request.matches("shop", "a")
    assert first.request.matches("shop", "b*")
    assert not first.request.matches("shop", "bc")
    request = first.request.model_dump(mode="json")
    tables = (TableProgress("shop", "a", "id int", 1),)
    begun = {first.identity: SnapshotRecord(request, message_rules(pipeline), tables, 1)}
    assert next_of_new_tables(pipeline, {"shop.a", "shop.c"}, begun) == first
    for missing, of in (({"shop.c"}, pipeline), ({"shop.a"}, shop("shop.*", "b.*"))):
        following = next_of_new_tables(of, missing, begun)
        assert following is not None
        assert following.run_id == "new_2"
    assert next_of_new_tables(pipeline, set(), begun) is None


def test_parked_table_does_not_hold_up_the_others() -> None:
    pipeline = shop("shop.*")
    request = {"pipeline": "shop", "tables": ["shop.a", "shop.b"], "where": None}
    tables = (TableProgress("shop", "a", "id int", 1), TableProgress("shop", "b", "id int", 1))
    begun = {"shop.snapshot.new_1": SnapshotRecord(request, message_rules(pipeline), tables, 1)}
    following = next_of_new_tables(pipeline, {"shop.b"}, begun, parked={"shop.a"})
    assert following is not None
    assert (following.run_id, following.request.tables) == ("new_2", ["shop.b"])


def test_snapshot_that_found_no_table_is_not_repeated() -> None:
    request = {"pipeline": "shop", "tables": ["shop.a"], "where": None}
    begun = {"shop.snapshot.new_1": SnapshotRecord(request, {}, (), 1, finished=True)}
    assert next_of_new_tables(shop("shop.*"), {"shop.a"}, begun) is None
    following = next_of_new_tables(shop("shop.*"), {"shop.b"}, begun)
    assert following is not None


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        ("shop.snapshot.first", "first"),
        ("shop.snapshot.new_12", "new_12"),
        ("shop.snapshot.new_x", None),
        ("shop.snapshot.manual", None),
        ("other.snapshot.first", None),
        ("first", None),
    ],
)
def test_identity_of_an_automatic_snapshot_is_of_its_pipeline(identity: str, expected: str | None) -> None:
    assert automatic_run_id("shop", identity) == expected
