"""A request is the same in `--help`, in Airflow's trigger form and in OpenAPI."""

from __future__ import annotations

from typing import Any

import pytest
import typer
from airflow.sdk import Param
from pydantic import Field

from changefeed.airflow.params import (
    backfill_params,
    ingest_params,
    params_of,
    seek_params,
    snapshot_params,
    verify_params,
)
from changefeed.cli import main
from changefeed.cli.request_options import add_options
from changefeed.errors import SettingsError
from changefeed.settings.pipeline_settings import OnStatement
from changefeed.settings.requests.backfill import BackfillForm, BackfillRequest
from changefeed.settings.requests.replicate import ReplicateRequest
from changefeed.settings.requests.request import Count, Request, build_form_schemas
from changefeed.settings.requests.run import RunBounds
from changefeed.settings.requests.seek import SeekRequest
from changefeed.settings.requests.snapshot import SnapshotForm, SnapshotRequest
from changefeed.settings.requests.verify import VerifyRequest
from changefeed_web.app import create_app

PATTERN = {"tables": ("--tables", "PATTERN")}
OPTIONS: dict[type[Request], dict[str, tuple[str, str]]] = {
    # model: option and metavar by field, where they are not the field's name and type
    RunBounds: {"until": ("--until", "FILE:POSITION")},
    SeekRequest: {"to": ("to", "TARGET"), "expected": ("--expected", "FILE:POSITION")},
    BackfillForm: PATTERN
    | {
        "from_file": ("--from-file", "FILE"),
        "to_file": ("--to-file", "FILE"),
        "gtids": ("--gtids", "SET"),
        "archive": ("--archive", "FOLDER"),
    },
    SnapshotForm: PATTERN | {"where": ("--where", "CONDITION")},
    VerifyRequest: PATTERN
    | {
        "sample_percent": ("--sample", "PERCENT"),
        "follower": ("--follower", "CONNECTION"),
        "wait_seconds": ("--wait", "SECONDS"),
    },
    ReplicateRequest: {
        "connection": ("--to", "CONNECTION"),
        "databases": ("--database", "NAME"),
        "start": ("--from", "FILE:POSITION"),
    },
}
OWN_OPTIONS = {
    "backfill": {"from_coordinates", "to_coordinates", "from_time", "to_time"},  # --from and --to
    "seek": {"finish"},  # --finish, or --give-up, or asked
}
PARAMS: dict[type[Request], dict[str, Param]] = {
    RunBounds: ingest_params(),
    SeekRequest: seek_params(),
    BackfillForm: backfill_params(),
    SnapshotForm: snapshot_params(),
    VerifyRequest: verify_params(["copy"]),
}
OWN_OF_PARAMS = {
    # what only Airflow's form has of a field
    "why": {"minLength": 1},
    "suffix": {"type": ["null", "string"]},
    "archive": {"pattern"},
    "follower": {"type": "string", "default": "", "enum": ["", "copy"]},
}
FIELDS = [(model, name) for model in OPTIONS for name in build_form_schemas(model)]
IDS = [f"{model.ACTION}.{name}" for model, name in FIELDS]


@pytest.fixture(scope="module")
def commands() -> dict[str, Any]:
    return dict(typer.main.get_command(main.app).commands)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def openapi() -> dict[str, Any]:
    return create_app().openapi()


@pytest.mark.parametrize(("model", "name"), FIELDS, ids=IDS)
def test_option_has_name_description_and_bounds_of_its_field(
    commands: dict[str, Any], model: type[Request], name: str
) -> None:
    if name in OWN_OPTIONS.get(model.ACTION, ()):
        return
    field = build_form_schemas(model)[name]
    (option,) = [one for one in commands[model.ACTION].params if one.name == name]
    named, metavar = OPTIONS[model].get(name, (f"--{name.replace('_', '-')}", None))
    assert named in option.opts
    assert metavar in (None, option.metavar)
    assert option.help.removesuffix(" May be repeated.") == field["description"]
    assert option.required is ("default" not in field)
    assert option.multiple is ("array" in field["type"])
    if "default" in field and not option.multiple:
        assert option.default == field["default"]
    assert option.min == field.get("minimum")
    assert option.max in (None, field.get("maximum"))


@pytest.mark.parametrize(("model", "name"), [one for one in FIELDS if one[0] in PARAMS])
def test_dag_param_has_schema_of_its_field(model: type[Request], name: str) -> None:
    param, own = PARAMS[model][name], OWN_OF_PARAMS.get(name, {})
    found = {"default": param.value, "description": param.description, **param.schema}
    expected = {"default": "", **build_form_schemas(model)[name]}
    assert {key: value for key, value in found.items() if key not in own} == {
        **{key: value for key, value in expected.items() if key not in own},
        **{key: found[key] for key in ("section", "values_display") if key in found},
    }
    if isinstance(own, dict):
        assert {key: found[key] for key in own} == own


@pytest.mark.parametrize("model", PARAMS, ids=lambda model: model.ACTION)
def test_form_of_a_dag_has_all_fields(model: type[Request]) -> None:
    own = {"apply"} if model is SeekRequest else set()
    assert PARAMS[model].keys() - own == build_form_schemas(model).keys()


