"""Generates the pages of docs/reference/ that list what the code declares: `make reference` writes them.

A page is a function that returns Markdown. Texts that the code does not have (introductions, remedies) are in this
file, under the name that they describe: a name that the code gains or loses without its text is an error.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args
from unittest.mock import patch

from pydantic import BaseModel
from reference_text import (
    code,
    default_of,
    sentence,
    table,
    type_of,
    value_of,
    with_descriptions,
    with_unit,
)
from typer.models import ArgumentInfo

from changefeed import errors
from changefeed.airflow import params, reporting
from changefeed.airflow.backfill_dag import backfill_dag_id
from changefeed.airflow.ingest_dag import ingest_dag_id
from changefeed.airflow.replicate_dag import replicate_dag_id
from changefeed.airflow.seek_dag import seek_dag_id
from changefeed.airflow.snapshot_dag import snapshot_dag_id
from changefeed.airflow.unpark_dag import unpark_dag_id
from changefeed.airflow.verify_dag import verify_dag_id
from changefeed.cli import app as command_app
from changefeed.cli.main import sort_commands
from changefeed.formats import headers
from changefeed.formats.format import FormatSettings
from changefeed.formats.options import Options
from changefeed.formats.registry import DEFAULT_FORMAT, OWN, WITH_SCHEMA_REGISTRY, format_of
from changefeed.kafka import bad_record
from changefeed.records import block
from changefeed.settings.column_settings import SecretSettings
from changefeed.settings.outbox_settings import OPTIONS as OUTBOX_OPTIONS
from changefeed.settings.outbox_settings import OutboxSettings
from changefeed.settings.pipeline_settings import PipelineSettings, ValueSettings
from changefeed.settings.settings_schema import field_texts, prose, section_of, texts_below
from changefeed.settings.site import SITE_VARIABLE, Site
from changefeed.settings.yaml_file import RENAMED_KEYS
from changefeed_web import access, metrics
from changefeed_web import app as web_app

DETAILS = {
    "source.server_ids": "[details](pipeline.md#server_ids)",
    "kafka.connection": "[options](kafka.md)",
    "tables.include": "[patterns](../how-to/add-a-table.md)",
    "topics": "[topics](../how-to/route-rows.md)",
    "topics.partition_by": "[partitions](../how-to/route-rows.md)",
    "topics.table_field": "[shared topics](../how-to/route-rows.md)",
    "format": "[options](#options-of-formats)",
    "headers": "[headers](record-headers.md#headers-that-a-pipeline-chooses)",
    "keys": "[keys](../how-to/choose-keys.md)",
    "keyless": "[keys](../how-to/choose-keys.md)",
    "rows": "[filters](../how-to/filter-rows.md)",
    "row_versions": "[system-versioned tables](schemas.md#system-versioned-tables)",
    "columns": "[details](pipeline.md#columns-left-out-and-masked)",
    "transforms": "[functions](../how-to/transform-rows.md)",
    "outbox": "[outbox](../how-to/publish-an-outbox.md)",
    "checkpoint": "[details](pipeline.md#where-the-checkpoint-is)",
    "commit_log": "[details](pipeline.md#the-key-of-the-logs)",
    "heartbeat": "[details](../how-to/send-metrics-and-lineage.md#what-is-sent)",
    "freeze_schema": "[frozen schemas](schemas.md#frozen-schemas)",
    "publish_ddl": "[records](schemas.md#schema-change-records)",
    "statements": "[details](schemas.md#changes-in-statement-format)",
    "unknown_schema": "[details](schemas.md#rows-whose-columns-are-not-known)",
    "on_table_error": "[details](../how-to/recover/broken-table.md)",
    "start": "[snapshots](../how-to/first-load.md)",
    "alerts": "[alerts](../how-to/monitor-and-alert.md)",
    "followers": "[followers](../how-to/keep-a-follower.md)",
}
"""Links at the end of descriptions, by key of a pipeline's YAML."""

