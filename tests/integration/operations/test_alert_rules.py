"""The shipped alert rules as Prometheus evaluates them: which alerts fire at which metrics."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from monitoring_example import FOLDER, rules

from devstack.home import Home
from devstack.promtool import fetch_promtool

HOURS = 6
"""How long the metrics are scraped, once a minute. The time begins at 0."""

HEALTHY = {
    'changefeed_up{pipeline="shop"}': "1",
    'changefeed_commit_log_up{pipeline="shop"}': "1",
    'changefeed_paused{pipeline="shop"}': "0",
    'changefeed_lag_bytes{pipeline="shop"}': "0",
    'changefeed_lag_seconds{pipeline="shop"}': "0",
    'changefeed_freshness_p99_seconds{pipeline="shop"}': "60",
    'changefeed_retention_headroom_seconds{pipeline="shop"}': "86400",
    'changefeed_committed_at_seconds{pipeline="shop"}': "0+60",
    'changefeed_parked_tables{pipeline="shop"}': "0",
    'changefeed_recent_dead_letters{pipeline="shop"}': "0",
    'changefeed_differing_rows{pipeline="shop",server="source"}': "0",
    "changefeed_freshness_checked_at_seconds{}": "0+60",
}
"""Series of a healthy pipeline: a value, or the first value and what each minute adds to it."""

CASES: dict[str, tuple[Mapping[str, str | None], set[str]]] = {
    "healthy": ({}, set()),
    "no answer of Airflow": (dict.fromkeys(HEALTHY), {"ChangefeedNoMetrics", "ChangefeedNotChecked"}),
    "unreadable": ({"up": "0"}, {"ChangefeedDown"}),
    "without a checkpoint": (
        dict.fromkeys(("lag_bytes", "lag_seconds", "retention_headroom_seconds", "committed_at_seconds")),
        {"ChangefeedNoCheckpoint"},
    ),
    "unreadable and without a checkpoint": ({"up": "0", "committed_at_seconds": None}, {"ChangefeedDown"}),
    "soon purged": ({"retention_headroom_seconds": "36000"}, {"ChangefeedHeadroomLow"}),
    "slow": ({"lag_seconds": "7200"}, {"ChangefeedLagging"}),
    "stopped": (
        {"lag_seconds": "7200", "committed_at_seconds": "60"},
        {"ChangefeedLagging", "ChangefeedNotCommitting"},
    ),
    "late in Kafka": ({"freshness_p99_seconds": "7300"}, {"ChangefeedNotFresh"}),
    "idle for hours": ({"committed_at_seconds": "60", "freshness_p99_seconds": None}, set()),
    "Kafka is unreadable": (
        {"commit_log_up": "0", "freshness_p99_seconds": None, "recent_dead_letters": None, "differing_rows": None},
        {"ChangefeedCommitLogDown"},
    ),
    "paused with changes": ({"paused": "1", "lag_bytes": "9", "lag_seconds": "9"}, {"ChangefeedPaused"}),
    "paused without changes": ({"paused": "1"}, set()),
    "paused beside a busy database": ({"paused": "1", "lag_bytes": "9"}, set()),
    "never checked": ({"freshness_checked_at_seconds": None}, {"ChangefeedNotChecked"}),
    "no longer checked": ({"freshness_checked_at_seconds": "60"}, {"ChangefeedNotChecked"}),
    "a parked table": ({"parked_tables": "1"}, {"ChangefeedTableParked"}),
    "dead letters": ({"recent_dead_letters": "2"}, {"ChangefeedDeadLetters"}),
    "differing rows": ({"differing_rows": "3"}, {"ChangefeedRowsDiffer"}),
}
"""Metrics that differ from the healthy ones (None: there is no such series), and the alerts that fire then."""


def promtool(folder: Path, *arguments: str) -> str:
    """The output of promtool in ``folder``, which must succeed."""
    command = [*fetch_promtool(Home.default()), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_accepts_configuration_and_rules(tmp_path: Path) -> None:
    for name in ("prometheus.yaml", "alerts.yaml"):
        shutil.copy(FOLDER / name, tmp_path)
    (tmp_path / "scrape-token").write_text("token")
    assert f"SUCCESS: {len(rules())} rules found" in promtool(tmp_path, "check", "config", "prometheus.yaml")


def test_each_rule_fires_in_some_case() -> None:
    assert {rule.where for rule in rules()} == {alert for _, alerts in CASES.values() for alert in alerts}


@pytest.mark.parametrize("name", CASES)
def test_alerts_fire_at_the_metrics_that_they_are_for(name: str, tmp_path: Path) -> None:
    different, alerts = CASES[name]
    severities = {rule["alert"]: rule["labels"]["severity"] for rule in _rule_texts()}
    samples = [
        {"labels": f'{{alertname="{alert}",severity="{severities[alert]}"}}', "value": 1} for alert in sorted(alerts)
    ]
    expression = 'sum by (alertname, severity) (ALERTS{alertstate="firing"})'
    test = {
        "interval": "1m",
        "input_series": [
            {"series": series, "values": _values(value)}
            for series, value in _changed(different).items()
            if value is not None
        ],
        "promql_expr_test": [{"expr": expression, "eval_time": f"{HOURS}h", "exp_samples": samples}],
    }
    shutil.copy(FOLDER / "alerts.yaml", tmp_path)
    (tmp_path / "test.yaml").write_text(yaml.safe_dump({"rule_files": ["alerts.yaml"], "tests": [test]}))
    promtool(tmp_path, "test", "rules", "test.yaml")


def _rule_texts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def _changed(different: Mapping[str, str | None]) -> dict[str, str | None]:
    def value(series: str) -> str | None:
        short = series.partition("{")[0].removeprefix("changefeed_")
        return different.get(series, different.get(short, HEALTHY[series]))

    return {series: value(series) for series in HEALTHY}


def _values(value: str) -> str:
    first, _, step = value.partition("+")
    return f"{first}+{step or 0}x{60 * HOURS}"
