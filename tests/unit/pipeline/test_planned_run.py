"""A planned run as one task hands it to the next one."""

from __future__ import annotations

import json
from itertools import pairwise

from changefeed.model.checkpoint import Checkpoint
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.window import Window
from changefeed.pipeline.planned_run import PlannedRun

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def test_a_retry_gets_exactly_the_windows_and_the_checkpoint_that_were_planned() -> None:
    ends = [BinlogCoordinates("bin.000001", 4), BinlogCoordinates("bin.000002", 4), BinlogCoordinates("bin.000002", 90)]
    windows = tuple(
        Window("shop", number, UUID, start, head, "", f"{UUID}:1-{number}", 1_700_000_000_000, plan_seconds=0.25)
        for number, (start, head) in enumerate(pairwise(ends), start=8)
    )
    run = PlannedRun(windows, Checkpoint("shop", 7, UUID, ends[0], "", 1_699_999_999_000), 1234)
    assert PlannedRun.from_json(json.loads(json.dumps(run.to_json()))) == run