SITE_DETAILS = {"environment": "[the environment of a job](../explanation/security.md#the-environment-of-a-job)"}
"""Links at the end of descriptions, by key of the site's file."""

FOLDER = Path(__file__).parent / "reference"
GENERATED = "<!-- Generated from the code by `make reference`: do not edit. -->"


# --- settings


def pipeline_settings() -> str:
    """Every key of a pipeline's YAML."""
    sections = _sections(PipelineSettings, "", "Pipeline", DETAILS)
    with_descriptions("links", [key for key in DETAILS if f"| `{key}` |" in sections], DETAILS)
    return f"""# Pipeline settings

Each YAML file in `include/pipelines/` (or in the folder that `CHANGEFEED_PIPELINES` names) is one pipeline. Keys with
a dot are in sections: `source.connection` is the key `connection` in the section `source`. What needs more than a
line is in
[settings in detail](pipeline.md).

A file is refused, with file and line, if it has an unknown key, misses a required key, has a value of
another type, uses YAML aliases, or has more than 200,000 characters.

{sections}
{_sections(SecretSettings, "", "Secrets")}
{_format_options()}
{_renamed_keys()}"""


def site_settings() -> str:
    """Every key of the site's file."""
    return f"""# Site settings

The administrator of an Airflow site writes this YAML file, and names it in the environment variable `{SITE_VARIABLE}`
of all of Airflow's processes. It allows what is not safe for everybody who may edit pipelines
([security](../explanation/security.md)), and sets what concerns all pipelines. Without the variable nothing of this is
allowed, and the defaults apply.

{_sections(Site, "", "Site", SITE_DETAILS)}
{_sections(SecretSettings, "", "Secrets")}"""


def _sections(model: type[BaseModel], path: str, title: str, links: Mapping[str, str] = MappingProxyType({})) -> str:
    """A heading and a table of keys for ``model``, and then the same for each section in it."""
    texts, schema = _field_texts(model), model.model_json_schema()
    definitions = schema.get("$defs", {})
    rows, below = [], []
    for name, field in model.model_fields.items():
        key = f"{path}{field.alias or name}"
        inner = section_of(field.annotation)
        kind = type_of(schema["properties"][field.alias or name], definitions)
        if inner is SecretSettings:
            kind = f"[{kind.replace('section', 'secret')}](#secrets)"
        elif inner is not None:
            below.append((inner, key, kind))
            kind = f"[{kind}](#{_anchor(key)})"
        default = "" if model is ValueSettings else default_of(field)  # without a value the format's rules hold
        more = f" See {links[key]}." if key in links else ""
        rows.append([code(key), with_unit(name, kind), default, texts[name] + more])
    lead = "" if model in (PipelineSettings, Site) else prose(model.__doc__)
    heading = f"## {path.rstrip('.').removesuffix('[]') or title}\n\n{lead}\n\n"
    text = heading + (_outbox_table() if model is OutboxSettings else "")
    text += table(["key", "type", "default", "description"], rows)
    for inner, key, kind in below:
        separator = "[]." if kind.startswith("list") else ".PATTERN." if kind.startswith("mapping") else "."
        text += _sections(inner, key + separator, key, links)
    return text


def _field_texts(model: type[BaseModel]) -> dict[str, str]:
    """By field its description; raises ValueError for a field without one."""
    return with_descriptions(f"fields of {model.__name__}", model.model_fields, field_texts(model))


def _anchor(key: str) -> str:
    return "".join(character for character in key.lower() if character.isalnum() or character in "_-")


