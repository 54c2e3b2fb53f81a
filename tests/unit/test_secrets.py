"""Planted secrets are in no error, no traceback, no repr and no JSON."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.api_fastapi.core_api.security import get_user
from fastapi.testclient import TestClient

from changefeed.airflow.connections import airflow_lookup, job_variables
from changefeed.airflow.ingest_operator import IngestOperator
from changefeed.airflow.params import backfill_params
from changefeed.errors import ChangefeedError, ConnectionUnavailableError, SettingsError
from changefeed.kafka.connection import KafkaConnection
from changefeed.model.column_rules import Sha256
from changefeed.model.connection import MysqlConnection, kafka_parts
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.file import load_pipelines, read_pipeline
from changefeed.settings.requests.backfill import BackfillRequest
from changefeed.settings.secrets import redact_yaml
from changefeed.source.archive.archive import Archive
from changefeed.spark.connect import connect_session
from changefeed.state.table_store import TableCheckpointStore
from changefeed_web.app import create_app

HALVES = ("31055", "17920")
"""Of a secret. Digits, as these are parsed as a port; apart, as a misread secret may be cut in two."""
SECRET = "".join(HALVES)

GOOD = """\
name: shop
source: {connection: mysql_shop}
kafka: {connection: kafka_shop}
"""
MASKED = f"""\
# the old salt was {SECRET}
columns:
  mask:
    shop.customers.email: {{sha256: {{environment: MASK_SALT}}}}
    shop.customers.phone: {{hmac_sha256: {{connection: mask_key}}}}
    shop.customers.name: {{text: hidden}}
spark:
  connect: sc://127.0.0.1:1/;token={SECRET}
  conf: {{spark.hadoop.fs.s3a.secret.key: '{SECRET}'}}
alerts:
  notify:
    - {{notifier: airflow.providers.http.notifications.http.HttpNotifier, arguments: {{token: '{SECRET}'}}}}
