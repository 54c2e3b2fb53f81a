from __future__ import annotations

import pytest

from changefeed.ddl import Schemas, SchemaTimeline
from changefeed.ddl import history as history_module
from changefeed.ddl.history import SchemaHistory
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.statement import Statement


def at(position: int) -> BinlogCoordinates:
    return BinlogCoordinates("binlog.000001", position)


def created(position: int) -> Statement:
    return Statement("binlog.000001", position, 0, "", "shop", f"CREATE TABLE t{position} (id INT)")


@pytest.mark.parametrize(("start", "since"), [(4, 4), (250, 250), (450, 400)])
def test_stored_history_covers_the_start_of_its_window(monkeypatch: pytest.MonkeyPatch, start: int, since: int) -> None:
    """With any number of DDL statements in the window: it is stored before the window is sealed."""
    monkeypatch.setattr(history_module, "KEPT_ENTRIES", 2)
    history = SchemaHistory("uuid", at(4), at(4), SchemaTimeline(Schemas()))
    for position in (100, 200, 300, 400, 500):
        history = history.advance(created(position))
    stored = history.extend_to(at(600)).with_id("an id", at(start))
    assert stored.since == at(since)
    assert stored.covers("uuid", at(start))
    assert stored.at(at(start)) == history.at(at(start))
    assert stored.timeline.latest == history.timeline.latest
