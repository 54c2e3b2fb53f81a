"""The command line and settings of spark-submit, by deploy mode; connections with which no job can work are refused."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import requests
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferralTimeout

from changefeed.airflow import alerts, ingest_operator, tasks
from changefeed.airflow.alerts import RunAlerts
from changefeed.airflow.ingest_operator import IngestOperator
from changefeed.airflow.replicate_dag import ReplicateOperator
from changefeed.airflow.submit_hook import CleanSparkSubmitHook
from changefeed.errors import SettingsError
from changefeed.ingest import checkpoint_mover
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.manifest import Manifest, TopicPartitionReceipt
from changefeed.model.window import Window
from changefeed.pipeline import heartbeat
from changefeed.settings.file import parse_pipeline
from changefeed.spark.job_file import JOB_FILE

if TYPE_CHECKING:
    from changefeed.pipeline.connections import PipelineConnections

YAML = "name: shop\nsource: {connection: mysql_shop}\nkafka: {connection: kafka_shop}\ntables: {include: [shop.*]}\n"
MANAGER = {"yarn_resourcemanager_webapp_address": "http://manager:8088"}


@pytest.fixture
def operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IngestOperator:
    (tmp_path / "shop.yaml").write_text(YAML)
    monkeypatch.setenv("CHANGEFEED_PIPELINES", str(tmp_path))
    operator = IngestOperator(task_id="ingest", pipeline="shop")
    operator._job_file = tmp_path / "job" / JOB_FILE
    operator._result_file = tmp_path / "job" / "result.json"
    return operator


def hook_of(operator: IngestOperator, folder: Path, plan: object = None) -> CleanSparkSubmitHook:
    operator._plan = plan
    operator._conf_file = (folder / "conf").open("w")
    return operator._get_hook()


def set_master(monkeypatch: pytest.MonkeyPatch, master: str, **extra: str) -> None:
    connection = {"conn_type": "spark", "host": master, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))


def set_pipeline(folder: Path, spark: str) -> None:
    (folder / "shop.yaml").write_text(f"{YAML}spark: {spark}\n")


def option(arguments: list[str], name: str) -> str | None:
    return arguments[arguments.index(name) + 1] if name in arguments else None


def test_pipeline_decides_the_deploy_mode_and_else_the_connection(
    operator: IngestOperator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for of_connection in ({}, {"deploy-mode": "client"}, {"deploy-mode": "cluster"}):
        set_master(monkeypatch, "yarn", **of_connection, **MANAGER)
        for of_pipeline in ("{}", "{deploy_mode: client}", "{deploy_mode: cluster}"):
            set_pipeline(tmp_path, of_pipeline)
            found.append(option(hook_of(operator, tmp_path)._build_spark_submit_command("job.py"), "--deploy-mode"))
    assert found == [None, "client", "cluster", "client", "client", "cluster", "cluster", "client", "cluster"]


def test_driver_on_yarn_gets_its_file_from_spark_and_any_other_driver_by_its_path(
    operator: IngestOperator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_master(monkeypatch, "yarn", **MANAGER)
    arguments = hook_of(operator, tmp_path)._build_spark_submit_command("job.py")
    assert arguments[arguments.index("job.py") + 1] == str(operator._job_file)
    assert "--files" not in arguments
    set_pipeline(tmp_path, "{deploy_mode: cluster, conf: {spark.yarn.tags: ours}}")
    arguments = hook_of(operator, tmp_path, {"windows": [1]})._build_spark_submit_command("job.py")
    assert arguments[arguments.index("job.py") + 1] == JOB_FILE
    assert option(arguments, "--files") == str(operator._job_file)
    assert "--conf" not in arguments
    conf = dict(line.split("=", 1) for line in (tmp_path / "conf").read_text().splitlines())
    assert conf["spark.yarn.tags"] == f"ours,{operator._tag}"
    assert conf["spark.yarn.submit.waitAppCompletion"] == "true"
    assert conf["spark.yarn.maxAppAttempts"] == "1"
    assert conf["spark.io.encryption.enabled"] == "true"
    assert "SharedArchiveFile" not in conf["spark.driver.extraJavaOptions"], "a file of this machine"


def test_job_gets_the_number_of_its_attempt(operator: IngestOperator) -> None:
    found = []
    for attempt in (1, 2):
        operator = IngestOperator(task_id="ingest", pipeline="shop")
        operator.render_template_fields({"ti": SimpleNamespace(try_number=attempt), "params": {}})  # type: ignore[typeddict-item]
        found.append(operator.application_args)
    assert [option(arguments, "--attempt") for arguments in found] == ["1", "2"]


def test_applications_of_one_plan_have_the_same_tag(operator: IngestOperator) -> None:
    tags = []
    for plan in ({"windows": [1]}, {"windows": [1]}, {"windows": [2]}):
        operator._plan = plan
        tags.append(operator._tag)
    operator.pipeline_name = "other"
    assert tags[0] == tags[1]
    assert len({*tags, operator._tag}) == 3
    operator._plan, operator._run_id = {"windows": [2]}, "run"
    assert operator._tag not in tags, "a continuous run does not wait for the application of the run before it"
    assert all(len(tag) <= 100 and tag == tag.lower() for tag in tags), "YARN's limits"


@pytest.mark.parametrize(
    ("master", "why"),
    [
        ("spark://master:7077", "does not exist for Python on such a master"),
        ("local[2]", "does not exist for Python on such a master"),
        ("yarn", "yarn_resourcemanager_webapp_address"),
        ("k8s://https://cluster:6443", "`namespace` in the extra"),
    ],
)
def test_deploy_mode_cluster_that_cannot_work_is_refused_with_a_remedy(
    operator: IngestOperator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str, why: str
) -> None:
    set_master(monkeypatch, master, **{"deploy-mode": "cluster"})
    with pytest.raises(AirflowFailException, match=rf"'spark_default', found .*{why}|{why}.*'spark_default'"):
        hook_of(operator, tmp_path)
    set_pipeline(tmp_path, "{deploy_mode: client}")
    hook_of(operator, tmp_path)


def test_kubernetes_without_its_provider_is_refused_with_the_package_to_install(
    operator: IngestOperator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_master(monkeypatch, "k8s://https://cluster:6443")
    monkeypatch.delattr("airflow.providers.apache.spark.hooks.spark_submit.kube_client")  # as if it were not installed
    with pytest.raises(AirflowFailException, match=r"apache-airflow-providers-cncf-kubernetes, found none"):
        hook_of(operator, tmp_path)


def test_job_without_spark_stays_on_the_worker(
    operator: IngestOperator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_master(monkeypatch, "yarn", **{"deploy-mode": "cluster"})
    replicate = ReplicateOperator(task_id="to", pipeline="shop", follower="copy")
    replicate._job_file, replicate._conf_file = operator._job_file, (tmp_path / "conf").open("w")
    assert not replicate._get_hook().is_elsewhere


def on_yarn(operator: IngestOperator, folder: Path, monkeypatch: pytest.MonkeyPatch) -> CleanSparkSubmitHook:
    set_master(monkeypatch, "yarn", **{"deploy-mode": "cluster"}, **MANAGER)
    return hook_of(operator, folder)


def test_killed_task_ends_the_application_that_it_knows_before_it_asks_yarn(
    operator: IngestOperator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = on_yarn(operator, tmp_path, monkeypatch)
    killed: list[str] = []
    monkeypatch.setattr(hook, "_kill_yarn_application", killed.append)
    monkeypatch.setattr(hook, "_running_applications", lambda: ["application_1_2"])
    hook.on_kill()
    assert killed == ["application_1_2"]

    def refuse() -> list[str]:
        raise AirflowException("no answer")

    monkeypatch.setattr(hook, "_running_applications", refuse)
    hook._yarn_application_id = "application_1_1"
    with pytest.raises(AirflowException, match="no answer"):
        hook.on_kill()
    assert killed == ["application_1_2", "application_1_1"]


def test_application_of_another_user_with_a_copied_tag_is_not_waited_for(
    operator: IngestOperator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = on_yarn(operator, tmp_path, monkeypatch)

    def found(*applications: tuple[str, str, int, str]) -> list[str]:
        names = ("id", "user", "startedTime", "state")
        apps = {"app": [dict(zip(names, each, strict=True)) for each in applications]} if applications else None
        answer = SimpleNamespace(json=lambda: {"apps": apps}, raise_for_status=lambda: None)
        monkeypatch.setattr(requests, "get", lambda *_, **__: answer)
        return hook._running_applications()

    copy, retry = ("copy", "eve", 2, "RUNNING"), ("retry", "airflow", 3, "ACCEPTED")
    assert found() == []
    assert found(copy, ("own", "airflow", 1, "RUNNING")) == ["own"]
    assert found(copy, ("own", "airflow", 1, "FAILED")) == []
    assert found(copy, retry, ("own", "airflow", 1, "KILLED")) == ["retry"]


def test_task_that_waits_for_an_earlier_application_keeps_no_passwords(
    operator: IngestOperator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator._job_file.parent.mkdir()
    operator._job_file.touch()
    hook = on_yarn(operator, tmp_path, monkeypatch)
    seen: list[bool] = []
    monkeypatch.setattr(hook, "_running_applications", lambda: ["application_1_1"])
    monkeypatch.setattr(
        hook, "_start_yarn_application_status_tracking", lambda _: seen.append(operator._job_file.exists())
    )
    hook.submit("job.py")
    assert seen == [False]


@pytest.mark.parametrize(("status", "error"), [("2", AirflowFailException), ("255", AirflowException)])
def test_terminal_error_of_a_driver_on_yarn_is_not_retried(
    operator: IngestOperator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    status: str,
    error: type[AirflowException],
) -> None:
    set_master(monkeypatch, "yarn", **{"deploy-mode": "cluster"}, **MANAGER)
    monkeypatch.setenv("AIRFLOW_CONN_MYSQL_SHOP", "mysql://source")
    monkeypatch.setenv(
        "AIRFLOW_CONN_KAFKA_SHOP", json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": "b"}})
    )
    operator._job_file.parent.mkdir()
    operator._conf_file = (tmp_path / "conf").open("w")

    def end(*_: object) -> None:
        raise AirflowException(f"User application exited with status {status}")

    monkeypatch.setattr(CleanSparkSubmitHook, "submit", end)
    monkeypatch.setattr(operator, "_is_published", lambda: False)
    with pytest.raises(AirflowException) as raised:
        operator._run(cast(Any, {"ti": SimpleNamespace(try_number=1)}))
    assert type(raised.value) is error


def test_spark_connect_and_deploy_mode_cluster_exclude_each_other() -> None:
    with pytest.raises(SettingsError, match="exclude each other"):
        parse_pipeline(f"{YAML}spark: {{connect: 'sc://h', deploy_mode: cluster}}\n", "shop.yaml")


def test_deferrable_task_needs_a_driver_on_the_cluster() -> None:
    for spark in ("deferrable: true", "deferrable: true, deploy_mode: client", "deferrable: true, connect: 'sc://h'"):
        with pytest.raises(SettingsError, match="`deferrable` needs `deploy_mode: cluster`"):
            parse_pipeline(f"{YAML}spark: {{{spark}}}\n", "shop.yaml")


def test_properties_that_openlineage_adds_reach_spark_in_the_private_file(
    operator: IngestOperator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.yaml").write_text(YAML + "spark: {conf: {spark.app.note: ours}}\n")
    set_master(monkeypatch, "local[1]")
    monkeypatch.setenv("AIRFLOW_CONN_MYSQL_SHOP", "mysql://source")
    monkeypatch.setenv(
        "AIRFLOW_CONN_KAFKA_SHOP", json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": "b"}})
    )
    operator._job_file.parent.mkdir()
    operator._conf_file = (tmp_path / "conf").open("w")
    seen = tmp_path / "seen"
    submit = tmp_path / "bin" / "spark-submit"
    submit.parent.mkdir()
    submit.write_text(f'#!/bin/sh\necho "$@" > {seen}\ncat {tmp_path}/conf >> {seen}\n')
    submit.chmod(0o700)
    monkeypatch.setenv("PATH", f"{submit.parent}:{os.environ['PATH']}")
    operator._openlineage_inject_parent_job_info = True
    instance: Any = SimpleNamespace(
        dag_id="changefeed_ingest__shop", task_id="ingest", try_number=1, map_index=-1, run_id="r", hostname="",
        dag_run=SimpleNamespace(run_after=datetime(2026, 1, 1, tzinfo=UTC), logical_date=None, conf={}, clear_number=0),
        get_template_context=dict,
    )  # fmt: skip
    operator._run(Context(ti=instance))
    command, *properties = seen.read_text().splitlines()
    assert "openlineage" not in command
    added = {line.partition("=")[0]: line for line in properties if "openlineage" in line}
    assert "changefeed_ingest__shop.ingest" in added["spark.openlineage.parentJobName"]
    assert {"spark.openlineage.parentRunId", "spark.openlineage.rootParentRunId"} <= added.keys()
    assert any("spark.app.note" in line for line in properties), "the pipeline's own settings remain"


def test_application_of_a_task_that_was_deferred_for_too_long_is_ended(
    operator: IngestOperator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_master(monkeypatch, "yarn", **MANAGER)
    set_pipeline(tmp_path, "{deploy_mode: cluster, deferrable: true}")
    killed: list[str] = []
    monkeypatch.setattr(CleanSparkSubmitHook, "_running_applications", lambda _: ["application_1_1"])
    monkeypatch.setattr(CleanSparkSubmitHook, "_kill_yarn_application", lambda _, name: killed.append(name))
    monkeypatch.setattr(IngestOperator, "_read_plan", lambda *_: {})
    with pytest.raises(TaskDeferralTimeout):
        operator.resume_execution("__fail__", {"error": "Trigger timeout"}, cast(Context, {}))
    assert killed == ["application_1_1"]


def committed(dead_letters: int) -> Manifest:
    """A window with so many dead letters."""
    place = BinlogCoordinates("bin.000001", 4)
    receipt = TopicPartitionReceipt("shop.orders", 0, 0, 0, 0, dead_letters, None, None)
    return Manifest(Window("shop", 1, "5cd0", place, place, "", "", 1), 0, 0, 0, {}, 0, (receipt,))


def test_dead_letters_alert_at_the_first_and_then_with_their_sum_after_a_while_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A continuous run commits every ten seconds."""
    sent: list[tuple[str, str]] = []
    pipeline = parse_pipeline(YAML, "shop.yaml")
    monkeypatch.setattr(alerts, "notify", lambda _, kind, text: sent.append((kind, text.split(": ")[1])))
    monkeypatch.setattr(tasks, "report_windows", lambda *_: None)
    monkeypatch.setattr(heartbeat, "write_heartbeat", lambda *_: None)
    run, connections = RunAlerts(), cast("PipelineConnections", None)
    for seconds, letters in [(0, 0), (10, 1), (20, 2), (600, 3), (610, 4), (620, 5), (1210, 0), (1220, 7)]:
        monkeypatch.setattr(time, "monotonic", lambda now=seconds: now)
        tasks.report_committed(pipeline, connections, [committed(letters)], run)
    run.report_rest(pipeline)
    run.report_rest(pipeline)
    words = "records were sent to the dead letter topic"
    assert sent == [("dead letters", f"{count} {words}") for count in (1, 9, 5, 7)]
    tasks.report_committed(pipeline, connections, [committed(8)])
    assert sent[-1] == ("dead letters", f"8 {words}")


