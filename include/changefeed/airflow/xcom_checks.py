"""Checks of the plan that a DAG's first task passes to the later ones in an XCom.

Without these checks, users who may edit the XComs of one pipeline's DAG could act on another pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from changefeed.errors import SettingsError
from changefeed.model.run_identity import backfill_identity, snapshot_identity
from changefeed.pipeline.planned_run import PlannedRun


def read_planned_run(pipeline: str, planned: Mapping[str, Any]) -> PlannedRun:
    """The run that the task `plan` froze; raises SettingsError if it is of another pipeline than ``pipeline``."""
    run = PlannedRun.from_json(dict(planned))
    _check_own(pipeline, {run.expected.pipeline, *(window.pipeline for window in run.windows)})
    return run


def check_own_backfill(pipeline: str, run_id: str, planned: Mapping[str, Any]) -> None:
    """Raise SettingsError if the plan of the backfill is of another pipeline or another run."""
    _check_own(pipeline, {planned["request"]["pipeline"], planned["window"]["pipeline"]})
    _check_identity("backfill", planned["identity"], backfill_identity(pipeline, run_id))


def check_own_snapshot(pipeline: str, run_id: str, planned: Mapping[str, Any]) -> None:
    """Raise SettingsError if the plan of the snapshot is of another pipeline or another run."""
    _check_own(pipeline, {planned["request"]["pipeline"]})
    _check_identity("snapshot", planned["identity"], snapshot_identity(pipeline, run_id))


def _check_identity(what: str, found: str, identity: str) -> None:
    if found != identity:
        raise SettingsError(
            f"expected the plan of {what} {identity!r} in the XCom of the run's first task, found {found!r}: the "
            f"XCom was "
            "edited, or an older changefeed planned the run. Nothing was done; clear that task, or start a new run."
        )


def _check_own(pipeline: str, named: set[str]) -> None:
    if others := ", ".join(map(repr, sorted(named - {pipeline}))):
        raise SettingsError(
            f"expected a plan for pipeline {pipeline!r} in the XCom of the run's first task, found one for "
            f"{others}: the "
            "XCom was edited. Nothing was done; clear that task, or start a new run."
        )
