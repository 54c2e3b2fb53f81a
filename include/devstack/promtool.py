"""Prometheus's `promtool` from Debian's package, with which tests evaluate the shipped alert rules."""

from __future__ import annotations

from pathlib import PurePosixPath

from devstack.home import Home
from devstack.installation import install_once
from devstack.mariadb import STABLE
from devstack.mysql import fetch_mysql
from devstack.mysqltest import unpack_files


def fetch_promtool(home: Home) -> list[str]:
    """The beginning of a command line that runs `promtool`, which is fetched once.

    It runs with the C library of the unpacked MySQL. Raises FetchError if it cannot be fetched.
    """
    program = "promtool"

    def place(member: PurePosixPath) -> PurePosixPath | None:
        return PurePosixPath(program) if member == PurePosixPath(f"usr/bin/{program}") else None

    folder = install_once(home, program, lambda target: unpack_files(STABLE, program, target, place))
    return [*fetch_mysql(home).loader(), str(folder / program)]
