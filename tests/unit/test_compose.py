"""docker-compose.yml, as far as it can be held against the rest of the project without a Docker daemon."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import pytest
import yaml
from cryptography.fernet import Fernet
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from changefeed.model.connection import MysqlConnection, kafka_parts, variable_of
from changefeed.settings.file import load_pipelines
from changefeed.settings.site import load_site
from devstack.kafka import KAFKA

PROJECT = Path(__file__).parents[2]
TEXT = (PROJECT / "docker-compose.yml").read_text()
EXAMPLE = (PROJECT / ".env.example").read_text()
_VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(:\?[^}]+)?\}")
_PINNED = re.compile(r"[a-z0-9-]+(/[a-z0-9-]+)?:v?\d+(\.\d+)*[\w.-]*(@sha256:[0-9a-f]{64})?")
_DURATION = Annotated[str, Field(pattern=r"^\d+(ms|s|m)$")]


def values(text: str) -> dict[str, str]:
    """What a file of variables sets."""
    return dict(line.split("=", 1) for line in text.splitlines() if line and line[0] != "#")


def written(folder: Path) -> Path:
    """The .env that docker/env.sh writes, in a folder of its own."""
    (folder / "docker").mkdir()
    shutil.copy(PROJECT / "docker" / "env.sh", folder / "docker")
    (folder / ".env.example").write_text(EXAMPLE)
    subprocess.run([str(folder / "docker" / "env.sh")], check=True, capture_output=True)
    return folder / ".env"


with TemporaryDirectory() as made:
    ENV = values(written(Path(made)).read_text())


class Part(BaseModel):
    """A part of the Compose specification as far as we use it: https://github.com/compose-spec/compose-spec."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Healthcheck(Part):
    test: Annotated[list[str], Field(min_length=2)]
    interval: _DURATION
    timeout: _DURATION
    retries: int
    start_period: _DURATION = "0s"


class Build(Part):
    context: str
    dockerfile: str


class Condition(Part):
    condition: Literal["service_started", "service_healthy", "service_completed_successfully"]


class MountedConfig(Part):
    source: str
    target: str


class Config(Part):
    content: str


class Service(Part):
    image: str
    build: Build | None = None
    command: list[str] = []
    profiles: list[str] = []
    environment: dict[str, str] = {}
    ports: list[Annotated[str, Field(pattern=r"^127\.0\.0\.1:\d+:\d+$")]] = []
    volumes: list[str] = []
    configs: list[MountedConfig] = []
    depends_on: dict[str, Condition] = {}
    healthcheck: Healthcheck | None = None
    restart: Literal["no", "unless-stopped"]


class Compose(Part):
    model_config = ConfigDict(extra="ignore", strict=True)
    name: str
    services: dict[str, Service]
    volumes: dict[str, None]
    configs: dict[str, Config]


def loaded() -> dict[str, Any]:
    """The file with the variables of an .env put in, as Compose would."""
    text = _VARIABLE.sub(lambda found: ENV[found[1]], TEXT).replace("$$", "$")
    compose: dict[str, Any] = yaml.safe_load(text)
    return compose


COMPOSE = TypeAdapter(Compose).validate_python(loaded())
SERVICES = COMPOSE.services
OURS = {name: service for name, service in SERVICES.items() if service.build}
AIRFLOW = {name: service for name, service in OURS.items() if name.startswith("airflow-")}


def pin(package: str) -> str:
    """The version of a package in requirements.txt."""
    found = re.search(rf"^{re.escape(package)}==(\S+)", (PROJECT / "requirements.txt").read_text(), re.MULTILINE)
    assert found, package
    return found[1]


def test_the_file_has_only_what_the_specification_knows() -> None:
    others = set(loaded()) - {"name", "services", "volumes", "configs"}
    assert all(name.startswith("x-") for name in others)


