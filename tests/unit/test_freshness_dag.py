"""The check of all pipelines continues if the servers of one do not answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from changefeed.airflow import alerts, freshness_dag
from changefeed.model.connection import AnswerLimits
from changefeed.model.freshness import Freshness
from changefeed.operations.lag import UNKNOWN, Position
from changefeed.operations.status import Status
from changefeed.settings.file import parse_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.site import FreshnessSettings


def pipeline(name: str) -> Pipeline:
    return parse_pipeline(f"name: {name}\nsource: {{connection: m}}\nkafka: {{connection: k}}\n", f"{name}.yaml")


def test_pipeline_whose_servers_do_not_answer_is_an_error_and_the_others_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered = Event()

    def read(of: Pipeline, _: object) -> Position:
        if of.name == "silent":
            answered.wait(60)
        return Position(Status(of.name, "current", lag_bytes=0), UNKNOWN)

    monkeypatch.setattr(freshness_dag, "_read_position", read)
    monkeypatch.setattr(freshness_dag, "_READ_SECONDS", 3)
    try:
        found = freshness_dag._read_positions([pipeline("silent"), pipeline("shop")])
    finally:
        answered.set()
    assert [(each.status.pipeline, each.status.state) for each in found] == [("silent", "error"), ("shop", "current")]
    assert "did not answer within 3 s" in (found[0].status.error or "")


@contextmanager
def silent_server() -> Iterator[tuple[int, list[Any]]]:
    """A port that accepts connections and answers nothing, and the addresses of those that were opened."""
    opened: list[Any] = []

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            opened.append(self.client_address)
            while self.request.recv(1024):
                pass

    with ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1], opened
        server.shutdown()


def test_of_the_pipelines_of_a_dead_kafka_cluster_one_asks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freshness_dag, "_ANSWER_LIMITS", AnswerLimits(connect_seconds=1, answer_seconds=1))
    texts = [
        f"name: p{number}\nsource: {{connection: m}}\nkafka: {{connection: k}}\ncheckpoint: {{store: kafka}}\n"
        for number in range(20)
    ]
    pipelines = [parse_pipeline(text, f"p{number}.yaml") for number, text in enumerate(texts)]
    with silent_server() as (port, opened):
        monkeypatch.setenv("AIRFLOW_CONN_K", f"kafka://127.0.0.1:{port}")
        found = freshness_dag._read_positions(pipelines)
        assert len(opened) < len(pipelines), "each of them would open a connection or more"
    assert [each.status.pipeline for each in found] == [pipeline.name for pipeline in pipelines]
    (error,) = {each.status.error for each in found}
    assert f"127.0.0.1:{port}" in (error or "")


def test_an_invalid_file_is_an_alert_by_its_own_notifiers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notifier = "alerts: {notify: [{notifier: company.Pager, arguments: {text: hello}}]}\n"
    (tmp_path / "typo.yaml").write_text(f"name: shop\nsorce: {{}}\n{notifier}")
    (tmp_path / "syntax.yaml").write_text(f"name: [\n{notifier}")
    (tmp_path / "silent.yaml").write_text("name: silent\nalerts: {notify: [{notifier: 1}]}\n")
    monkeypatch.setenv("CHANGEFEED_PIPELINES", str(tmp_path))
    sent: list[Any] = []
    monkeypatch.setattr(alerts, "create_notifier", lambda settings: lambda context: sent.append((settings, context)))
    monkeypatch.setattr(
        freshness_dag, "get_current_context", lambda: {"ti": SimpleNamespace(xcom_push=lambda *_: None)}
    )
    with pytest.raises(AirflowFailException, match=r"'silent.yaml' is invalid.*'syntax.yaml' is invalid.*'typo.yaml'"):
        freshness_dag.check_freshness(True)
    ((settings, context),) = sent
    assert (settings.notifier, settings.arguments) == ("company.Pager", {"text": "hello"})
    assert context["changefeed"] == {
        "kind": "invalid file",
        "pipeline": "shop",
        "text": "the file 'typo.yaml' is invalid, so its pipeline has no DAG: `changefeed check` shows the error",
    }


def test_a_parked_table_is_an_alert_of_a_pipeline_in_time() -> None:
    parked = ({"table": "shop.orders", "at": "b.000001:4", "reason": "it fails", "since_ms": 0},)
    current = Position(Status("shop", "new", parked=parked), UNKNOWN)
    ((kind, text),) = freshness_dag._alerts_of(pipeline("shop"), current, FreshnessSettings(), datetime.now(UTC))
    assert kind == "table parked"
    assert "shop.orders" in text
    assert "changefeed unpark shop" in text


@pytest.mark.parametrize(("limit", "kinds"), [(None, []), (2.5, []), (2.4, ["freshness"])])
def test_limit_of_freshness_is_for_99_percent_of_the_time(limit: float | None, kinds: list[str]) -> None:
    fresh = Freshness(p50_seconds=1.0, p99_seconds=2.5, windows=300, since_ms=1_700_000_000_000)
    current = Position(Status("shop", "current", lag_bytes=0, freshness=fresh), UNKNOWN)
    site = FreshnessSettings(freshness_seconds=limit)
    found = freshness_dag._alerts_of(pipeline("shop"), current, site, datetime.now(UTC))
    assert [kind for kind, _ in found] == kinds
    assert [text for _, text in found] == [
        "pipeline 'shop': for 1 % of the time since 2023-11-14 22:13:20 UTC a change was in Kafka 2.5 seconds or more "
        f"after its commit (limit {limit}, 300 windows)"
        for _ in kinds
    ]
    unknown = Position(replace(current.status, freshness=None, freshness_error="no broker"), UNKNOWN)
    ((kind, text),) = freshness_dag._alerts_of(pipeline("shop"), unknown, site, datetime.now(UTC))
    assert (kind, text) == ("freshness", "the freshness of pipeline 'shop' cannot be checked: no broker")