def _format_options() -> str:
    """The options of each format that comes with changefeed."""
    text = (
        "## Options of formats\n\n`format: NAME`, or `format: {name: NAME, …}` with options of that format. Their "
        "meanings are on the format's page. [Other packages](python.md#bring-a-format) may bring further formats.\n\n"
    )
    names = [page.stem for page in (FOLDER / "formats").glob("*.md")]
    for name in sorted(names, key=lambda name: (name not in OWN, name != DEFAULT_FORMAT, name)):
        rows = [[code(option.name), _expected_option(option), value_of(option.default)] for option in _options_of(name)]
        text += f"### Format {name}\n\n[Page of the format](formats/{name}.md).\n\n"
        text += table(["option", "value", "default"], rows) if rows else "It has no options.\n\n"
    return text


def _options_of(name: str) -> list[Any]:
    """The options that a format declares."""
    known: list[Any] = []
    real = Options.__init__

    def record(self: Options, format_name: str, options: Sequence[Any], given: Mapping[str, object]) -> None:
        if format_name == name:
            known[:] = options
        real(self, format_name, options, given)

    required = {"registry": "schema_registry"} if name in WITH_SCHEMA_REGISTRY else {}
    with patch.object(Options, "__init__", record):
        format_of(name, FormatSettings("", 0, options=required))
    return known


def _expected_option(option: Any) -> str:
    try:
        option.read(object())
    except ValueError as error:
        return str(error).removeprefix("one of ").removeprefix("a ")
    return "any value"


def _outbox_table() -> str:
    rows = [[code(name), value_of(option.default), option.description] for name, option in OUTBOX_OPTIONS.items()]
    return table(["option of Debezium's router", "default", "description"], rows)


def _renamed_keys() -> str:
    rows = [[code(old), code(new)] for old, new in RENAMED_KEYS.items()]
    return "## Renamed keys\n\nA file with an old key is refused; the error names the new key.\n\n" + table(
        ["old", "new"], rows
    )


# --- command


def command() -> str:
    """Every command with its options."""
    sort_commands()
    below = {name: text for name, text in texts_below(command_app).items() if name.startswith("EXIT_")}
    codes = {0: "The command succeeded.", 2: "The command line is wrong.", 130: "The command was interrupted (Ctrl-C)."}
    codes |= {getattr(command_app, name): text for name, text in below.items()}
    text = f"""# Command

`changefeed` does without Airflow what the DAGs, the page and the REST API do, with the same plan, checks and
records. It reads the same files of pipelines. Connections are environment variables: `AIRFLOW_CONN_SHOP` is the
connection `shop`. More about single commands is in [commands in detail](operations.md).

## Exit codes

{table(["code", "meaning"], [[str(number), codes[number]] for number in sorted(codes)])}
An error is one message on stderr: `ClassOfTheError: what was expected, what was found, what to do`
([errors](errors.md)). With `--json` stdout has JSON only; after an error `{{"error": MESSAGE}}`.

"""
    for one in command_app.app.registered_commands:
        assert one.callback is not None
        text += _command_text(one.name or one.callback.__name__.replace("_", "-"), one.callback)
    return text


def _command_text(name: str, callback: Callable[..., Any]) -> str:
    parameters = list(map(_command_parameter, inspect.signature(callback, eval_str=True).parameters.values()))
    usage = " ".join(
        ["changefeed", name, *(shown for shown, *_ in parameters if not shown.startswith("-")), "[OPTIONS]"]
    )
    rows = [[code(shown), default, sentence(text)] for shown, default, text in parameters]
    options = table(["argument or option", "default", "description"], rows)
    return f"## {name}\n\n```\n{usage}\n```\n\n{prose(callback.__doc__)}\n\n{options}"