def test_the_stack_has_all_of_its_servers() -> None:
    assert set(SERVICES) == {
        "mysql",
        "mysql-copy",
        "kafka",
        "kafka-ui",
        "postgres",
        "pipelines-folder",
        "airflow-init",
        "airflow-apiserver",
        "airflow-scheduler",
        "airflow-dag-processor",
        "airflow-triggerer",
        "spark-master",
        "spark-worker",
    }


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_each_image_is_pinned(name: str) -> None:
    assert _PINNED.fullmatch(SERVICES[name].image), SERVICES[name].image


def test_versions_are_those_of_the_requirements_and_the_devstack() -> None:
    assert SERVICES["kafka"].image == f"apache/kafka:{KAFKA.version}"
    assert SERVICES["mysql"].image == "mysql:9.7"
    assert {service.image for service in OURS.values()} == {
        f"changefeed-airflow-spark:{pin('apache-airflow')}-{pin('pyspark')}"
    }
    dockerfile = (PROJECT / "docker" / "Dockerfile").read_text()
    assert f"FROM apache/airflow:{pin('apache-airflow')}-python3.11\n" in dockerfile


def test_image_installs_nothing_without_a_hash() -> None:
    """Neither packages, nor the build backend, which pip would otherwise download in its newest version."""
    installs = re.findall(r"^RUN (pip install .*?)(?: \\)?$", (PROJECT / "docker" / "Dockerfile").read_text(), re.M)
    assert len(installs) == 2
    assert "--require-hashes --requirement /tmp/requirements.lock" in installs[0]
    assert {"--no-deps", "--no-build-isolation", "/tmp/changefeed"} <= set(installs[1].split())
    backend = tomllib.loads((PROJECT / "pyproject.toml").read_text())["build-system"]["build-backend"].partition(".")[0]
    assert re.search(rf"^{backend}==\S+ \\\n    --hash=", (PROJECT / "requirements.lock").read_text(), re.MULTILINE)
    assert pin(backend)


def test_airflow_and_spark_are_of_one_image() -> None:
    assert set(OURS) == {name for name in SERVICES if name.startswith(("airflow-", "spark-"))}
    assert len({service.model_dump_json(include={"image", "build", "volumes"}) for service in OURS.values()}) == 1


def test_airflow_may_write_pipelines_and_nothing_else_of_the_project() -> None:
    scheduler = SERVICES["airflow-scheduler"]
    folder = "/opt/airflow/include/pipelines"
    writable = {mount for mount in scheduler.volumes if mount.startswith("./") and not mount.endswith(":ro")}
    assert writable == {f"./include/pipelines:{folder}"}
    assert scheduler.environment["CHANGEFEED_PIPELINES"] == folder
    (granted,) = SERVICES["pipelines-folder"].volumes
    assert granted == "./include/pipelines:/pipelines"
    assert SERVICES["airflow-init"].depends_on["pipelines-folder"].condition == "service_completed_successfully"


def test_command_of_the_pipelines_folder_lets_the_group_write(tmp_path: Path) -> None:
    """Run on a folder of this machine, with this user's group in place of 0."""
    folder = tmp_path / "pipelines"
    folder.mkdir(mode=0o755)
    (folder / "shop.yaml").touch(mode=0o644)
    shell, option, script = SERVICES["pipelines-folder"].command
    here = script.replace("/pipelines", str(folder)).replace("chgrp -R 0", f"chgrp -R {os.getgid()}")
    subprocess.run([shell, option, here], check=True)
    assert folder.stat().st_mode & 0o777 == 0o775
    assert (folder / "shop.yaml").stat().st_mode & 0o777 == 0o664


def test_site_file_allows_connections_of_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    (mount,) = [mount for mount in SERVICES["airflow-scheduler"].volumes if mount.endswith("/site.yaml:ro")]
    source, target, _ = mount.split(":")
    assert all(service.environment["CHANGEFEED_SITE"] == target for service in OURS.values())
    monkeypatch.setenv("CHANGEFEED_SITE", str(PROJECT / source))
    site = load_site()
    named = {name for pair in site.connections for name in (pair.source, pair.kafka)}
    named |= {follower.connection for follower in site.followers}
    assert {variable_of(name) for name in named} <= SERVICES["airflow-scheduler"].environment.keys()