def test_form_without_followers_has_no_follower_field() -> None:
    assert build_form_schemas(VerifyRequest).keys() - verify_params([]).keys() == {"follower"}


@pytest.mark.parametrize("model", PARAMS, ids=lambda model: model.ACTION)
def test_rest_body_is_the_request_model(openapi: dict[str, Any], model: type[Request]) -> None:
    calls = [f"/api/pipelines/{{name}}/{model.ACTION}"]
    if model in (SeekRequest, BackfillForm, SnapshotForm):
        calls.append(f"{calls[0]}/plan")
    for call in calls:
        body = openapi["paths"][call]["post"]["requestBody"]["content"]["application/json"]["schema"]
        (reference,) = [one["$ref"] for one in body.get("anyOf", [body]) if "$ref" in one]
        assert reference == f"#/components/schemas/{model.__name__}"
    shown = openapi["components"]["schemas"][model.__name__]["properties"]
    assert {name: {key: each[key] for key in each if key != "examples"} for name, each in shown.items()} == {
        name: {key: value for key, value in schema.items() if (key, value) != ("default", None)}
        for name, schema in model.model_json_schema()["properties"].items()
    }


@pytest.mark.parametrize("model", OPTIONS, ids=lambda model: model.ACTION)
def test_every_field_has_a_description(model: type[Request]) -> None:
    for name, field in build_form_schemas(model).items():
        assert field["description"].endswith("."), name
        assert field["title"]


def test_new_field_gets_an_option_and_a_param() -> None:
    class Paint(Request):
        ACTION = "paint"
        coats: Count | None = Field(default=None, title="Coats", description="Most coats.")
        colour: OnStatement = Field(default=OnStatement.RUN, title="Colour", description="Which one.")

    done: list[dict[str, Any]] = []
    app = typer.Typer()

    @app.command()
    @add_options(Paint, coats=typer.Option("--layers"))
    def paint(wall: str, arguments: dict[str, Any], twice: bool = False) -> None:  # noqa: ARG001
        done.append(Paint.of(arguments).model_dump())

    app(["the wall", "--layers", "3"], standalone_mode=False)
    app(["the wall", "--colour", "refuse", "--twice"], standalone_mode=False)
    assert done == [{"coats": 3, "colour": "run"}, {"coats": None, "colour": "refuse"}]
    assert params_of(Paint)["coats"].resolve(3) == 3
    with pytest.raises(Exception, match="less than the minimum"):
        params_of(Paint)["coats"].resolve(0)


@pytest.mark.parametrize(
    ("model", "name", "more"),
    [
        (RunBounds, "until", {}),
        (SeekRequest, "expected", {"to": "latest"}),
        (BackfillForm, "from_coordinates", {"to_coordinates": "binlog.000001:4"}),
        (BackfillForm, "to_coordinates", {"from_coordinates": "binlog.000001:4"}),
        (ReplicateRequest, "start", {"connection": "copy"}),
    ],
)
@pytest.mark.parametrize("text", ["binlog", "binlog.000001", "binlog.000001:x", ":4", "binlog.000001:-4"])
def test_invalid_coordinates_give_the_same_message_everywhere(
    model: type[Request], name: str, more: dict[str, str], text: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        model.of({name: text, **more})
    assert str(refused.value) == (
        f"{model.ACTION}: {name}: {text!r} is not binlog coordinates: expected FILE:POSITION, as in "
        "'binlog.000012:4077'"
    )


def test_all_mistakes_of_a_request_are_reported() -> None:
    with pytest.raises(SettingsError) as refused:
        RunBounds.of({"max_bytes": 0, "untl": "binlog.000001:4"})
    assert str(refused.value).splitlines() == [
        "run: max_bytes: Input should be greater than 0",
        "run: untl: Extra inputs are not permitted (did you mean 'until'?); valid: max_bytes, max_seconds, until",
    ]


def test_field_emptied_in_a_form_is_missing() -> None:
    emptied = dict.fromkeys(build_form_schemas(SnapshotForm), "")
    assert SnapshotForm.of(emptied) == SnapshotForm() == SnapshotForm.of(dict.fromkeys(emptied))
    assert VerifyRequest.of({"follower": "", "sample_percent": None}) == VerifyRequest()


def test_retry_after_an_upgrade_finds_its_earlier_attempt() -> None:
    """A fingerprint is part of the run's identity in the commit log."""
    gtids = "3E11FA47-71CA-11E1-9E33-C80AA9429562:1-5,\n3E11FA47-71CA-11E1-9E33-C80AA9429562:7"
    backfill = BackfillRequest.of({"pipeline": "shop", "gtids": gtids, "tables": ["shop.*"], "suffix": ""})
    snapshot = SnapshotRequest.of({"pipeline": "shop", "tables": ["shop.*"], "where": "id > 1"})
    assert (backfill.fingerprint, snapshot.fingerprint) == ("d0844d123afa", "4e220cb9e276")