def _command_parameter(parameter: inspect.Parameter) -> tuple[str, str, str]:
    """An argument or option with its value's name; its default; and its help."""
    annotation, info = get_args(parameter.annotation)
    kinds = [kind for kind in get_args(annotation) or [annotation] if kind is not type(None)]
    kind = kinds[0]
    metavar = info.metavar or ""
    if not metavar and isinstance(kind, type) and issubclass(kind, Enum):
        metavar = f"{{{','.join(each.value for each in kind)}}}"
    elif not metavar and kind is not bool:
        metavar = {int: "N", Path: "FILE"}.get(kind, "TEXT")
    is_shown = parameter.default not in (None, []) and kind is not bool
    default = value_of(parameter.default) if is_shown else ""
    if parameter.default is inspect.Parameter.empty:
        default = "required"
    if isinstance(info, ArgumentInfo):
        return metavar, default, info.help or ""
    dashed = parameter.name.replace("_", "-")
    declared = [text for text in (info.default, *(info.param_decls or ())) if isinstance(text, str) and text[:1] == "-"]
    names = declared or [f"--{dashed}/--no-{dashed}" if kind is bool else f"--{dashed}"]
    return f"{', '.join(names)} {'' if kind is bool else metavar}".strip(), default, info.help or ""


# --- DAG params


def dag_params() -> str:
    """Every param of every DAG."""
    dags = {
        ingest_dag_id: params.ingest_params(),
        seek_dag_id: params.seek_params(),
        backfill_dag_id: params.backfill_params(),
        snapshot_dag_id: params.snapshot_params(),
        verify_dag_id: params.verify_params(["FOLLOWER"]),
        unpark_dag_id: params.unpark_params(),
        replicate_dag_id: {},
    }
    text = """# DAG params

Each pipeline has these DAGs. A run that is triggered by hand takes params: in Airflow's form, or as `conf` of its
API. The form checks the values; a key that is not listed here fails the run. An empty value is the default.

"""
    for dag_id, form in dags.items():
        text += f"## {dag_id('NAME')}\n\n{prose(inspect.getmodule(dag_id).__doc__).split(chr(10) * 2)[0]}\n\n"
        rows = [
            [
                code(name),
                with_unit(name, type_of(param.schema, {})),
                value_of(param.value if param.value != "" else None),
                param.description or "",
            ]
            for name, param in form.items()
        ]
        text += table(["param", "type", "default", "description"], rows) if rows else "It has no params.\n\n"
    return text


# --- REST


def rest() -> str:
    """Every route, who may call it, and its body."""
    api = web_app.create_app()
    schema = api.openapi()
    text = f"""# REST API

All routes are below `/changefeed`, and `/changefeed/docs` is this description in the browser. A call needs a token of
Airflow (`POST /auth/token`) as `Authorization: Bearer TOKEN`. Permissions are Airflow's own on the DAGs of the
pipeline: GET is to read, PUT to edit, POST on runs to trigger. Every change is in Airflow's audit log. The
[how-to guide](../how-to/manage-pipelines-over-rest.md) shows how to create and change pipelines.

{_statuses(api)}"""
    routes: dict[str, list[Any]] = {}
    for route in api.routes:
        if tags := getattr(route, "tags", None):
            routes.setdefault(tags[0], []).append(route)
    for tag, tagged in routes.items():
        text += f"## {tag.capitalize()}\n\n"
        for route in tagged:
            text += _route_text(route, schema)
    operations = [each for path in schema["paths"].values() for each in path.values()]
    names = dict.fromkeys(_model_of(each["requestBody"]) for each in operations if "requestBody" in each)
    return text + "## Bodies\n\n" + "".join(_body_text(name, schema["components"]["schemas"]) for name in names)


def _route_text(route: Any, schema: Mapping[str, Any]) -> str:
    (method,) = route.methods
    operation = schema["paths"][route.path][method.lower()]
    text = f"### {method} {route.path}\n\n{prose(route.endpoint.__doc__)}\n\n"
    success = next(status for status in operation["responses"] if status < "300")
    needs = _permissions(route.endpoint) or "a login; only pipelines that the user may read are shown"
    text += f"Needs: {needs}. Answers {success}.\n\n"
    parameters = [each for each in operation.get("parameters", []) if each["in"] != "path"]
    rows = [
        [code(each["name"]), each["in"], *_json_row(each["schema"], {}), _example(each["example"]), each["description"]]
        for each in parameters
    ]
    if rows:
        text += table(["parameter", "in", "type", "default", "example", "description"], rows)
    if body := operation.get("requestBody"):
        name = _model_of(body)
        may_be_missing = "" if body.get("required") else ", which may be missing"
        text += f"Body{may_be_missing}: [{name}](#{name.lower()}).\n\n"
    return text


