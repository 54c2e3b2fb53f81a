"""The shipped alert rules and dashboard use metrics and labels that the endpoint has."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from monitoring_example import FOLDER, Expression, dashboard, labels_by_metric, panels, rules

from changefeed.errors import BrokerUnavailableError
from changefeed.settings.file import parse_pipeline
from changefeed_web import metrics
from changefeed_web.metrics import METRICS

EXPRESSIONS = [*rules(), *panels()]
PIPELINE = parse_pipeline("name: shop\nsource: {connection: m}\nkafka: {connection: k}\n", "shop.yaml")


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=lambda expression: expression.where)
def test_expression_uses_existing_metrics_and_labels(expression: Expression) -> None:
    assert expression.metrics, expression.text
    assert expression.metrics <= METRICS.keys()
    for name in expression.metrics:
        assert expression.labels <= {*METRICS[name].labels, "value"}, name


def test_unknown_names_are_found_in_expressions() -> None:
    wrong = Expression("x", 'sum by (tabel) (changefeed_lag{pipline="a"}) / changefeed_up', ["{{ $labels.sever }}"])
    assert wrong.metrics == {"changefeed_lag", "changefeed_up"}
    assert wrong.labels == {"tabel", "pipline", "sever"}


def test_each_rule_alerts_with_texts_and_a_severity() -> None:
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    alerts = [rule for group in groups for rule in group["rules"]]
    assert len({rule["alert"] for rule in alerts}) == len(alerts) > 5
    for rule in alerts:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}


def test_panels_have_unique_ids_and_do_not_overlap() -> None:
    content = dashboard()
    assert len({panel["id"] for panel in content["panels"]}) == len(content["panels"])
    cells: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in content["panels"]):
        own = {(x, y) for x in range(place["x"], place["x"] + place["w"])
               for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert max(x for x, _ in own) < 24
        assert not own & cells
        cells |= own


def test_commit_log_is_down_while_only_kafka_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise BrokerUnavailableError("no broker answers")

    monkeypatch.setattr("changefeed_web.position.position", lambda _: {"error": None, "checkpoint": None})
    monkeypatch.setattr("changefeed_web.position.sealed_windows", refuse)
    monkeypatch.setattr(metrics, "dag_state", lambda dag_id: {"dag_id": dag_id, "paused": False, "last_run": None})
    values = {name: value for name, _, value in metrics._samples(PIPELINE, metrics._read(PIPELINE))}
    assert values == {"changefeed_up": 1, "changefeed_commit_log_up": 0, "changefeed_paused": 0}
    unanswered = {name: value for name, _, value in metrics._samples(PIPELINE, metrics._Reading({"error": "late"}))}
    assert unanswered == {"changefeed_up": 0, "changefeed_paused": 0}


def test_samples_have_the_declared_labels_and_all_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    run = {"run_id": "r", "state": "success"}
    monkeypatch.setattr(metrics, "dag_state", lambda dag_id: {"dag_id": dag_id, "paused": False, "last_run": run})
    monkeypatch.setattr(metrics, "count_retries", lambda *_: 0)
    position: dict[str, Any] = {
        "error": None, "lag_bytes": 12_345_678_901, "lag_seconds": 0.25, "retention_headroom_seconds": 3600,
        "committed_at_ms": 1_764_190_123_456, "parked": [],
    }  # fmt: skip
    window = {
        "window": {"number": 7}, "size_bytes": 9, "rows": {'a."b"': {"c": 3}}, "seconds": {"decode": 1.5},
    }  # fmt: skip
    snapshot = {"chunks": 1, "rows": 2, "rows_per_second": 3, "seconds_left": 0}
    report = {"follower": "", "compared": 5, "differing": 0, "finished_at_ms": 1_764_190_123_000}
    fresh = {"p50_seconds": 1.125, "p99_seconds": 2.5, "tables": {'a."b"': 1.5}}
    reading = metrics._Reading(position, window, [snapshot], [report], fresh, dead_letters=2, has_commit_log=True)
    text = metrics.text_of(metrics._samples(PIPELINE, reading))
    assert 'changefeed_lag_bytes{pipeline="shop"} 12345678901' in text
    assert 'changefeed_committed_at_seconds{pipeline="shop"} 1764190123.456' in text
    assert 'changefeed_lag_seconds{pipeline="shop"} 0.25' in text
    assert 'table="a.\\"b\\""' in text
    assert 'changefeed_freshness_p50_seconds{pipeline="shop"} 1.125' in text
    assert 'changefeed_recent_dead_letters{pipeline="shop"} 2' in text
    assert 'changefeed_commit_log_up{pipeline="shop"} 1' in text
    site_wide = {"changefeed_freshness_checked_at_seconds"}
    declared = {name: set(metric.labels) for name, metric in METRICS.items() if name not in site_wide}
    assert labels_by_metric(text) == declared
