"""Spark connections with which a job cannot work are refused before spark-submit starts."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowFailException

from changefeed.airflow.ingest_operator import IngestOperator

YAML = "name: shop\nsource: {connection: mysql_shop}\nkafka: {connection: kafka_shop}\ntables: {include: [shop.*]}\n"


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IngestOperator:
    (tmp_path / "shop.yaml").write_text(YAML)
    monkeypatch.setenv("CHANGEFEED_PIPELINES", str(tmp_path))
    monkeypatch.setenv("AIRFLOW_CONN_MYSQL_SHOP", "mysql://u:p@h:1")
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_SHOP", "kafka://h:1")
    operator = IngestOperator(task_id="ingest", pipeline="shop")
    operator._conf_file = (tmp_path / "conf").open("w")
    return operator


def set_master(monkeypatch: pytest.MonkeyPatch, master: str, **extra: str) -> None:
    connection = {"conn_type": "spark", "host": master, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))


@pytest.mark.parametrize("master", ["spark://master:7077", "yarn"])
def test_deploy_mode_cluster_is_refused_with_a_remedy(
    operator: IngestOperator, monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    set_master(monkeypatch, master, **{"deploy-mode": "cluster"})
    with pytest.raises(AirflowFailException, match=r"deploy mode 'client' .* 'spark_default', found 'cluster'"):
        operator._get_hook()
    set_master(monkeypatch, master, **{"deploy-mode": "client"})
    arguments = operator._get_hook()._build_spark_submit_command("job.py")
    assert arguments[arguments.index("--deploy-mode") + 1] == "client"


def test_kubernetes_without_its_provider_is_refused_with_the_package_to_install(
    operator: IngestOperator, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_master(monkeypatch, "k8s://https://cluster:6443")
    with pytest.raises(AirflowFailException, match=r"apache-airflow-providers-cncf-kubernetes, found none"):
        operator._get_hook()


def test_properties_that_openlineage_adds_reach_spark_in_the_private_file(
    operator: IngestOperator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.yaml").write_text(YAML + "spark: {conf: {spark.app.note: ours}}\n")
    set_master(monkeypatch, "local[1]")
    seen = tmp_path / "seen"
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(f'#!/bin/sh\necho "$@" > {seen}\ncat {tmp_path}/conf >> {seen}\n')
    submit.chmod(0o700)
    monkeypatch.setenv("PATH", f"{submit.parent}:{os.environ['PATH']}")
    operator._openlineage_inject_parent_job_info = True
    instance = SimpleNamespace(
        dag_id="changefeed_ingest__shop", task_id="ingest", try_number=1, map_index=-1, run_id="r", hostname="",
        dag_run=SimpleNamespace(run_after=datetime(2026, 1, 1, tzinfo=UTC), logical_date=None, conf={}, clear_number=0),
        get_template_context=dict,
    )  # fmt: skip
    operator._run({"ti": instance})
    command, *properties = seen.read_text().splitlines()
    assert "openlineage" not in command
    added = {line.partition("=")[0]: line for line in properties if "openlineage" in line}
    assert "changefeed_ingest__shop.ingest" in added["spark.openlineage.parentJobName"]
    assert {"spark.openlineage.parentRunId", "spark.openlineage.rootParentRunId"} <= added.keys()
    assert any("spark.app.note" in line for line in properties), "the pipeline's own settings remain"
