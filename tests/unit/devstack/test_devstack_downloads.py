"""Downloads of devstack, and its use of existing servers, without starting a server."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import venv
from pathlib import Path, PurePosixPath

import pytest

from devstack.apt import MACHINE_STATUS, PrivateApt, Source, missing_programs
from devstack.connect import CHECKSUMS as connect_checksums
from devstack.errors import DevstackError, FetchError
from devstack.home import PROJECT, Home
from devstack.installation import install_once, run_download
from devstack.kafka import CHECKSUMS, KAFKA, LOGGING
from devstack.maven import check_jars, read_artifacts, read_checksums
from devstack.mysqltest import extract
from devstack.spark import fetch_spark
from devstack.stack import Condition, Stack


class NoProgress:
    """A progress display without output."""

    def update(self, size: int) -> None:
        """Ignore it."""


def test_failed_installation_leaves_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    home = Home(tmp_path)

    def fail(target: Path) -> None:
        (target / "half").touch()
        raise FetchError("the network went away")

    with pytest.raises(FetchError):
        install_once(home, "thing", fail)
    assert [path.name for path in home.downloads.iterdir()] == [".thing.lock"]
    folder = install_once(home, "thing", lambda target: (target / "complete").touch())
    assert [path.name for path in folder.iterdir()] == ["complete"]


def test_installation_restarts_after_its_process_was_killed(tmp_path: Path) -> None:
    home = Home(tmp_path)
    (home.downloads / ".thing.partial.abc").mkdir(parents=True)
    install_once(home, "thing", lambda target: (target / "complete").touch())
    assert sorted(path.name for path in home.downloads.iterdir()) == [".thing.lock", "thing"]


def test_concurrent_installations_fetch_once(tmp_path: Path) -> None:
    home = Home(tmp_path)
    builds: list[Path] = []
    begun, may_end = threading.Event(), threading.Event()

    def build(target: Path) -> None:
        builds.append(target)
        begun.set()
        may_end.wait(120)

    threads = [threading.Thread(target=install_once, args=(home, "thing", build)) for _ in range(2)]
    for thread in threads:
        thread.start()
    begun.wait(120)
    may_end.set()
    for thread in threads:
        thread.join()
    assert len(builds) == 1


def test_a_download_that_fails_shows_the_end_of_its_output(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"(?s)Kafka could not be fetched: sh ended with exit code 3.*no such host"):
        run_download(
            ["/bin/sh", "-c", "echo no such host; exit 3"],
            what="Kafka",
            folder=tmp_path,
            log=tmp_path / "log",
            progress=NoProgress(),
        )


def test_jar_with_another_checksum_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jar").write_bytes(b"as pinned")
    pinned = {"a.jar": hashlib.sha256(b"as pinned").hexdigest()}
    check_jars(tmp_path, pinned, "jars")
    (tmp_path / "a.jar").write_bytes(b"other")
    with pytest.raises(FetchError, match=r"other content: \['a.jar'\]"):
        check_jars(tmp_path, pinned, "jars")


def test_unknown_and_missing_jars_are_refused(tmp_path: Path) -> None:
    (tmp_path / "b.jar").write_bytes(b"")
    with pytest.raises(FetchError, match=r"missing: \['a.jar'\], unknown: \['b.jar'\]"):
        check_jars(tmp_path, {"a.jar": "0" * 64}, "jars")


def test_every_jar_of_kafka_and_of_connect_is_pinned() -> None:
    artifacts, connect = read_artifacts(CHECKSUMS), read_checksums(connect_checksums)
    assert {KAFKA, LOGGING} <= artifacts.keys()
    kafka = {artifact.jar: digest for artifact, digest in artifacts.items()}
    assert (len(kafka), len(connect)) == (46, 74)
    assert all(len(digest) == 64 for digest in (*kafka.values(), *connect.values()))
    assert all(kafka[jar] == connect[jar] for jar in kafka.keys() & connect.keys())


def test_existing_servers_are_used_without_showing_their_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MYSQL_URL", "mysql://reader:s3cret@db.example:3307")
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "kafka.example:9092")
    stack = Stack(Home(tmp_path))
    assert stack.sql_server is None
    assert stack.kafka is None
    assert stack.mysql_url == "mysql://reader:s3cret@db.example:3307"
    assert stack.bootstrap == "kafka.example:9092"
    mysql, kafka, airflow = stack.states()
    assert (mysql.condition, kafka.condition, airflow.condition) == ("existing", "existing", Condition.STOPPED)
    assert "s3cret" not in mysql.where


def test_exports_name_servers_and_airflow_without_foreign_passwords(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MYSQL_URL", "mysql://reader:s3cret@db.example:3307")
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "kafka.example:9092")
    stack = Stack(Home(tmp_path / "it's here"))
    airflow = stack.home.servers / "airflow"
    airflow.mkdir(parents=True)
    keys = {"port": 8080, "jwt_secret": "j", "secret_key": "s", "fernet_key": "f"}
    (airflow / "installation.json").write_text(json.dumps(keys))
    assert "s3cret" not in "\n".join(stack.exports)
    shell = subprocess.run(
        ["/bin/sh", "-c", "\n".join([*stack.exports, "env"])], check=True, capture_output=True, text=True
    )
    seen = dict(line.split("=", 1) for line in shell.stdout.splitlines() if "=" in line)
    assert seen["AIRFLOW_CONN_MYSQL_SHOP"] == stack.mysql_url
    assert seen["AIRFLOW_CONN_KAFKA_SHOP"] == "kafka://kafka.example:9092"
    assert (seen["AIRFLOW_HOME"], seen["AIRFLOW__CORE__FERNET_KEY"]) == (str(airflow), "f")
    assert seen["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"].startswith(f"sqlite:///{airflow}/airflow.db")
    assert seen["PATH"].split(":")[0] == str(Path(sys.executable).parent)


def test_spark_that_is_installed_is_not_fetched(tmp_path: Path) -> None:
    fetch_spark(Home(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_python_without_spark_and_without_its_installer_is_told_what_to_do(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", symlinks=True)
    script = "from devstack.home import Home; from devstack.spark import fetch_spark; fetch_spark(Home.default())"
    done = subprocess.run(
        [tmp_path / "venv" / "bin" / "python", "-c", script],
        env={**os.environ, "PYTHONPATH": str(PROJECT / "include"), "CHANGEFEED_DEVSTACK_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.search(r"FetchError: expected uv in .*, found none.* Run `make setup`", done.stderr), done.stderr


@pytest.mark.skipif(missing_programs() is not None, reason="a machine without apt")
def test_apt_uses_private_folders_and_needs_no_root(tmp_path: Path) -> None:
    PrivateApt(tmp_path, Source.machine())
    asked = ["STATUS", "Dir::State::status/f", "LISTS", "Dir::State::Lists/f", "CACHE", "Dir::Cache::Archives/f"]
    environment = {**os.environ, "APT_CONFIG": str(tmp_path / "apt.conf")}
    output = subprocess.run(
        ["apt-config", "shell", *asked], env=environment, check=True, capture_output=True, text=True
    )
    paths = [shlex.split(line)[0].split("=", 1)[1] for line in output.stdout.splitlines()]
    assert len(paths) == 3
    assert all(path.startswith(f"{tmp_path}/") for path in paths), paths
    assert (tmp_path / "status").read_bytes() == MACHINE_STATUS.read_bytes(), (
        "only packages that are not installed are fetched"
    )


@pytest.mark.skipif(missing_programs() is not None, reason="a machine without dpkg")
def test_only_requested_files_of_a_package_are_unpacked(tmp_path: Path) -> None:
    tree, package, target = tmp_path / "tree", tmp_path / "some.deb", tmp_path / "target"
    for name, mode in (("DEBIAN/control", 0o644), ("usr/share/some/t/a.test", 0o644), ("usr/bin/some", 0o755)):
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("Package: some\nVersion: 1\nArchitecture: all\nMaintainer: no <one@x>\nDescription: d\n")
        path.chmod(mode)
    subprocess.run(["dpkg-deb", "--build", str(tree), str(package)], check=True, capture_output=True)
    extract(package, target, lambda member: PurePosixPath("t", member.name) if member.suffix == ".test" else None)
    assert [path for path in target.rglob("*") if path.is_file()] == [target / "t" / "a.test"]
    extract(package, target, lambda member: PurePosixPath(member.name) if member.name == "some" else None)
    assert (target / "some").stat().st_mode & 0o777 == 0o755
    package.write_bytes(package.read_bytes()[:400])
    with pytest.raises(FetchError, match=r"some\.deb could not be unpacked"):
        extract(package, target, lambda _member: None)


def test_invalid_mysql_url_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MYSQL_URL", "db.example:3306")
    with pytest.raises(DevstackError, match="mysql://user:password@host:3306"):
        Stack(Home(tmp_path))


def test_stop_without_running_servers_does_nothing(tmp_path: Path) -> None:
    assert Stack(Home(tmp_path)).stop() == []


def test_clean_keeps_downloads_by_default(tmp_path: Path) -> None:
    home = Home(tmp_path)
    (home.downloads / "mysql").mkdir(parents=True)
    (home.servers / "mysql").mkdir(parents=True)
    Stack(home).clean()
    assert not home.servers.exists()
    assert home.downloads.exists()
    Stack(home).clean(downloads=True)
    assert not home.downloads.exists()
