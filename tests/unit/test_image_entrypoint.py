"""docker/entrypoint.sh starts the pods of Spark on Kubernetes, and other commands as they are."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

SCRIPT = Path(__file__).parents[2] / "docker" / "entrypoint.sh"
PRINT = '#!/bin/sh\nfor argument; do echo "$argument"; done\n'

EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
    "SPARK_EXECUTOR_POD_NAME": "changefeed-exec-3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
}
"""What Spark sets in an executor's pod (BasicExecutorFeatureStep)."""


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with a dumb-init that prints the command it would run, one argument a line, and a getent that knows
    each user."""
    for name, script in (("dumb-init", PRINT), ("getent", "#!/bin/sh\n")):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    return tmp_path


def started(programs: Path, *arguments: str, **environment: str) -> list[str]:
    done = subprocess.run(
        ["bash", str(SCRIPT), *arguments],
        env={"PATH": f"{programs}:/usr/bin:/bin", "SPARK_HOME": "/spark", **environment},
        cwd=programs,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    options, command = done.stdout.split("--\n", 1)
    assert options == ("" if command.startswith(("/entrypoint\n", "/spark/bin/spark-submit\n")) else "--single-child\n")
    return command.splitlines()


def test_executor_gets_what_spark_set_in_its_pod(programs: Path) -> None:
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dnumber={number} and a space" for number in range(11)}
    command = started(programs, "executor", **EXECUTOR, **options, JAVA_HOME="/jdk", SPARK_CONF_DIR="/opt/spark/conf")
    path = f"/opt/spark/conf:/spark/jars/*:{programs}"
    assert command[:16] == [
        "/jdk/bin/java", *options.values(), "-Xms1024m", "-Xmx1024m", "-cp", path,
    ]  # fmt: skip
    assert command[16] == "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    assert dict(zip(command[17::2], command[18::2], strict=True)) == {
        "--driver-url": EXECUTOR["SPARK_DRIVER_URL"],
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.7",
        "--resourceProfileId": "0",
        "--podName": "changefeed-exec-3",
    }


def test_executor_class_and_program_are_in_the_pinned_spark() -> None:
    spec = find_spec("pyspark")
    assert spec is not None
    (spark,) = spec.submodule_search_locations or ()
    assert list(Path(spark, "jars").glob("spark-kubernetes_*.jar"))
    assert Path(spark, "bin", "spark-submit").is_file()


def test_executor_without_a_variable_of_spark_does_not_start(programs: Path) -> None:
    environment = {name: value for name, value in EXECUTOR.items() if name != "SPARK_EXECUTOR_ID"}
    with pytest.raises(AssertionError, match="SPARK_EXECUTOR_ID: unbound variable"):
        started(programs, "executor", **environment)


UNNAMED = 12345


def as_unnamed(programs: Path, mode: int) -> tuple[subprocess.CompletedProcess[str], Path]:
    """Start a driver as a user without a name, and with a file of ``mode`` in place of /etc/passwd; return both."""
    passwd = programs / "passwd"
    passwd.write_text("root:x:0:0:root:/root:/bin/bash\n")
    passwd.chmod(mode)
    programs.chmod(0o755)
    done = subprocess.run(
        ["setpriv", f"--reuid={UNNAMED}", "--regid=0", "--clear-groups", "bash", "-s", "driver"],
        env={"PATH": f"{programs}:/usr/bin:/bin", "SPARK_HOME": "/spark", "SPARK_DRIVER_BIND_ADDRESS": "::"},
        input=SCRIPT.read_text().replace("/etc/passwd", str(passwd)),  # this user may not be able to read the project
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    return done, passwd


@pytest.fixture
def open_programs(programs: Path) -> Iterator[Path]:
    """`programs` in a folder that all users can reach."""
    with TemporaryDirectory() as made:
        shutil.copy(programs / "dumb-init", made)
        yield Path(made)


if os.getuid() == 0:  # only root can run a process as another user

    def test_pod_of_an_unnamed_user_gets_a_name_where_group_0_may_add_it(open_programs: Path) -> None:
        done, passwd = as_unnamed(open_programs, 0o664)
        assert "/spark/bin/spark-submit" in done.stdout, done.stderr
        assert passwd.read_text().splitlines()[1:] == ["changefeed:x:12345:0::/tmp:/bin/false"]

    def test_pod_of_an_unnamed_user_fails_where_no_name_can_be_added(open_programs: Path) -> None:
        done, passwd = as_unnamed(open_programs, 0o644)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"expected user 12345 in {passwd}" in done.stderr
        assert "Run the pod as user 50000" in done.stderr


def test_driver_is_a_client_in_its_own_pod(programs: Path) -> None:
    arguments = ("--properties-file", "/opt/spark/conf/spark.properties", "local:///jobs/ingest.py", "a b")
    assert started(programs, "driver", *arguments, SPARK_DRIVER_BIND_ADDRESS="10.0.0.5") == [
        "/spark/bin/spark-submit", "--conf", "spark.driver.bindAddress=10.0.0.5", "--deploy-mode", "client", *arguments,
    ]  # fmt: skip


@pytest.mark.parametrize("command", [("changefeed", "status"), ("python", "-c", "print( 1 )"), ("spark-class", "Main")])
def test_programs_of_the_image_run_as_they_are(programs: Path, command: tuple[str, ...]) -> None:
    assert started(programs, *command) == list(command)


@pytest.mark.parametrize("command", [(), ("airflow", "scheduler"), ("bash", "-c", "a b")])
def test_other_commands_are_for_airflows_entry_point(programs: Path, command: tuple[str, ...]) -> None:
    assert started(programs, *command) == ["/entrypoint", *command]