def test_each_file_that_is_mounted_or_built_from_is_there() -> None:
    sources = {mount.partition(":")[0] for service in SERVICES.values() for mount in service.volumes}
    folders = {source for source in sources if source.startswith((".", "/"))}
    assert folders >= {"./dags", "./jobs", "./plugins", "./include"}
    kept = subprocess.run(["git", "ls-files"], cwd=PROJECT, capture_output=True, text=True, check=False).stdout
    for source in folders:
        assert (PROJECT / source).exists(), source
        assert not kept or any(f"{line}/".startswith(f"{source[2:]}/") for line in kept.splitlines()), source
    assert sources - folders == set(COMPOSE.volumes), "volumes that are named are declared, and used"
    dockerfile = (PROJECT / "docker" / "Dockerfile").read_text()
    for copied in re.findall(r"^COPY (.*) \S+$", dockerfile, re.MULTILINE):
        for source in copied.split():
            assert (PROJECT / source).exists()
            assert f"!{source}\n" in (PROJECT / ".dockerignore").read_text()
    assert all(service.build and (PROJECT / service.build.dockerfile).exists() for service in OURS.values())


def test_scripts_that_are_mounted_can_be_run_and_are_sound() -> None:
    for script in (PROJECT / "docker").rglob("*.sh"):
        assert script.stat().st_mode & 0o111
        subprocess.run(["bash", "-n", str(script)], check=True)


@pytest.mark.parametrize("name", sorted(SERVICES.keys() - {"airflow-init", "pipelines-folder"}))
def test_each_server_says_whether_it_is_healthy(name: str) -> None:
    assert SERVICES[name].healthcheck is not None


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_waits_for_services_that_are_there_and_can_say_so(name: str) -> None:
    for other, expected in SERVICES[name].depends_on.items():
        assert other in SERVICES
        if expected.condition == "service_healthy":
            assert SERVICES[other].healthcheck is not None


def test_no_two_services_want_one_port() -> None:
    ports = [port.split(":")[1] for service in SERVICES.values() for port in service.ports]
    assert len(ports) == len(set(ports))


def test_spark_takes_jobs_and_answers_tasks_of_those_with_its_secret_only() -> None:
    """Drivers, master and workers read one spark-defaults.conf; a master other than local demands these settings."""
    defaults = dict(line.split(" ") for line in COMPOSE.configs["spark-defaults"].content.splitlines())
    assert defaults == {
        "spark.authenticate": "true",
        "spark.authenticate.secret": ENV["SPARK_SECRET"],
        "spark.network.crypto.enabled": "true",
    }
    for service in OURS.values():
        (mounted,) = service.configs
        assert mounted.source == "spark-defaults"
        assert mounted.target == f"{service.environment['SPARK_CONF_DIR']}/spark-defaults.conf"


def test_secrets_are_in_the_env_file_only() -> None:
    assert {found[1] for found in _VARIABLE.finditer(TEXT)} == set(ENV), "what is asked for is in .env.example"
    assert all(found[2] for found in _VARIABLE.finditer(TEXT)), "and Compose stops where it is missing"
    literal = re.findall(r"^ *\w*(?:PASSWORD|SECRET|SECRET_KEY|FERNET_KEY): (?!\$\{)(.+)$", TEXT, re.MULTILINE)
    assert not literal
    assert ".env" in (PROJECT / ".gitignore").read_text().splitlines()
    for service in SERVICES.values():
        assert not any(secret in argument for secret in ENV.values() for argument in service.command)


def test_no_key_of_the_example_works_and_no_two_installations_have_one_in_common(tmp_path: Path) -> None:
    assert set(values(EXAMPLE).values()) == {""}, "and an empty one stops Compose"
    env = written(tmp_path)
    assert env.stat().st_mode & 0o777 == 0o600
    others = values(env.read_text())
    assert set(others) == set(ENV) == set(values(EXAMPLE))
    assert len({*others.values(), *ENV.values()}) == 2 * len(ENV)
    for made in (ENV, others):
        Fernet(made["AIRFLOW_FERNET_KEY"])
        assert len(made["AIRFLOW_JWT_SECRET"]) >= 64
        assert all(re.fullmatch(r"[\w=-]{20,}", value) for value in made.values())


