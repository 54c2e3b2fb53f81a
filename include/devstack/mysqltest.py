"""The test files of MySQL and MariaDB, and the program mariadb-binlog, from Debian's packages.

Only the required files of a package are unpacked: MySQL's test files are 20 MB of a package of 760 MB.
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
    """A suite for `mysqltest`: files `NAME.test` and the files that they include."""

    name: str
    suite: str
    package: str
    folder: str
    """Folder of the suite inside the package."""

    def fetch(self, home: Home) -> Path:
        """The suite's folder, which is fetched once; raises FetchError if it cannot be fetched."""
        return install_once(home, self.name, lambda target: unpack_files(self.suite, self.package, target, self._place))

    def _place(self, member: PurePosixPath) -> PurePosixPath | None:
        destination = member.is_relative_to(self.folder) and member.suffix in (".test", ".inc")
        return member.relative_to(self.folder) if destination else None


MYSQL_TESTS = TestFiles("mysql-tests", SUITE, "mysql-testsuite", "usr/lib/mysql-test")
MARIADB_TESTS = TestFiles("mariadb-tests", STABLE, "mariadb-test-data", "usr/share/mariadb/mariadb-test")


def fetch_mariadb_binlog(home: Home) -> list[str]:
    """The beginning of a command line that runs `mariadb-binlog`, which is fetched once.

    It runs with the C library of the unpacked MySQL. Raises FetchError if it cannot be fetched.
    """
    program = "mariadb-binlog"

    def place(member: PurePosixPath) -> PurePosixPath | None:
        return PurePosixPath(program) if member == PurePosixPath(f"usr/bin/{program}") else None

    folder = install_once(home, program, lambda target: unpack_files(STABLE, "mariadb-client", target, place))
    return [*fetch_mysql(home).loader(), str(folder / program)]


Placement = Callable[[PurePosixPath], PurePosixPath | None]
"""Maps the path of a file in a package to its destination, or to None to skip the file."""


def unpack_files(suite: str, package: str, target: Path, place: Placement) -> None:
    """Unpack the files that ``place`` chooses of a package of Debian's ``suite`` into ``target``, without dependencies.

    Raises FetchError if the package cannot be fetched or has none of the files.
    """
    what = f"{package} (Debian {suite})"
    with tempfile.TemporaryDirectory(prefix="apt.", dir=target) as scratch:
        fetched = fetch_from_debian(suite, what, Path(scratch), lambda apt: apt.fetch_alone(package, what))
        extract(fetched, target, place)
    if not any(target.iterdir()):
        raise FetchError(f"package {package} of Debian {suite} has none of the required files")


def extract(package: Path, target: Path, place: Placement) -> None:
    """Unpack the regular files of a Debian ``package`` into ``target``, at the destinations of ``place``."""
    with subprocess.Popen(
        ["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        with suppress(tarfile.ReadError), tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for member in archive:
                destination = place(PurePosixPath(member.name)) if member.isfile() else None
                content = archive.extractfile(member) if destination is not None else None
                if destination is None or content is None:
                    continue
                path = target / destination
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read())
                path.chmod(0o755 if member.mode & 0o100 else 0o644)
    if process.returncode != 0:
        raise FetchError(f"{package.name} could not be unpacked into {target}")
