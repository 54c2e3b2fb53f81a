"""commit: the window's seal is in the commit log, so the checkpoint may move."""

from __future__ import annotations

import time
from dataclasses import replace

from changefeed import fault_point
from changefeed.checkpoint import Checkpoint, CheckpointStore
from changefeed.endpoints.endpoints import Endpoints
from changefeed.errors import AccountingError
from changefeed.manifest import Manifest
from changefeed.runs.plan import Plan
from changefeed.runs.schema_history import copy_history


def commit(endpoints: Endpoints, plan: Plan, store: CheckpointStore) -> Manifest:
    """Move the checkpoint to the window's head, and return the manifest that proves it may, with `commit`'s seconds.

    Raises AccountingError when the window is not sealed in the commit log, StaleCheckpointError when the checkpoint
    is not where `plan` found it. A second commit of the same window changes nothing.
    """
    began = time.monotonic()
    manifest = sealed(endpoints, plan)
    committed = store.load(endpoints.pipeline.name)
    if committed is not None and (committed.window, committed.coordinates) == (plan.window.number, plan.window.head):
        return manifest
    store.advance(plan.expected, Checkpoint.after(plan.window, int(time.time() * 1000), manifest.gtids))
    fault_point.reached("after_checkpoint")
    copy_history(endpoints, store)
    return replace(manifest, seconds={**manifest.seconds, "commit": round(time.monotonic() - began, 3)})


def sealed(endpoints: Endpoints, plan: Plan) -> Manifest:
    """The window's manifest out of the commit log; raises AccountingError where that has none, or another's."""
    values = endpoints.commit_log().read().seals.get(plan.window.number)
    manifest = Manifest.from_json(values) if values else None
    if manifest is None or manifest.window != plan.window:
        raise AccountingError(
            f"window {plan.window.number} of pipeline {endpoints.pipeline.name!r} ({plan.window.start} to "
            f"{plan.window.head}) is not sealed in the commit log: not all of it is known to be in Kafka. The "
            "checkpoint stays; run again."
        )
    return manifest
