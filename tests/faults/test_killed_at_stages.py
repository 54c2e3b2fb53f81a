"""kill -9 at each stage of a run: the next run leaves no gap and no duplicate."""

from __future__ import annotations

import pytest
from both_settings import on_stock_servers_first
from faults.feed import NOTHING_NEW, Feed

from changefeed.model.fault_point import STAGES

pytestmark = pytest.mark.timeout(600)


@on_stock_servers_first
@pytest.mark.parametrize("stage", STAGES)
def test_killed_at_a_stage_the_next_run_repeats_nothing_and_loses_nothing(feed: Feed, stage: str) -> None:
    feed.write()
    run = feed.begin(f"{stage}:2" if stage.endswith("transaction_commit") else stage)
    assert run.wait_until_held(), run.text()
    feed.write(5)  # the next window differs from the one that began
    run.kill()
    feed.run()
    feed.check()
    assert feed.begin().result() == NOTHING_NEW