def _model_of(body: Mapping[str, Any]) -> str:
    schema = body["content"]["application/json"]["schema"]
    reference = next(each["$ref"] for each in (schema, *schema.get("anyOf", [])) if "$ref" in each)
    return str(reference.rpartition("/")[2])


def _body_text(name: str, definitions: Mapping[str, Any]) -> str:
    model = definitions[name]
    required = model.get("required", [])
    rows = []
    for key, field in model["properties"].items():
        kind, default = _json_row(field, definitions)
        default = "required" if key in required else default
        rows.append([code(key), with_unit(key, kind), default, _example(field["examples"][0]), field["description"]])
    columns = ["field", "type", "default", "example", "description"]
    return f"### {name}\n\n{prose(model.get('description'))}\n\n{table(columns, rows)}"


def _json_row(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> list[str]:
    return [type_of(schema, definitions), value_of(schema.get("default"))]


def _example(value: Any) -> str:
    is_line = isinstance(value, str) and "\n" not in value
    return code(value if is_line else json.dumps(value, ensure_ascii=False))


def _permissions(endpoint: Callable[..., Any]) -> str:
    """The permissions that an endpoint requires, by its source and the functions of its module that it calls."""
    functions = {
        node.name: node
        for node in ast.parse(inspect.getsource(inspect.getmodule(endpoint))).body  # type: ignore[arg-type]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return " and ".join(dict.fromkeys(_list_permissions(functions[endpoint.__name__], functions)))


_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _list_permissions(function: _Function, functions: Mapping[str, _Function]) -> Iterator[str]:
    for call in ast.walk(function):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        if call.func.id == access.require_permission.__name__:
            named = {keyword.arg: keyword.value for keyword in call.keywords}
            dag = named.get("dag_id")
            kind = "ingest"
            if isinstance(dag, ast.Call) and isinstance(dag.func, ast.Name):
                kind = dag.func.id.removesuffix("_dag_id")
            everything = " of every pipeline" if isinstance(dag, ast.Constant) else ""
            on = "runs of the" if "run" in named else "the"
            yield f"{ast.literal_eval(call.args[1])} on {on} {kind} DAG{everything}"
        elif call.func.id in functions and call.func.id != function.name:
            yield from _list_permissions(functions[call.func.id], functions)


def _statuses(api: Any) -> str:
    """The HTTP status of each error class whose base class has another one."""
    handler = api.exception_handlers[errors.ChangefeedError]
    rows: list[list[str]] = []
    last: dict[Any, int] = {}
    for depth, error in _tree(errors.ChangefeedError):
        status = asyncio.run(handler(None, error(""))).status_code
        if depth and status != last.get(error.__base__):
            rows.append([str(status), code(error.__name__)])
        last[error] = status
    rows += [
        ["403", "the user does not have the permission, or the request comes from another site"],
        ["404", "there is no such pipeline"],
        ["409", "the pipeline exists, a run is alive, or Airflow does not know the DAG yet"],
        ["412", "the pipeline was changed since the ETag in `If-Match` was read"],
        ["413", "the body is too large"],
        ["422", "the body or a parameter is wrong"],
        ["428", "`If-Match` is missing"],
        ["503", "too many requests wait for servers: try again after `Retry-After` seconds"],
    ]
    return "## Errors\n\n`detail` of the answer is the message, and `error` the [class](errors.md).\n\n" + table(
        ["status", "error"], sorted(rows)
    )


# --- metrics, headers, errors


_STATSD = {
    "changefeed.lag_bytes": "Bytes of binlog between checkpoint and head.",
    "changefeed.lag_seconds": "Age of the oldest unpublished change of the pipeline's tables, in seconds; 0 for none.",
    "changefeed.retention_headroom_seconds": "Seconds until the server purges the checkpoint's binlog file.",
    "changefeed.windows": "Committed windows.",
    "changefeed.bytes": "Bytes of binlog in committed windows.",
    "changefeed.rows": "Row changes in committed windows.",
    "changefeed.dead_letters": "Records of committed windows that went to the dead-letter topic.",
    "changefeed.window_seconds": "Seconds that the last committed window took in a phase.",
    "changefeed.verifications": "Finished verifications.",
    "changefeed.verified_rows": "Rows that the last verification found equal.",
    "changefeed.differing_rows": "Rows and records that the last verification found differing.",
    "changefeed.retries": "Further attempts at tasks.",
}


def metric_names() -> str:
    """Every metric."""
    found = dict(sorted(_reported_metrics().items()))
    texts = with_descriptions("metrics", found, {name: _STATSD[name] for name in sorted(_STATSD)})
    statsd = [[code(name), found[name][0], ", ".join(map(code, found[name][1])), text] for name, text in texts.items()]
    prometheus = [
        [code(name), ", ".join(map(code, metric.labels)), sentence(metric.meaning)]
        for name, metric in metrics.METRICS.items()
    ]
    return f"""# Metrics

## StatsD and OpenTelemetry

The tasks of the DAGs report these through Airflow, as `[metrics]` in its configuration says.
Airflow puts its prefix before each name: `airflow.changefeed.rows`. [Set it up](../how-to/send-metrics-and-lineage.md).

{table(["metric", "kind", "tags", "description"], statsd)}
## Prometheus

`GET /changefeed/metrics` answers these gauges: for all pipelines with the [scrape token](site-settings.md), for the
pipelines that the user may read with a token of Airflow ([REST](rest.md)).

{table(["metric", "labels", "description"], prometheus)}"""


def _reported_metrics() -> dict[str, tuple[str, tuple[str, ...]]]:
    """By name the kind and the tags of the metrics that `airflow.reporting` sends."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for function in ast.parse(inspect.getsource(reporting)).body:
        common: list[str] = []
        for node in ast.walk(function):
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Dict)
                and getattr(node.targets[0], "id", "") == "tags"
            ):
                common = _keys(node.value)
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in ("gauge", "incr")
            ):
                tags = next(keyword.value for keyword in node.keywords if keyword.arg == "tags")
                own = _keys(tags) if isinstance(tags, ast.Dict) else []
                spread = not isinstance(tags, ast.Dict) or None in tags.keys
                kind = "gauge" if node.func.attr == "gauge" else "counter"
                found[str(ast.literal_eval(node.args[0]))] = kind, (*(common if spread else []), *own)
    return found


def _keys(node: ast.Dict) -> list[str]:
    return [str(key.value) for key in node.keys if isinstance(key, ast.Constant)]


_HEADERS = {
    block.ID_HEADER: (
        "all records",
        "The id of the change: `SERVER_UUID/FILE:POSITION/ROW`. Equal ids are the same record.",
    ),
    block.GTID_HEADER: ("all records", "The GTID of the transaction; missing if the source has none."),
    block.COMMIT_HEADER: (
        "rows of XA transactions",
        "`FILE:POSITION` of the XA COMMIT. The id of such a row says where the transaction was prepared.",
    ),
    block.FOREIGN_KEYS_HEADER: (
        "rows of tables that foreign keys refer to",
        "Whether foreign keys changed other rows together with this one "
        "([replicate](../explanation/replicate.md#what-is-applied)).",
    ),
    block.DEFINITION_HEADER: (
        "records of the schema-change topic",
        "The DDL statement, its database and its session as JSON, if the record's format does not have them.",
    ),
    block.READ_HEADER: (
        "rows that a snapshot read",
        "`FILE:POSITION/SNAPSHOT`: coordinates at which the row was as it was read, and the identity of the snapshot.",
    ),
}
_DEAD_LETTER_HEADERS = {
    "changefeed.reason": "Why the record is a dead letter.",
    "changefeed.topic": "The topic that the record was for.",
    "changefeed.partition": "The partition that the record was for; missing if a function failed on the change.",
    "changefeed.table": "`DATABASE.TABLE`, if a function failed on the change.",
    "changefeed.value_bytes": "Bytes of the value, if it does not fit into the dead-letter topic and was left out.",
}
_CHOSEN_HEADERS = {
    headers.BINLOG_HEADER: "The header of the binlog event as JSON: `timestamp`, `event_type` (MySQL's number), "
    "`server_id`, `event_size` (as the source wrote it), `log_file`, `log_pos` (end of the event) and `flags`. Inside "
    "a compressed transaction `event_size` is the size before compression, and `log_pos` the end of the transaction's "
    "event. Rows that a snapshot read have no such header.",
    "table": "`DATABASE.TABLE`.",
    "op": "`c`, `u`, `d` or `r`; a tombstone's is `d`.",
    "transaction_id": "The GTID; empty if the source has none.",
    "xid": "The xid of the row's XA transaction, as `XA COMMIT` in the binlog spells it: `X'6f72646572',X'',1`; empty "
    "for other rows.",
    "ts_ms": "When the source wrote the event, in milliseconds since 1970.",
}


def record_headers() -> str:
    """Every header of records."""
    declared = [value for name, value in vars(block).items() if name.endswith("_HEADER") and isinstance(value, str)]
    always = [
        [code(name), *_HEADERS[name]]
        for name in with_descriptions("headers", declared, {n: t[1] for n, t in _HEADERS.items()})
    ]
    chosen = with_descriptions("headers", headers.HEADERS, _CHOSEN_HEADERS)
    letter = bad_record.BadRecord("t", 0, b"", b"v", []).letter("", 1)[1]
    unknown = [name for name, _ in letter if name not in _DEAD_LETTER_HEADERS]
    with_descriptions("headers of dead letters", unknown, {})
    return f"""# Record headers

## Headers that changefeed adds

{table(["header", "in", "value"], always)}
## Headers that a pipeline chooses

`headers: [table, op]` in a pipeline's YAML adds these to all records of rows, tombstones included, in this order.
Records of statements, schema changes and TRUNCATE get those of `mysql_binlog_headers`, `transaction_id` and `ts_ms`
that are listed.

{table(["header", "value"], [[code(name), text] for name, text in chosen.items()])}
## Headers of dead letters

{table(["header", "value"], [[code(name), text] for name, text in _DEAD_LETTER_HEADERS.items()])}
Formats and the [outbox](../how-to/publish-an-outbox.md) may add headers of their own: see their pages."""


_REMEDIES = {
    errors.SettingsError: "Correct the setting, argument or variable that the message names.",
    errors.OptionError: "Correct the option; the message lists those that the format has.",
    errors.BrokerLoginError: "Correct the options sasl.* and ssl.* of the Kafka connection.",
    errors.SourceError: "Give the user the right, or change the setting of the server, that the message names.",
    errors.NoSuchTableError: "Create the table, or remove it from the pipeline.",
    errors.BinlogGoneError: (
        "Take a snapshot or backfill from archived files, then seek. Raise binlog_expire_logs_seconds."
    ),
    errors.SourceLoginError: "Correct the user or the password of the connection.",
    errors.BinlogRefusedError: (
        "See the server's words: if its binlog was reset or restored, seek; if its file is damaged, backfill from "
        "archived files, then seek."
    ),
    errors.BinlogFormatError: (
        "Report the event at the coordinates of the message. Seek past it if its changes are not needed."
    ),
    errors.SchemaError: (
        "Let changefeed learn the table again, or define it: `changefeed schema --relearn` or `--define`."
    ),
    errors.TopicError: "Correct the topic, its ACLs or the pipeline's `topics`.",
    errors.RegistryError: "Correct the login or the rights in the schema registry.",
    errors.CompatibilityError: "Change the compatibility of the subject, or set `on_incompatible: register`.",
    errors.BadRecordError: (
        "Raise the topic's max.message.bytes, correct the function, or set `kafka.on_bad_record: dead_letter`."
    ),
    errors.FollowerError: "Change the follower as the message says, and run again.",
    errors.AccountingError: "Nothing of the window is committed. Report it with the log of the run.",
    errors.CheckpointError: "Use `changefeed recover` or `changefeed seek`, as the message says.",
    errors.StaleCheckpointError: "Run again: the run reads the checkpoint that the other run stored.",
    errors.RenamedError: "Name the pipeline in its YAML as the message says.",
    errors.NotPublishedError: "Look at the last error that it names; the other run may have it too.",
    errors.SourceUnavailableError: (
        "Airflow retries. Check that the server is up and reachable, and `passwords` of the site's file."
    ),
    errors.ConnectionUnavailableError: (
        "Airflow retries. Add the connection, or check Airflow's API server and its secrets backend."
    ),
    errors.SparkUnavailableError: "Airflow retries. Check the Spark Connect server.",
    errors.SparkFailedError: "Airflow retries. See the Spark log for the failed task.",
    errors.RegistryUnavailableError: "Airflow retries. Check the schema registry, and `passwords` of the site's file.",
    errors.FollowerUnavailableError: "Airflow retries. Check the follower, and sessions that hold locks there.",
    errors.BrokerUnavailableError: "Airflow retries. Check the Kafka cluster, and `passwords` of the site's file.",
    errors.StateStoreUnavailableError: "Airflow retries. Check the database of the checkpoints.",
    errors.FencedError: "Nothing: the newer attempt publishes.",
    errors.PipelineBusyError: "Wait until the other run ends.",
}


def error_classes() -> str:
    """Every error class."""
    classes = [error for _, error in _tree(errors.ChangefeedError)]
    roots = {errors.ChangefeedError, errors.TerminalError, errors.RetryableError}
    named = {error.__name__: text for error, text in _REMEDIES.items()}
    with_descriptions("errors", [error.__name__ for error in classes if error not in roots], named)
    tree = "".join(f"{'    ' * depth}{error.__name__}\n" for depth, error in _tree(errors.ChangefeedError))
    rows = [
        [
            code(error.__name__),
            "terminal" if issubclass(error, errors.TerminalError) else "retryable",
            prose(error.__doc__),
            named[error.__name__],
        ]
        for error in classes
        if error not in roots
    ]
    return f"""# Errors

Each message says what was expected, what was found, what it means and what to do. Airflow fails a task at once for a
terminal error, and tries again for a retryable one.

```
{tree}```

{table(["error", "kind", "meaning", "what to do"], rows)}"""


def _tree(root: type[Exception], depth: int = 0) -> Iterator[tuple[int, type[Exception]]]:
    """``root`` and the error classes below it, each with its depth, in the order of their declaration."""
    yield depth, root
    for error in vars(errors).values():
        if isinstance(error, type) and error.__base__ is root and error.__module__ == errors.__name__:
            yield from _tree(error, depth + 1)


PAGES: Mapping[str, Callable[[], str]] = {
    "pipeline-settings.md": pipeline_settings,
    "site-settings.md": site_settings,
    "command.md": command,
    "dag-params.md": dag_params,
    "rest.md": rest,
    "metrics.md": metric_names,
    "record-headers.md": record_headers,
    "errors.md": error_classes,
}


def page(name: str) -> str:
    """The text of a page, with the line that says that it is generated."""
    text = re.sub(r"\n{3,}", "\n\n", PAGES[name]())
    return f"{GENERATED}\n\n{text.strip()}\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file in PAGES:
        (FOLDER / file).write_text(page(file))