"""


def collect_output(call: Callable[[], object]) -> str:
    """What a call says: its error, with all tracebacks of its causes, or its result."""
    try:
        result = call()
    except ChangefeedError as error:
        return "".join(traceback.format_exception(error)) + repr(error)
    return f"{result!r} {result}"


def assert_hidden(text: str) -> None:
    assert [half for half in HALVES if half in text] == [], text


@pytest.mark.parametrize(
    "text",
    [
        "columns: S",
        "columns: {mask: S}",
        "columns: {mask: [S]}",
        "columns: {mask: {sha256: S}}",
        "columns: {mask: {a.b.c: S}}",
        "columns: {mask: {a.b.c: [S]}}",
        "columns: {mask: {a.b.c: {S}}}",
        "columns: {mask: {a.b.c: {sha256:S}}}",
        "columns: {mask: {a.b.c: {sha256 S}}}",
        "columns: {mask: {a.b.c: {sha256-S}}}",
        "columns: {mask: {a.b.c: {sha265: S}}}",
        "columns: {mask: {a.b.c: {sha256: [S]}}}",
        "columns: {mask: {a.b.c: {sha256: {x: S}}}}",
        "columns: {mask: {a.b.c: {sha256: S}}}",  # a number
        "columns: {mask: {a.b.c: {hmac_sha256: 'S'}}}",
        "columns: {mask: {a.b.c: {text_from: 'S'}}}",
        "columns: {mask: {a.b.c: {sha256: {environment: '-S'}}}}",
        "columns: {mask: {a.b.c: {sha256: {connection: S}}}}",  # a number
        "columns: {mask: {a.b.c: {sha256: 'S', text: x}}}",
        "columns: {mask: {a.b.c: {sha256: 'S', tekst: x}}}",
        "columns: {mask: {a.b.c: {text: [S]}}}",
        "columns: {mask: {a.b.c: {sha256: xS, sha256: xS}}}",
        "columns: {mask: {a.b.c: {xS, xS}}}",
        "columns: {mask: {a.b.c: {sha256: *xS}}}",
        "columns: {mask: {a.b.c: {sha256: !xS x}}}",
        "columns: {mask: {a.b.c: {sha256: !!int xS}}}",
        "columns: {mask: {a.b.c: {sha256: !!timestamp xS}}}",
        "columns: {mask: {a.b.c: {sha256: !!bool xS}}}",
        "columns: {mask: {a.b.c: {sha256: !!float xS}}}",
        "columns: {mask: {a.b.c: {sha256: &xS 1}, a.b.d: {sha256: &xS 1}}}",
        "columns: {mask: {a.b.c: {sha256: 'S",
        "columns: {mask: {a.b.c: {sha256: x: S: y}}}",
        'columns: {mask: {a.b.c: {sha256: "S\\q"}}}',
        "columns: {mask: {a.b.c: {sha256: S\x01}}}",
        "columns: {mask: {a.b.c: {sha256: 2020-99-99}}}\nS: 1",
        "%S\n",
        "checkpoint: postgresql://u:S@h/d",
        "checkpoint: {store: table, connection: 'postgresql://u:S@h/d'}",
        "checkpoint: {store: 'postgresql://u:S@h/d'}",
        "checkpoint: {store table connection mysql://u:S@h}",
        "spark: sc://h/;token=S",
        "spark: {connect: 'https://h/;token=S'}",
        "spark: {connect: [S]}",
        "spark: {conf: {spark.secret: S}}",
        "spark: {conf: [S]}",
        "spark: {connection: 'spark://u:S@h'}",
        "alerts: {notify: [{notifier: a.b, arguments: {token: {x: S}}}]}",
        "alerts: {notify: [S]}",
        "owner: ['u:S@h']",
        "schedule: 'u:S@h'",
        "mysql://u:S@h: 1",
        "mysql://u:S@h: 1\nmysql://u:S@h: 1",
        "source: mysql://u:S@h",
        "source: {connection: 'mysql://u:S@h'}",
        "source: {connection: 'mysql://u:S@h', port: 1}",
        "source: {connection mysql://u:S@h}",
        "kafka: {connection: 'kafka://h?sasl.password=S'}",
        "kafka: {connection: ['kafka://h?sasl.password=S']}",
    ],
)
def test_errors_in_a_pipeline_show_no_secrets(tmp_path: Path, text: str) -> None:
    text = text.replace("S", SECRET)
    base = "".join(line for line in GOOD.splitlines(True) if not text.startswith(line.partition(":")[0] + ":"))
    path = tmp_path / "shop.yaml"
    path.write_text(base + text + "\n")
    with pytest.raises(SettingsError):
        read_pipeline(path)
    assert_hidden(collect_output(lambda: read_pipeline(path)))
    _, errors = load_pipelines(tmp_path)  # what Airflow's import errors and REST show
    assert_hidden(" ".join(map(str, errors.values())))


def test_a_pipelines_secrets_are_in_none_of_its_forms_and_reach_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "shop.yaml"
    monkeypatch.setenv("MASK_SALT", SECRET)
    path.write_text(GOOD + MASKED)
    pipeline = read_pipeline(path)
    uris = {"kafka_shop": f"kafka://h:1/?sasl.username=u&sasl.password={SECRET}"}
    connections = PipelineConnections(pipeline, lambda name: uris.get(name, f"mysql://u:{SECRET}@h:1/"))
    for value in (pipeline, pipeline.columns, pipeline.spark, pipeline.alerts, connections.column_rules, connections):
        assert_hidden(f"{value!r} {value}")
    assert_hidden(pipeline.columns.model_dump_json())
    sent = pickle.dumps(PipelineConnections(pipeline, connections.lookup))
    monkeypatch.delenv("MASK_SALT")
    rules = pickle.loads(sent).column_rules
    assert rules == connections.column_rules
    assert (rules.rules[0].treatment.salt, rules.rules[1].treatment.key) == (SECRET, SECRET)


def test_who_may_only_look_reads_a_pipelines_yaml_without_secrets() -> None:
    shown = redact_yaml(GOOD + MASKED.replace("{environment: MASK_SALT}", f"'{SECRET}'"))  # as it once could be there
    assert_hidden(shown)
    values = yaml.safe_load(shown)
    assert values["columns"]["mask"]["shop.customers.name"] == {"text": "hidden"}
    assert values["columns"]["mask"]["shop.customers.email"] == {"sha256": "***"}
    assert list(values) == ["name", "source", "kafka", "columns", "spark", "alerts"]


@pytest.mark.parametrize("character", list("@/:?#[]%& \\+=;"))
@pytest.mark.parametrize(
    "read",
    [
        lambda password: MysqlConnection.from_uri(f"mysql://u:{password}@127.0.0.1:1/shop"),
        lambda password: MysqlConnection.from_uri(f"u:{password}@127.0.0.1"),
        lambda password: MysqlConnection.from_uri(f"{password}"),
        lambda password: KafkaConnection(*kafka_parts(f"kafka://u:{password}@127.0.0.1:1")),
        lambda password: KafkaConnection(*kafka_parts(f"kafka://127.0.0.1:1/?sasl.password={password}")),
        lambda password: TableCheckpointStore(f"mysql+pymysql://u:{password}@127.0.0.1:1/state"),
        lambda password: TableCheckpointStore(f"mysql+pymysql://127.0.0.1:1/state?password={password}"),
        lambda password: TableCheckpointStore(f"mysql+pymysql:{password}"),
    ],
)
def test_unreadable_address_error_shows_no_password(read: Callable[[str], Any], character: str) -> None:
    assert_hidden(collect_output(lambda: read(character.join(HALVES))))


def test_errors_in_kafka_options_show_no_secrets() -> None:
    secrets = ("sasl.password", "ssl.key.password", "ssl.key.pem", "sasl.oauthbearer.client.secret")
    connection = KafkaConnection("127.0.0.1:1", {**dict.fromkeys(secrets, SECRET), "security.protocol": "ssl"}, 0.5)
    assert_hidden(f"{connection!r} {connection}")
    assert_hidden(collect_output(connection.check_options))
    assert_hidden(collect_output(connection.kafka_python))


def test_a_spark_connect_server_is_named_without_its_token() -> None:
    for url in (f"sc://127.0.0.1:1/;token={SECRET}", f"sc://127.0.0.1:{SECRET}/;token=x"):
        assert_hidden(collect_output(connect_session(url).__enter__))


@pytest.mark.parametrize(
    "url",
    [
        "https://u:S@127.0.0.1/binlogs",
        "s3://key:S@bucket/binlogs",
        "s3://S@bucket",
        "https://127.0.0.1/binlogs?sig=S",
        "simplecache::ftp://u:S@127.0.0.1/",
    ],
)
def test_an_archives_url_with_a_secret_is_refused_before_anything_keeps_it(url: str) -> None:
    url = url.replace("S", SECRET)
    for read in (
        Archive,
        lambda url: BackfillRequest.of({"pipeline": "shop", "from_file": "b.000001", "archive": url}),
    ):
        with pytest.raises(SettingsError, match="environment"):
            read(url)
        assert_hidden(collect_output(lambda read=read: read(url)))
    with pytest.raises(Exception, match="does not match"):
        backfill_params()["archive"].resolve(url)


def test_a_body_that_is_refused_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "http://testserver")
    app = create_app()
    app.dependency_overrides[get_user] = lambda: "ulf"
    url = f"s3://key:{SECRET}@bucket"
    for body in ({"archive": url}, {"archive": url, "from_file": "b.000001"}, {"from_file": "b.000001", "archiv": url}):
        answer = TestClient(app).post("/api/pipelines/shop/backfill", json=body)
        assert answer.status_code == 422
        assert any(words in answer.text for words in ("expected one range", "environment", "Extra inputs"))
        assert_hidden(answer.text)


@pytest.mark.parametrize("url", ["/binlogs/of@us?", "s3://bucket/of us", "file:///binlogs", "https://h/b/", None])
def test_an_archives_url_without_one_is_taken(url: str | None) -> None:
    assert backfill_params()["archive"].resolve(url) == url
    assert BackfillRequest.of({"pipeline": "shop", "from_file": "b.000001", "archive": url}).archive == url


def test_a_jobs_command_line_and_environment_have_no_secrets_and_its_file_only_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.yaml").write_text(GOOD + MASKED.partition("spark:")[0])
    monkeypatch.setenv("CHANGEFEED_PIPELINES", str(tmp_path))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", "spark://local[2]")
    for variable in ("MASK_SALT", "OTHER_SALT"):
        monkeypatch.setenv(variable, SECRET)
    for name in ("mysql_shop", "kafka_shop", "mask_key", "other"):
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", f"{name.partition('_')[0]}://u:{SECRET}@h:1")
    operator = IngestOperator(task_id="ingest", pipeline="shop")
    operator._conf_file = (tmp_path / "conf").open("w")
    hook = operator._get_hook()
    operator._conf_file.close()
    assert_hidden(f"{hook._build_spark_submit_command('job.py')} {operator!r} {vars(operator)} {hook._environment}")
    given = {name for name, value in job_variables(read_pipeline(tmp_path / "shop.yaml")).items() if SECRET in value}
    connections = {f"AIRFLOW_CONN_{name}" for name in ("MYSQL_SHOP", "KAFKA_SHOP", "MASK_KEY")}
    assert given == connections | {"MASK_SALT"}


def test_a_connection_that_airflow_does_not_give_is_asked_for_again() -> None:
    """To a task, an error of a secrets backend looks like a missing connection."""
    with pytest.raises(ConnectionUnavailableError, match=r"no connection 'nowhere': .* set AIRFLOW_CONN_NOWHERE"):
        airflow_lookup("nowhere")


def test_a_salt_of_airflows_needs_no_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(GOOD + "columns: {mask: {a.b.c: {sha256: {connection: salt}}}}\n")
    monkeypatch.setenv("AIRFLOW_CONN_SALT", '{"conn_type": "generic", "password": "a/b@c"}')
    treatment = read_pipeline(path).column_rules(airflow_lookup).rules[0].treatment
    assert isinstance(treatment, Sha256)
    assert treatment.salt == "a/b@c"
