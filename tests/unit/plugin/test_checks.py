"""Checks of a pipeline's YAML that is not saved: who may check what, and what the answer shows."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from fastapi import HTTPException

from changefeed.errors import BrokerUnavailableError, SettingsError
from changefeed.operations import check as check_module
from changefeed.operations.check import CheckScope
from changefeed.operations.finding import Finding, fail, ok
from changefeed.settings.file import parse_pipeline
from changefeed.settings.new_pipeline import NO_SCHEDULE, NewPipeline
from changefeed.settings.pipeline import Pipeline
from changefeed_web import access, checks, editing, pipelines
from changefeed_web.bodies import PipelineBody

YAML = "name: {name}\nsource: {{connection: {source}}}\nkafka: {{connection: {kafka}}}\n"
SITE = "connections: [{source: mysql_shop, kafka: kafka_shop}]\n"


def yaml_of(name: str = "new", source: str = "mysql_shop", kafka: str = "kafka_shop", more: str = "") -> str:
    return YAML.format(name=name, source=source, kafka=kafka) + more


@pytest.fixture
def rights(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str]]:
    """The user's rights on DAGs, as (method, DAG id)."""
    granted: set[tuple[str, str]] = set()
    for module in (access, pipelines, checks):
        monkeypatch.setattr(module, "has_permission", lambda _, method, dag_id, **__: (method, dag_id) in granted)
    return granted


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of pipelines, with `mine` on other servers. The site allows mysql_shop with kafka_shop."""
    site = tmp_path / "site.yaml"
    site.write_text(SITE)
    monkeypatch.setenv("CHANGEFEED_SITE", str(site))
    path = tmp_path / "pipelines"
    path.mkdir()
    monkeypatch.setenv("CHANGEFEED_PIPELINES", str(path))
    for name in ("bundled_pipeline", "bundled_pipelines"):
        monkeypatch.setattr(pipelines, name, lambda *_: None if _ else {})
    monkeypatch.setattr(pipelines, "may_edit_connection", lambda *_: False)
    monkeypatch.setattr(checks, "may_read_logs", lambda *_: False)
    (path / "mine.yaml").write_text(yaml_of("mine"))
    (path / "theirs.yaml").write_text(yaml_of("theirs", "mysql_theirs", "kafka_theirs"))
    return path


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Pipeline]:
    """The pipelines whose servers were read."""
    seen: list[Pipeline] = []

    def find(pipeline: Pipeline, _: Any) -> Generator[Finding, None, None]:
        seen.append(pipeline)
        yield ok("all is well")

    monkeypatch.setattr(checks, "_findings", find)
    return seen


def check_new(text: str) -> dict[str, Any]:
    return asyncio.run(checks.check_new_pipeline(PipelineBody(yaml=text), "ulf"))


def check_changed(text: str, name: str = "mine") -> dict[str, Any]:
    return asyncio.run(checks.check_changed_pipeline(name, PipelineBody(yaml=text), "ulf"))


NEW, ALL = ("GET", "changefeed_ingest__new"), ("POST", "changefeed_ingest__*")
MINE = {("PUT", "changefeed_ingest__mine"), ("GET", "changefeed_ingest__mine")}


def test_check_reports_the_findings_and_writes_nothing(
    folder: Path, rights: set[tuple[str, str]], read: list[Pipeline]
) -> None:
    rights |= {NEW, ALL, *MINE}
    before = {path.name: path.read_text() for path in folder.iterdir()}
    for answer in (check_new(yaml_of()), check_changed(yaml_of("mine", more="owner: ulf\n"))):
        assert (answer["lines"], answer["complete"]) == ([{"level": "OK", "text": "all is well"}], True)
        assert answer["summary"] == "1 OK, 0 WARN, 0 FAIL"
    assert [(each.name, each.owner) for each in read] == [("new", "changefeed"), ("mine", "ulf")]
    assert {path.name: path.read_text() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("source", "kafka", "more", "words"),
    [
        ("mysql_theirs", "kafka_theirs", "", "may not be used together"),
        ("mysql_shop", "kafka_theirs", "", "may not be used together"),
        ("mysql_shop", "kafka_shop", "checkpoint: {store: table, connection: airflow_db}\n", "may not be set over"),
        ("mysql_shop", "kafka_shop", "format: {name: avro, registry: http_theirs}\n", "names a connection whose login"),
        ("mysql_shop", "kafka_shop", "columns: {mask: {a.b.c: {sha256: {connection: m}}}}\n", "could publish the"),
        ("mysql_shop", "kafka_shop", "source: {connection: mysql_shop}\n", "is repeated"),
    ],
)
def test_check_uses_no_connection_that_saving_refuses(
    folder: Path, rights: set[tuple[str, str]], read: list[Pipeline], source: str, kafka: str, more: str, words: str
) -> None:
    assert folder
    rights |= {NEW, ALL, *MINE}
    with pytest.raises(SettingsError, match=words):
        check_new(yaml_of("new", source, kafka, more))
    with pytest.raises(SettingsError, match=words):
        check_changed(yaml_of("mine", source, kafka, more))
    assert read == []


@pytest.mark.parametrize("missing", ["POST", "GET"])
def test_check_of_a_new_pipeline_needs_its_rights(
    folder: Path, rights: set[tuple[str, str]], read: list[Pipeline], missing: str
) -> None:
    assert folder
    rights |= {each for each in (NEW, ALL) if each[0] != missing}
    with pytest.raises(HTTPException) as refused:
        check_new(yaml_of())
    assert (refused.value.status_code, f"permission for {missing} on" in refused.value.detail) == (403, True)
    assert read == []


def test_check_refuses_names_as_saving_does(folder: Path, rights: set[tuple[str, str]], read: list[Pipeline]) -> None:
    assert folder
    rights |= {NEW, ALL, *MINE, ("PUT", "changefeed_ingest__none"), ("GET", "changefeed_ingest__none")}
    with pytest.raises(HTTPException) as taken:
        check_new(yaml_of("theirs"))
    with pytest.raises(HTTPException) as absent:
        check_changed(yaml_of("none"), "none")
    assert (taken.value.status_code, absent.value.status_code) == (409, 404)
    with pytest.raises(SettingsError, match="the name may not change"):
        check_changed(yaml_of("other"))
    assert read == []


def test_check_compares_visible_pipelines_and_imports_no_function(
    folder: Path, rights: set[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert folder
    rights |= MINE
    seen: list[tuple[list[str], CheckScope]] = []

    def find(_: Any, neighbours: Any, __: Any, scope: CheckScope) -> list[Finding]:
        seen.append(([each.pipeline.name for each in neighbours._all], scope))
        return [fail(SettingsError("a mistake"))]

    monkeypatch.setattr(check_module, "check", find)
    mail = "alerts: {notify: [{notifier: airflow.Mail}]}\n"
    findings = list(checks._findings(parse_pipeline(yaml_of("mine", more=mail), "mine.yaml"), "ulf"))
    assert [str(each.level) for each in findings] == ["FAIL", "FAIL"]
    assert "not in `notifiers`" in findings[1].text
    assert seen == [(["mine"], CheckScope(import_functions=False, show_reasons=False))]


def test_check_ends_after_its_time_and_shows_what_it_found(
    folder: Path, rights: set[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert folder
    rights |= MINE
    goes_on, ended = threading.Event(), threading.Event()

    def find(*_: Any) -> Generator[Finding, None, None]:
        try:
            yield ok("first")
            goes_on.wait(10)
            yield ok("late")
            yield ok("never")
        finally:
            ended.set()

    monkeypatch.setattr(checks, "_findings", find)
    monkeypatch.setattr(checks, "CHECK_SECONDS", 0.1)
    answer = check_changed(yaml_of("mine"))
    assert answer["complete"] is False
    assert [line["level"] for line in answer["lines"]] == ["OK", "WARN"]
    assert "did not answer within 0.1 seconds" in answer["lines"][1]["text"]
    goes_on.set()
    assert ended.wait(10), "the check ends after its current part"


def read_servers(source: str, kafka: str, checkpoint: str | None = None) -> dict[str, Any]:
    body = editing.Connections(source=source, kafka=kafka, checkpoint=checkpoint)
    return asyncio.run(editing.read_servers(body, "ulf"))


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The connections that were used."""
    used: list[str] = []

    def source(pipeline: Pipeline) -> dict[str, Any]:
        used.append(pipeline.source.connection)
        return {"text": "db1", "tables": [], "more": False}

    def kafka(pipeline: Pipeline) -> dict[str, Any]:
        used.append(pipeline.kafka.connection)
        raise BrokerUnavailableError("kafka1:9092 cannot be reached")

    monkeypatch.setattr(editing, "_read_source", source)
    monkeypatch.setattr(editing, "_read_kafka", kafka)
    return used


