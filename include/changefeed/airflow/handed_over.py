"""What one task of a DAG hands to the next one, in an XCom, read with care.

Whoever may edit the XComs of a pipeline's DAG can put anything there. That must not reach another pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from changefeed.errors import SettingsError
from changefeed.model.run_identity import backfill_identity, snapshot_identity
from changefeed.pipeline.planned_run import PlannedRun


def own_run(pipeline: str, planned: Mapping[str, Any]) -> PlannedRun:
    """The run that the DAG's `plan` froze; raises SettingsError where it is not one of ``pipeline``."""
    run = PlannedRun.from_json(dict(planned))
    _check_own(pipeline, {run.expected.pipeline, *(window.pipeline for window in run.windows)})
    return run


def check_own_backfill(pipeline: str, run_id: str, planned: Mapping[str, Any]) -> None:
    """Raises SettingsError where the backfill that `plan` froze is not one of ``pipeline``, or is another run's."""
    _check_own(pipeline, {planned["request"]["pipeline"], planned["window"]["pipeline"]})
    _check_identity("backfill", planned["identity"], backfill_identity(pipeline, run_id))


def check_own_snapshot(pipeline: str, run_id: str, planned: Mapping[str, Any]) -> None:
    """Raises SettingsError where the snapshot that `plan` found is not one of ``pipeline``, or is another run's."""
    _check_own(pipeline, {planned["request"]["pipeline"]})
    _check_identity("snapshot", planned["identity"], snapshot_identity(pipeline, run_id))


def _check_identity(what: str, found: str, identity: str) -> None:
    if found != identity:
        raise SettingsError(
            f"what the run's first task handed over is {what} {found!r}, and this run's is {identity!r}: the XCom was "
            "edited, or an older changefeed planned the run. Nothing was done; clear that task, or start a new run."
        )


def _check_own(pipeline: str, named: set[str]) -> None:
    if others := ", ".join(map(repr, sorted(named - {pipeline}))):
        raise SettingsError(
            f"what the run's first task handed over is for pipeline {others}, and this DAG for {pipeline!r} only: the "
            "XCom was edited. Nothing was done; clear that task, or start a new run."
        )
