"""Debian's PostgreSQL, run from a private folder with its own C library.

In tests, sinks write to it, and it is the metadata database of an Airflow.
"""

from __future__ import annotations

import csv
import io
import json
import os
import secrets
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from devstack.apt import loader, unpack_from_debian
from devstack.errors import FetchError, ServerError
from devstack.home import Home
from devstack.identity import ProcessId
from devstack.installation import install_once
from devstack.mariadb import STABLE
from devstack.port import LOCALHOST, free_port
from devstack.process import ServerProcess

RELEASE = "17"
PACKAGES = (f"postgresql-{RELEASE}", f"postgresql-client-{RELEASE}", "libc6")
USER = "changefeed"
DATABASE = "postgres"
START_SECONDS = 180.0

_NULL = "\\N"
_PROGRAMS = ("initdb", "postgres", "psql")
_AS_NON_ROOT = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
"""Runs a program as another user id, because PostgreSQL refuses root. In the user namespace it still owns root's
files."""


def fetch_postgresql(home: Home) -> Path:
    """The folder of PostgreSQL's programs, which are fetched once; raises FetchError if that fails."""
    return _programs(install_once(home, f"postgresql-{RELEASE}", _build))


def _build(target: Path) -> None:
    """Unpack PostgreSQL, and replace its programs by scripts that run them with the unpacked C library."""
    unpack_from_debian(STABLE, PACKAGES, f"PostgreSQL {RELEASE} (Debian {STABLE})", target)
    for program in _PROGRAMS:
        script = _programs(target) / program
        # A program finds its own folder and its other programs by argv[0].
        moved = script.rename(script.with_name(f"{program}.real"))
        words = " ".join(f'"{word}"' for word in (*loader(target), "--argv0", "$0", str(moved)))
        words = words.replace(str(target), "$target").replace('"--argv0" "$0"', '--argv0 "$0"')
        script.write_text(f'#!/bin/sh\ntarget=$(readlink -f "$(dirname "$0")/../../../../..")\nexec {words} "$@"\n')
        script.chmod(0o755)
    done = subprocess.run([_programs(target) / "postgres", "--version"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise FetchError(f"the unpacked postgres does not run on this machine: {done.stderr.strip()}")
    print(done.stdout.strip(), flush=True)


def _programs(target: Path) -> Path:
    return target / "usr" / "lib" / "postgresql" / RELEASE / "bin"


@dataclass(frozen=True)
class _Account:
    port: int
    password: str


class PostgresqlServer:
    """PostgreSQL with its data and log in *directory*; *owner* as for the other servers.

    `start` raises FetchError if the software cannot be fetched, and ServerError with the end of the log if the server
    does not start.
    """

    def __init__(self, directory: Path, *, home: Home | None = None, owner: ProcessId | None = None) -> None:
        self.directory = directory.absolute()
        self.home = home or Home.default()
        self._process = ServerProcess(
            f"PostgreSQL in {self.directory}",
            self.home.record_of(self.directory),
            self.directory / "server.log",
            owner,
        )

    @property
    def port(self) -> int:
        """TCP port at 127.0.0.1; it does not change while the data exist."""
        return self._account().port

    @property
    def password(self) -> str:
        """Password of the superuser `changefeed`."""
        return self._account().password

    def jdbc_url(self, database: str = DATABASE) -> str:
        """The JDBC URL of *database*, without user and password."""
        return f"jdbc:postgresql://{LOCALHOST}:{self.port}/{database}"

    def url(self, database: str = DATABASE) -> str:
        """The SQLAlchemy URL of *database*, with psycopg as driver."""
        return f"postgresql+psycopg://{USER}:{self.password}@{LOCALHOST}:{self.port}/{database}"

    def start(self) -> None:
        """Fetch missing software, create missing data, start the server, and wait until it accepts connections.

        If it runs already, only wait.
        """
        if not self._process.running:
            fetch_postgresql(self.home)
            if not self._account_file.exists():
                self._create()
            command = self._command("postgres", "-D", str(self._data), "-p", str(self.port))
            command += ["-c", f"listen_addresses={LOCALHOST}", "-c", "unix_socket_directories=", "-c", "fsync=off"]
            command += ["-c", "shared_buffers=32MB", "-c", "timezone=UTC", "-c", "jit=off"]
            # Workers of a killed scheduler keep its connection open, and with it the locks of its transaction.
            command += ["-c", "idle_in_transaction_session_timeout=30s"]
            self._process.start(command, env=_environment(), cwd=self.directory)
        self._process.wait_until(self._answers, START_SECONDS)

    def stop(self, grace: float = 20.0) -> None:
        """Shut down cleanly; SIGKILL if that takes longer than *grace* seconds. The data stay."""
        self._process.stop(grace)

    def query(self, sql: str, database: str = DATABASE) -> list[dict[str, str | None]]:
        """The rows that *sql* selects, as texts by column name; raises ServerError with psql's message."""
        done = self._psql(sql, database)
        if done.returncode != 0:
            raise ServerError(f"PostgreSQL refused {sql!r}: {done.stderr.decode().strip()}")
        rows = csv.DictReader(io.StringIO(done.stdout.decode(), newline=""))
        return [{name: None if value == _NULL else value for name, value in row.items()} for row in rows]

    def _psql(self, sql: str, database: str) -> subprocess.CompletedProcess[bytes]:
        command = [
            str(fetch_postgresql(self.home) / "psql"),
            "--no-psqlrc",
            "--quiet",
            "--csv",
            "--set=ON_ERROR_STOP=1",
        ]
        command += ["--host", LOCALHOST, "--port", str(self.port), "--username", USER, "--dbname", database]
        return subprocess.run(
            [*command, f"--pset=null={_NULL}", "--command", sql],
            capture_output=True,
            env={**_environment(), "PGPASSWORD": self.password, "PGCLIENTENCODING": "UTF8"},
            check=False,
        )

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    @property
    def _account_file(self) -> Path:
        return self.directory / "account.json"

    def _account(self) -> _Account:
        if not self._account_file.exists():
            raise ServerError(f"PostgreSQL in {self.directory} has no port and password yet. Start it first")
        return _Account(**json.loads(self._account_file.read_text()))

    def _create(self) -> None:
        shutil.rmtree(self._data, ignore_errors=True)  # left by an incomplete creation
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        account = _Account(free_port(), secrets.token_urlsafe(18))
        password = self.directory / "password"
        password.write_text(account.password)
        command = self._command("initdb", "-D", str(self._data), "--username", USER, "--pwfile", str(password))
        command += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"]
        command += ["-L", str(fetch_postgresql(self.home).parents[3] / "share" / "postgresql" / RELEASE)]
        done = subprocess.run(command, capture_output=True, text=True, env=_environment(), check=False)
        password.unlink()
        if done.returncode != 0:
            raise ServerError(f"PostgreSQL's data folder {self._data} could not be created:\n{done.stderr[-2000:]}")
        partial = self._account_file.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(account)))
        partial.replace(self._account_file)

    def _command(self, program: str, *arguments: str) -> list[str]:
        prefix = _AS_NON_ROOT if os.geteuid() == 0 else ()
        return [*prefix, str(fetch_postgresql(self.home) / program), *arguments]

    def _answers(self) -> bool:
        return (
            "ready to accept connections" in self._process.log_text()
            and self._psql("SELECT 1", DATABASE).returncode == 0
        )


def _environment() -> dict[str, str]:
    # PG* variables of the caller would change the server or the client's target.
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}