def test_new_pipelines_servers_are_tested_separately(
    folder: Path, rights: set[tuple[str, str]], servers: list[str]
) -> None:
    assert folder
    rights.add(ALL)
    answer = read_servers("mysql_shop", "kafka_shop")
    assert (answer["source"]["problem"], answer["kafka"]["problem"]) == (None, "kafka1:9092 cannot be reached")
    assert sorted(servers) == ["kafka_shop", "mysql_shop"]


@pytest.mark.parametrize(
    ("source", "kafka", "checkpoint"),
    [
        ("mysql_theirs", "kafka_theirs", None),
        ("mysql_shop", "kafka_theirs", None),
        ("mysql_theirs", "kafka_shop", None),
        ("mysql_shop", "kafka_shop", "airflow_db"),
        ("mysql://root@db1", "kafka_shop", None),
    ],
)
def test_new_pipelines_servers_are_those_that_its_user_may_combine(
    folder: Path, rights: set[tuple[str, str]], servers: list[str], source: str, kafka: str, checkpoint: str | None
) -> None:
    assert folder
    rights |= {ALL, *MINE}
    with pytest.raises(SettingsError):
        read_servers(source, kafka, checkpoint)
    assert servers == []


def test_tables_of_a_source_whose_columns_a_pipeline_hides_are_not_listed(
    folder: Path, rights: set[tuple[str, str]], servers: list[str]
) -> None:
    """Not even to the editors of that pipeline, as a new pipeline of all its tables would show the columns."""
    rights |= {ALL, ("PUT", "changefeed_ingest__theirs")}
    theirs = folder / "theirs.yaml"
    assert read_servers("mysql_theirs", "kafka_theirs")["source"]["text"] == "db1"
    servers.clear()
    theirs.write_text(f"{theirs.read_text()}columns: {{exclude: ['shop.customers.iban']}}\n")
    with pytest.raises(SettingsError, match="hides columns"):
        read_servers("mysql_theirs", "kafka_theirs")
    assert servers == []


