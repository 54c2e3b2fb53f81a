"""The test statements of MySQL and MariaDB themselves, out of Debian's packages, and MariaDB's own reader of binlogs.

Only what is wanted of a package is unpacked: the test files of MySQL are 20 MB of 760.
"""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from devstack.apt import fetch_from_debian
from devstack.errors import FetchError
from devstack.home import Home
from devstack.installation import install_once
from devstack.mariadb import STABLE
from devstack.mysql import SUITE, fetch_mysql


@dataclass(frozen=True)
class TestFiles:
    """A suite as `mysqltest` reads it: `NAME.test`, and what they include."""

    name: str
    suite: str
    package: str
    folder: str
    """Where the suite is in the package."""

    def fetch(self, home: Home) -> Path:
        """The suite's folder, fetched unless it is there already; raises FetchError where it cannot be had."""
        return install_once(home, self.name, lambda target: _unpack(self.suite, self.package, target, self._place))

    def _place(self, member: PurePosixPath) -> PurePosixPath | None:
        wanted = member.is_relative_to(self.folder) and member.suffix in (".test", ".inc")
        return member.relative_to(self.folder) if wanted else None


MYSQL_TESTS = TestFiles("mysql-tests", SUITE, "mysql-testsuite", "usr/lib/mysql-test")
MARIADB_TESTS = TestFiles("mariadb-tests", STABLE, "mariadb-test-data", "usr/share/mariadb/mariadb-test")


def fetch_mariadb_binlog(home: Home) -> list[str]:
    """The beginning of a command line that runs `mariadb-binlog`, fetched unless it is there already.

    Raises FetchError where it cannot be had. It runs with the C library of the unpacked MySQL.
    """
    program = "mariadb-binlog"

    def place(member: PurePosixPath) -> PurePosixPath | None:
        return PurePosixPath(program) if member == PurePosixPath(f"usr/bin/{program}") else None

    folder = install_once(home, program, lambda target: _unpack(STABLE, "mariadb-client", target, place))
    return [*fetch_mysql(home).loader(), str(folder / program)]


Placing = Callable[[PurePosixPath], PurePosixPath | None]
"""Where a file of a package goes; None for one that is not wanted."""


def _unpack(suite: str, package: str, target: Path, place: Placing) -> None:
    what = f"{package} (Debian {suite})"
    with tempfile.TemporaryDirectory(prefix="apt.", dir=target) as scratch:
        fetched = fetch_from_debian(suite, what, Path(scratch), lambda apt: apt.fetch_alone(package, what))
        extract(fetched, target, place)
    if not any(target.iterdir()):
        raise FetchError(f"package {package} of Debian {suite} has none of the files that are wanted of it")


def extract(package: Path, target: Path, place: Placing) -> None:
    """Unpack the regular files of a Debian ``package`` that ``place`` wants into ``target``."""
    with subprocess.Popen(
        ["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        with suppress(tarfile.ReadError), tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for member in archive:
                wanted = place(PurePosixPath(member.name)) if member.isfile() else None
                content = archive.extractfile(member) if wanted is not None else None
                if wanted is None or content is None:
                    continue
                path = target / wanted
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read())
                path.chmod(0o755 if member.mode & 0o100 else 0o644)
    if process.returncode != 0:
        raise FetchError(f"{package.name} could not be unpacked into {target}")
