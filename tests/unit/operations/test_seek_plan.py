"""The sentence that shows what a seek does."""

from __future__ import annotations

from dataclasses import replace

from changefeed.binlog.search.finder import ResumePoint
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.seek import UnfinishedWindow
from changefeed.operations.seek import SeekPlan

WINDOW = UnfinishedWindow(7, "binlog.000001:4", "binlog.000001:900", sealed=False, messages=12)
PLAN = SeekPlan(
    "shop", "latest", None, ResumePoint(BinlogCoordinates("binlog.000001", 900), ""), "uuid", 0, 0, (), (WINDOW,)
)


def test_effect_names_whether_unfinished_windows_are_finished_or_given_up() -> None:
    window = "window 7 (binlog.000001:4 to binlog.000001:900), which is begun and not sealed"
    assert PLAN.effect == f"nothing is skipped or repeated; {window}, is given up with 12 messages in Kafka"
    assert replace(PLAN, finish=True).effect == (
        f"{window}, is published and committed first; nothing is skipped or repeated"
    )
