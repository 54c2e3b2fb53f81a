"""Spark's conf for a job: defaults, then the pipeline's settings, then settings that cannot be changed."""

from __future__ import annotations

import tempfile

import pytest

from changefeed.spark.conf import (
    ALWAYS,
    JOB_CONF,
    ON_OTHER_MACHINES,
    ON_THIS_MACHINE,
    environment_at,
    job_conf,
    unix_sockets,
)

LOCAL = ["local", "local[2]", "local[*]", "local[2,3]"]
REMOTE = ["local-cluster[2,1,768]", "spark://host:7077", "yarn", "k8s://https://host"]


def test_a_pipelines_settings_go_before_ours() -> None:
    assert job_conf({}, "local[*]") == {**JOB_CONF, **ALWAYS, **ON_THIS_MACHINE, **unix_sockets()}
    assert job_conf({}, "yarn") == {**JOB_CONF, **ALWAYS, **ON_OTHER_MACHINES}
    assert job_conf({"spark.log.level": "INFO"}, "local[*]")["spark.log.level"] == "INFO"


def test_speculation_is_off_and_an_ignored_setting_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert job_conf({"spark.speculation": "true"}, "local[*]")["spark.speculation"] == "false"
    assert "spark.speculation=true, which is ignored" in caplog.text


@pytest.mark.parametrize("master", LOCAL)
def test_local_master_listens_on_this_machine_and_answers_nobody_else(master: str) -> None:
    asked = {
        "spark.authenticate": "false",
        "spark.driver.bindAddress": "0.0.0.0",
        "spark.driver.host": "example.com",
    }
    conf = job_conf(asked, master)
    assert conf["spark.authenticate"] == "true"
    assert conf["spark.driver.bindAddress"] == conf["spark.driver.host"] == "127.0.0.1"
    assert "spark.authenticate.secret" not in conf, "the driver makes up its own"
    assert environment_at(master) == {"SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.mark.parametrize("master", REMOTE)
def test_other_master_encrypts_network_and_disk(master: str) -> None:
    asked = dict.fromkeys([*ALWAYS, *ON_OTHER_MACHINES], "odd") | {"spark.driver.host": "driver.example.com"}
    conf = job_conf(asked, master)
    assert {name: conf[name] for name in asked} == ALWAYS | ON_OTHER_MACHINES | {
        "spark.driver.host": "driver.example.com"
    }


@pytest.mark.parametrize("master", ["spark://127.0.0.1:7077", "spark://no-such-host.invalid:7077,127.0.0.1:7077"])
def test_driver_listens_at_the_address_on_the_route_to_its_master(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    assert environment_at(master) == dict.fromkeys(["SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME"], "127.0.0.1")
    for name in ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME"):
        with monkeypatch.context() as chosen:
            chosen.setenv(name, "10.0.0.1")
            assert environment_at(master) == {}


@pytest.mark.parametrize(
    "master",
    ["yarn", "spark://no-such-host.invalid:7077", "spark://localhost:7077", "k8s://https://127.0.0.1:6443"],
)
def test_master_without_an_address_or_behind_a_tunnel_leaves_the_drivers_address_to_spark(master: str) -> None:
    assert environment_at(master) == {}


def test_cluster_of_one_machine_gets_a_new_secret_each_time() -> None:
    name = "spark.authenticate.secret"
    first, second = (job_conf({}, "local-cluster[1,1,512]")[name] for _ in range(2))
    assert first != second
    assert len(first) == 64


def test_sockets_are_in_the_folder_for_temporary_files_if_its_path_is_short_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for length, expected in ((60, True), (61, False)):
        folder = "/" + "x" * (length - 1)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        assert (job_conf({}, "local[2]").get("spark.python.unix.domain.socket.dir") == folder) is expected
    assert "spark.python.unix.domain.socket.enabled" not in job_conf({}, "local[2]")