@pytest.mark.parametrize("fails", [False, True])
def test_rest_of_the_dead_letters_is_reported_when_a_continuous_run_ends(
    operator: IngestOperator, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    sent: list[str] = []
    manifests = iter([[committed(1)], [committed(2)], [committed(3)]])

    class Mover:
        """Commits a window when the job begins, one while it runs, and one when it has ended."""

        committed: tuple[Manifest, ...] = ()

        def __init__(self, _: object, __: object, report: Callable[[Sequence[Manifest]], None]) -> None:
            self.report = report

        def __enter__(self) -> Mover:
            self.report(next(manifests))
            self.report(next(manifests))
            return self

        def __exit__(self, *_: object) -> None:
            self.report(next(manifests))

    def execute(*_: object) -> None:
        if fails:
            raise AirflowException("the job failed")

    monkeypatch.setattr(checkpoint_mover, "CheckpointMover", Mover)
    monkeypatch.setattr(ingest_operator.JobOperator, "execute", execute)
    for name in ("task_connections", "checkpoint_store_of"):
        monkeypatch.setattr(ingest_operator, name, lambda _: None)
    monkeypatch.setattr(ingest_operator, "read_unsent", lambda _: [])
    monkeypatch.setattr(ingest_operator, "emit_unsent", lambda *_: [])
    monkeypatch.setattr(alerts, "notify", lambda _, __, text: sent.append(text.split(": ")[1].split()[0]))
    monkeypatch.setattr(tasks, "report_windows", lambda *_: None)
    monkeypatch.setattr(heartbeat, "write_heartbeat", lambda *_: None)
    with suppress(AirflowException):
        operator._execute_continuously(cast("Context", {"run_id": "r"}))
    assert sent == ["1", "5"]
