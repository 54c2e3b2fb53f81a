"""The variables of an Airflow worker that the Spark job of a pipeline gets, and those that no job gets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from security.hostile_mysql import Certificate

from changefeed.airflow.connections import job_environment, job_variables
from changefeed.errors import SettingsError
from changefeed.model.connection import MysqlConnection
from changefeed.settings.file import read_pipeline
from changefeed.settings.pipeline import Pipeline

OWN = {
    "AIRFLOW_CONN_MYSQL_SHOP": "mysql://reader:own@db.example",
    "AIRFLOW_CONN_KAFKA_SHOP": "kafka://kafka.example:9092",
}
ALWAYS = {
    "KRB5_CONFIG": "/etc/krb5.conf",
    "KRB5CCNAME": "KCM:",
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    "HADOOP_CONF_DIR": "/etc/hadoop/conf",
    "YARN_CONF_DIR": "/etc/hadoop/conf",
    "HTTPS_PROXY": "http://proxy.example:3128",
    "no_proxy": "localhost",
    "AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token",
}
NAMED = {"LDAP_SERVER": "ldap.example", "COMPANY_REALM": "EXAMPLE"}
LOG_KEY = "commit_log: {key: {environment: AWS_LOG_KEY}}\n"
NEVER = {
    "AIRFLOW_CONN_OTHERS": "mysql://root:theirs@db.example",
    "AIRFLOW__CORE__FERNET_KEY": "key",
    "AIRFLOW__API_AUTH__JWT_SECRET": "signs",
    "_AIRFLOW_WWW_USER_PASSWORD": "admin",
    "VAULT_TOKEN": "opens",
    "CHANGEFEED_OTHERS_LOG_KEY": "signs the log of another pipeline",
    "CHANGEFEED_CONNECTION_OTHERS": "mysql://root:theirs@db.example",
}


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A pipeline whose worker has variables of all kinds, and a site's file that the test may write."""
    for name, value in {**OWN, **ALWAYS, **NAMED, **NEVER}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("CHANGEFEED_SITE", str(tmp_path / "site.yaml"))
    (tmp_path / "site.yaml").write_text("environment: []\n")
    (tmp_path / "own.yaml").write_text("name: own\nsource: {connection: mysql_shop}\nkafka: {connection: kafka_shop}\n")
    return read_pipeline(tmp_path / "own.yaml")


def test_job_gets_variables_of_clusters_and_proxies_and_no_others(pipeline: Pipeline) -> None:
    environment = job_environment(pipeline)
    assert ALWAYS.items() <= environment.items()
    assert environment["CHANGEFEED_SITE"].endswith("site.yaml")
    assert not {*OWN, *NAMED, *NEVER} & set(environment)
    assert job_variables(pipeline) == OWN


def test_job_gets_variables_that_the_site_names_but_never_airflows(pipeline: Pipeline, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text("environment: [LDAP_*, COMPANY_REALM, A*, _A*]\n")
    environment = job_environment(pipeline)
    assert {**ALWAYS, **NAMED}.items() <= environment.items()
    assert not {*OWN, *NEVER} & set(environment)
    variables = job_variables(pipeline)
    assert {**OWN, **NAMED}.items() <= variables.items()
    assert not set(NEVER) & set(variables)


@pytest.mark.parametrize("name", ["AIRFLOW__CORE__FERNET_KEY", "AIRFLOW_CONN_*", "_AIRFLOW_*", "*", "a=b", "A*B"])
def test_site_that_names_all_variables_or_airflows_is_refused(pipeline: Pipeline, tmp_path: Path, name: str) -> None:
    (tmp_path / "site.yaml").write_text(f"environment: ['{name}']\n")
    with pytest.raises(SettingsError, match=r"site\.yaml, line 1: 'environment"):
        job_environment(pipeline)


@pytest.mark.usefixtures("pipeline")
def test_secret_of_the_yaml_is_in_no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Although jobs get the variables that begin like its name."""
    monkeypatch.setenv("AWS_LOG_KEY", "k" * 32)
    (tmp_path / "own.yaml").write_text((tmp_path / "own.yaml").read_text() + LOG_KEY)
    signed = read_pipeline(tmp_path / "own.yaml")
    assert "AWS_LOG_KEY" not in job_environment(signed)
    assert job_variables(signed)["AWS_LOG_KEY"] == "k" * 32


def test_pem_text_and_hosts_of_an_airflow_connection_arrive_in_the_job(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pem = Certificate.create(tmp_path).file.read_text()
    fields = {"conn_type": "mysql", "login": "me@home", "password": "a+b/c", "host": "db1,db2", "port": 3310}
    monkeypatch.setenv("AIRFLOW_CONN_MYSQL_SHOP", json.dumps({**fields, "extra": {"ssl_ca": pem, "ssl_key": pem}}))
    hosts = MysqlConnection.all_from_uri(job_variables(pipeline)["AIRFLOW_CONN_MYSQL_SHOP"])
    assert [(each.host, each.port, each.user, each.password) for each in hosts] == [
        ("db1", 3310, "me@home", "a+b/c"),
        ("db2", 3310, "me@home", "a+b/c"),
    ]
    assert [each.options for each in hosts] == [{"ssl_ca": pem, "ssl_key": pem}] * 2
    assert "BEGIN" not in repr(hosts)