def test_an_env_file_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    env = written(tmp_path)
    before = env.read_text()
    again = subprocess.run([str(tmp_path / "docker" / "env.sh")], capture_output=True, text=True, check=False)
    assert (again.returncode, "expected no .env, found one" in again.stderr) == (1, True)
    assert env.read_text() == before


def test_airflow_asks_everybody_for_a_password(tmp_path: Path) -> None:
    api_server = SERVICES["airflow-apiserver"]
    assert "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS" not in TEXT
    users = {service.environment["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"] for service in AIRFLOW.values()}
    assert users == {"admin:admin"}
    assert api_server.command == ["bash", "/opt/airflow/api_server.sh"]
    file = tmp_path / "passwords.json"
    (tmp_path / "airflow").write_text("#!/bin/sh\n")
    (tmp_path / "airflow").chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin",
        "AIRFLOW_ADMIN_PASSWORD": api_server.environment["AIRFLOW_ADMIN_PASSWORD"],
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(file),
    }
    subprocess.run(["bash", str(PROJECT / "docker" / "airflow" / "api_server.sh")], env=environment, check=True)
    assert json.loads(file.read_text()) == {"admin": ENV["AIRFLOW_ADMIN_PASSWORD"]}
    assert file.stat().st_mode & 0o777 == 0o600
    for service in AIRFLOW.values():
        assert ("AIRFLOW_ADMIN_PASSWORD" in service.environment) is (service is api_server)


def test_connections_are_those_that_the_pipelines_name() -> None:
    pipelines, errors = load_pipelines(PROJECT / "include" / "pipelines")
    assert not errors
    expected = {
        variable_of(connection)
        for pipeline in pipelines.values()
        for connection in (
            pipeline.source.connection,
            pipeline.kafka.connection,
            pipeline.spark.connection,
            pipeline.checkpoint.connection,
        )
        if connection
    }
    expected.add("AIRFLOW_CONN_MYSQL_SHOP_COPY")  # of the follower, for whoever adds it to the pipeline
    for service in AIRFLOW.values():
        assert {name for name in service.environment if name.startswith("AIRFLOW_CONN_")} == expected


def test_connections_lead_to_services_of_the_stack() -> None:
    environment = SERVICES["airflow-scheduler"].environment
    mysql = MysqlConnection.from_uri(environment["AIRFLOW_CONN_MYSQL_SHOP"])
    assert (mysql.host, mysql.user, mysql.password) == ("mysql", "changefeed", ENV["CHANGEFEED_MYSQL_PASSWORD"])
    bootstrap, options = kafka_parts(environment["AIRFLOW_CONN_KAFKA_SHOP"])
    assert (bootstrap, options) == ("kafka:9092", {})
    assert f"INSIDE://{bootstrap}" in SERVICES["kafka"].environment["KAFKA_ADVERTISED_LISTENERS"]
    spark = yaml.safe_load(environment["AIRFLOW_CONN_SPARK_DEFAULT"])
    assert f"{spark['host']}:{spark['port']}" in SERVICES["spark-worker"].command


def test_environment_variables_are_those_that_the_code_reads() -> None:
    code = "".join(path.read_text() for path in (PROJECT / "include" / "changefeed").rglob("*.py"))
    for service in OURS.values():
        for name in service.environment:
            if name.startswith("CHANGEFEED_"):
                assert f'"{name}"' in code, name


def test_settings_of_airflow_are_those_that_airflow_knows() -> None:
    package = find_spec("airflow")
    assert package is not None
    assert package.origin is not None
    template = Path(package.origin).parent / "config_templates" / "config.yml"
    known = yaml.load(template.read_text(), Loader=yaml.CSafeLoader)
    for service in AIRFLOW.values():
        for name in service.environment:
            if name.startswith("AIRFLOW__"):
                section, option = name.removeprefix("AIRFLOW__").lower().split("__")
                assert option in known[section]["options"], name
