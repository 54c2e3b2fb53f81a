"""MySQL 9.7 from Debian sid, run from a private folder with its own C library."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from devstack.apt import PrivateApt, Source, mirrors, missing_for_debian, unpack
from devstack.errors import FetchError
from devstack.home import Home
from devstack.installation import install_once
from devstack.sql_server import REPLICATION_USER, Account, SqlServer

SUITE = "sid"
PACKAGES = ("mysql-server-core", "mysql-client-core", "libc6")
TITLE = "MySQL (Debian sid)"


@dataclass(frozen=True)
class MysqlSoftware:
    """An unpacked MySQL."""

    root: Path

    @property
    def share(self) -> Path:
        """Messages and charsets."""
        return self.root / "usr" / "share" / "mysql"

    @property
    def plugins(self) -> Path:
        """The server's loadable plugins."""
        return self.root / "usr" / "lib" / "mysql" / "plugin"

    def program(self, name: str) -> list[str] | None:
        """Command that runs *name* with the unpacked libraries; None if there is no such program."""
        for folder in ("sbin", "bin"):
            path = self.root / "usr" / folder / name
            if path.exists():
                return [*self.loader(), str(path)]
        return None

    def loader(self) -> list[str]:
        """The beginning of a command line that runs any program with the unpacked libraries."""
        # The machine's own C library may be older than what these programs were built for.
        loaders = sorted((self.root / "usr" / "lib").glob("*/ld-linux*.so.*"))
        if not loaders:
            raise FetchError(
                f"the dynamic loader of the unpacked MySQL was looked for in {self.root}/usr/lib/*/ and is not "
                "there: this processor is not supported, or the folder is damaged. Run "
                "`python -m devstack clean --downloads`, or name a server of your own in MYSQL_URL."
            )
        return [str(loaders[0]), "--library-path", f"{loaders[0].parent}:{self.root}/usr/lib"]


def fetch_mysql(home: Home) -> MysqlSoftware:
    """MySQL's server and clients, fetched unless they are there already.

    Raises FetchError if Debian's packages cannot be had here; `mysql_unavailable` says so beforehand.
    """
    return MysqlSoftware(install_once(home, "mysql", _build) / "root")


def mysql_unavailable() -> str | None:
    """Why MySQL cannot be fetched on this machine, or None if it can."""
    return missing_for_debian()


def _build(target: Path) -> None:
    reason = mysql_unavailable()
    if reason is not None:
        raise FetchError(f"{reason}. Use MariaDB instead, or name a server of your own in MYSQL_URL.")
    with tempfile.TemporaryDirectory(prefix="apt.", dir=target) as scratch:
        packages = _download(Path(scratch), mirrors())
        unpack(packages, target / "root")
    command = MysqlSoftware(target / "root").program("mysqld")
    if command is None:
        raise FetchError(f"the packages {', '.join(PACKAGES)} of Debian {SUITE} contain no mysqld")
    done = subprocess.run([*command, "--no-defaults", "--version"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise FetchError(f"the unpacked mysqld does not run on this machine: {done.stderr.strip()}")
    print(f"{TITLE}: {done.stdout.partition('Ver ')[2].strip()}", flush=True)


def _download(scratch: Path, candidates: Sequence[str]) -> list[Path]:
    failures = []
    for number, mirror in enumerate(candidates):
        apt = PrivateApt(scratch / f"mirror{number}", Source.debian(mirror, SUITE))
        try:
            apt.update()
            return apt.fetch(PACKAGES, TITLE)
        except FetchError as error:
            failures.append(f"{mirror}: {error}")
    raise FetchError("MySQL's packages could not be had from any mirror.\n" + "\n".join(failures))


class MysqlServer(SqlServer):
    """MySQL with binlog in ROW format and GTIDs, everything else as MySQL ships it."""

    product = "MySQL"

    def _fetch(self) -> None:
        fetch_mysql(self.home)

    def _program(self, name: str) -> list[str] | None:
        return fetch_mysql(self.home).program(name)

    def _settings(self) -> dict[str, str | int]:
        software = fetch_mysql(self.home)
        return {
            "basedir": str(software.root / "usr"),
            "lc-messages-dir": str(software.share),
            "character-sets-dir": str(software.share / "charsets"),
            "plugin-dir": str(software.plugins),
            "mysqlx": "OFF",
            "secure-file-priv": "NULL",
            "gtid-mode": "ON",
            "enforce-gtid-consistency": "ON",
            "innodb-redo-log-capacity": "64M",
        }

    def _server_command(self) -> list[str]:
        return [*self._mysqld(), f"--defaults-file={self._settings_file}"]

    def _mysqld(self) -> list[str]:
        command = self._program("mysqld")
        assert command is not None  # _build has run it
        return command

    def _create_data(self, accounts: Path) -> None:
        # Without a binlog, so that the first thing in it is the user's.
        command = [*self._server_command(), "--initialize-insecure", "--skip-log-bin", f"--init-file={accounts}"]
        self._run(command, "creating the data directory")

    def _accounts_sql(self, account: Account) -> str:
        return (
            f"ALTER USER 'root'@'localhost' IDENTIFIED BY '{account.root_password}';\n"
            f"CREATE USER 'root'@'127.0.0.1' IDENTIFIED BY '{account.root_password}';\n"
            "GRANT ALL PRIVILEGES ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;\n"
            f"CREATE USER '{REPLICATION_USER}'@'%' IDENTIFIED WITH caching_sha2_password BY '{account.password}';\n"
            f"GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{REPLICATION_USER}'@'%';\n"
        )
