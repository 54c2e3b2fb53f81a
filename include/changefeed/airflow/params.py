"""The forms of our DAGs: a param for each field of a request, and refusing those that are not on the form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Param, get_current_context

from changefeed.errors import SettingsError, did_you_mean
from changefeed.settings.requests.backfill import RANGES, BackfillForm
from changefeed.settings.requests.request import Request, form_of
from changefeed.settings.requests.run import RunBounds
from changefeed.settings.requests.seek import SeekRequest
from changefeed.settings.requests.snapshot import SnapshotForm
from changefeed.settings.requests.verify import VerifyRequest

RANGE, DESTINATION = "Range: one of the four forms", "What, and where to"

_WITHOUT_SECRET = r"^(?![\s\S]*::)(/[^\r\n]*|[A-Za-z][A-Za-z0-9+.-]*://[^@?#%\r\n]*)$"
"""A path or a URL without a user, a query or a chain: what is refused here is not stored with the run. Which of those
may be read, `site_archive` says."""


def params_of(model: type[Request], **own: Mapping[str, Any]) -> dict[str, Param]:
    """A param for each field of ``model``; ``own`` is what only the form has of a field. One whose value is needed is
    empty at first."""
    params = {}
    for name, field in form_of(model).items():
        schema = {"default": "", **field, **own.get(name, {})}
        params[name] = Param(schema.pop("default"), **schema)
    return params


def ingest_params() -> dict[str, Param]:
    """The form of a run of the ingest DAG: what bounds it."""
    return params_of(RunBounds)


def backfill_params() -> dict[str, Param]:
    """The form of a backfill: its range, tables and topics."""
    of_range = {name: {"section": RANGE} for names in RANGES for name in names}
    return params_of(
        BackfillForm,
        **of_range,
        tables={"section": DESTINATION},
        suffix={"section": DESTINATION, "type": ["null", "string"]},  # a field that is emptied is null
        archive={"section": DESTINATION, "pattern": _WITHOUT_SECRET},
    )


def snapshot_params() -> dict[str, Param]:
    """The form of a snapshot: which tables and rows, and how fast."""
    return params_of(SnapshotForm)


def seek_params() -> dict[str, Param]:
    """The form of a seek: its target and reason, and whether it shall be done."""
    shall_be_done = Param(
        False,
        type="boolean",
        title="Move the checkpoint",
        description="Off: only show in the log of plan_seek what would be skipped or repeated.",
    )
    return {**params_of(SeekRequest, why={"minLength": 1}), "apply": shall_be_done}


def verify_params(followers: Sequence[str]) -> dict[str, Param]:
    """The form of a comparison: which tables, how much of them, and whose, where the pipeline has ``followers``."""
    whose = {"": "the source", **{name: f"follower {name}" for name in followers}}
    params = params_of(
        VerifyRequest, follower={"default": "", "type": "string", "enum": list(whose), "values_display": whose}
    )
    if not followers:
        del params["follower"]
    return params


def given_params(known: Mapping[str, Any]) -> dict[str, Any]:
    """The run's parameters; raises SettingsError for a key of its conf that is not on the form.

    Airflow checks the values that are on the form and lets every other key pass.
    """
    context = get_current_context()
    conf = context["dag_run"].conf or {}
    for key in conf:
        if key not in known:
            raise SettingsError(
                f"the run was given {key!r}, which is not a parameter{did_you_mean(key, known)}; valid: "
                f"{', '.join(known)}"
            )
    params = context["params"]
    return {key: params[key] for key in known if key in params}
