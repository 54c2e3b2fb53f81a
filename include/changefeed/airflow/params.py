"""Creates the params of the DAGs, one for each field of a request model. Refuses unknown keys of a run's conf."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Param, get_current_context

from changefeed.errors import SettingsError, did_you_mean
from changefeed.settings.requests.backfill import RANGES, BackfillForm
from changefeed.settings.requests.request import Request, build_form_schemas
from changefeed.settings.requests.run import RunBounds
from changefeed.settings.requests.seek import SeekRequest
from changefeed.settings.requests.snapshot import SnapshotForm
from changefeed.settings.requests.unpark import UnparkRequest
from changefeed.settings.requests.verify import VerifyRequest

RANGE, DESTINATION = "Range (fill in one of the four forms)", "Tables and destination"

_WITHOUT_SECRET = r"^(?![\s\S]*::)(/[^\r\n]*|[A-Za-z][A-Za-z0-9+.-]*://[^@?#%\r\n]*)$"
"""Matches a path or URL without user, query or fsspec chain, so that Airflow stores no secret with the run.
`site_archive` decides whether the run may read it."""


def params_of(model: type[Request], **own: Mapping[str, Any]) -> dict[str, Param]:
    """A param for each field of ``model``. ``own`` adds keys to the JSON schemas of fields, by field name.

    The default of a required field is "".
    """
    params = {}
    for name, field in build_form_schemas(model).items():
        schema = {"default": "", **field, **own.get(name, {})}
        params[name] = Param(schema.pop("default"), **schema)
    return params


def ingest_params() -> dict[str, Param]:
    """Params of the ingest DAG: the bounds of a run."""
    return params_of(RunBounds)


def backfill_params() -> dict[str, Param]:
    """Params of a backfill: its range, tables and topics."""
    of_range = {name: {"section": RANGE} for names in RANGES for name in names}
    return params_of(
        BackfillForm,
        **of_range,
        tables={"section": DESTINATION},
        suffix={"section": DESTINATION, "type": ["null", "string"]},  # the form sends null for an empty field
        archive={"section": DESTINATION, "pattern": _WITHOUT_SECRET},
    )


def snapshot_params() -> dict[str, Param]:
    """Params of a snapshot: its tables, rows and speed."""
    return params_of(SnapshotForm)


def unpark_params() -> dict[str, Param]:
    """Params of the return of parked tables: which ones, and whether to give up their changes."""
    return params_of(UnparkRequest)


def seek_params() -> dict[str, Param]:
    """Params of a seek: its target and reason, and whether to move the checkpoint."""
    apply_param = Param(
        False,
        type="boolean",
        title="Move the checkpoint",
        description="If off (the default), the run only logs in plan_seek what a seek would skip or repeat.",
    )
    return {**params_of(SeekRequest, why={"minLength": 1}), "apply": apply_param}


def verify_params(followers: Sequence[str]) -> dict[str, Param]:
    """Params of a comparison: its tables, sample and, if the pipeline has ``followers``, the server to compare."""
    servers = {"": "the source", **{name: f"follower {name}" for name in followers}}
    params = params_of(
        VerifyRequest, follower={"default": "", "type": "string", "enum": list(servers), "values_display": servers}
    )
    if not followers:
        del params["follower"]
    return params


def read_params(known: Mapping[str, Any]) -> dict[str, Any]:
    """The run's params; raises SettingsError if the run's conf has a key that is not in ``known``.

    Airflow validates the values of known params and ignores unknown keys.
    """
    context = get_current_context()
    conf = context["dag_run"].conf or {}
    for key in conf:
        if key not in known:
            raise SettingsError(
                f"the run's conf has the unknown key {key!r}{did_you_mean(key, known)}. Expected keys: "
                f"{', '.join(known)}"
            )
    params = context["params"]
    return {key: params[key] for key in known if key in params}