def test_new_pipelines_yaml_is_that_of_init_with_its_mistake(rights: set[tuple[str, str]]) -> None:
    answers = {"name": "shop", "source": "m", "kafka": "k", "tables": ["shop.*"]}
    with pytest.raises(HTTPException):
        editing.write_yaml(editing.Answers(**answers), "ulf")
    rights.add(ALL)
    written = editing.write_yaml(editing.Answers(**answers), "ulf")
    new = NewPipeline("shop", "m", "k", ("shop.*",))
    assert written == {"yaml": new.yaml(), "problem": None}
    hidden = {"exclude": ["shop.customers.card"], "mask": {"shop.customers.iban": {"characters": 2}}}
    written = editing.write_yaml(editing.Answers(**answers, **hidden), "ulf")
    assert written["problem"] is None
    assert """columns:  # DATABASE.TABLE.COLUMN, with * and ?
  exclude: ["shop.customers.card"]
  mask:
    "shop.customers.iban": {characters: 2}
""" in written["yaml"]
    wrong = editing.write_yaml(editing.Answers(**answers, mask={"shop.t.c": {"sha256": "salt"}}), "ulf")
    assert "expected {connection: ITS_ID}" in wrong["problem"]
    wrong = editing.write_yaml(editing.Answers(**answers, format="avro", schedule=NO_SCHEDULE), "ulf")
    assert "schedule: null" in wrong["yaml"]
    assert "needs a schema registry" in wrong["problem"]
