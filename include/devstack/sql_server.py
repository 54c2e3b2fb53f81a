"""Base class of devstack's MySQL and MariaDB servers."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pymysql

from devstack.errors import ServerError
from devstack.home import Home
from devstack.identity import ProcessId
from devstack.installation import install_once
from devstack.port import LOCALHOST, free_port
from devstack.process import TAIL_LINES, ServerProcess

REPLICATION_USER = "changefeed"

Options = Mapping[str, str | int]
"""Server options as in a `my.cnf`: `{"binlog_row_metadata": "FULL"}`."""

START_SECONDS = 180.0
SOCKET = "server.sock"
"""The Unix socket, relative to the data directory: an absolute path may exceed the maximum length."""

_SERVER_SPECIFIC_FILES = ("auto.cnf", "binlog.*", "#innodb_temp", "ibtmp1")
"""Files of a data directory that are not copied: the server's UUID, its binlog, and files that each start creates."""


@dataclass(frozen=True)
class Account:
    """Port and passwords of a server, stored in its folder; only the owner can read the file."""

    port: int
    root_password: str
    password: str


class SqlServer(ABC):
    """A server with its data, settings, log and passwords in *directory*.

    - *release* is a version such as `5.7`.
    - *options* override devstack's settings.
    - *owner* is a process, such as the test session. When it has ended, the server is an orphan. Without an owner the
      server runs until it is stopped.
    - *quick*, for tests: the data are copied from a template. All quick servers of a release have the same passwords,
      and start in one second.

    The first `start` creates the data. Other objects for the same directory, also in other processes, use the same
    data, port, passwords and process.

    `start` raises FetchError if the software cannot be fetched, and ServerError with the end of the log if the server
    does not start.
    """

    product: str
    """Display name, such as `MySQL`."""

    default_release: ClassVar[str]
    """The default of *release*, such as `9.7`."""

    client_settings: ClassVar[Options] = {}
    """Additional settings of the product's client programs."""

    def __init__(
        self,
        directory: Path,
        *,
        release: str | None = None,
        options: Options | None = None,
        home: Home | None = None,
        owner: ProcessId | None = None,
        quick: bool = False,
    ) -> None:
        self.directory = directory.absolute()
        self.release = release or self.default_release
        self.home = home or Home.default()
        self._quick = quick
        self.options: dict[str, str | int] = dict(options or {})
        self._process = ServerProcess(
            f"{self.product} in {self.directory}",
            self.home.record_of(self.directory),
            self.directory / "server.log",
            owner,
        )

    # --- addresses and state

    @property
    def port(self) -> int:
        """TCP port at 127.0.0.1; it does not change while the data exist."""
        return self._account().port

    @property
    def url(self) -> str:
        """URL of the replication user, which may read and replicate but not write."""
        account = self._account()
        return f"mysql://{REPLICATION_USER}:{account.password}@{LOCALHOST}:{account.port}"

    @property
    def root_url(self) -> str:
        """URL of root."""
        account = self._account()
        return f"mysql://root:{account.root_password}@{LOCALHOST}:{account.port}"

    @property
    def log(self) -> Path:
        """The server's error log."""
        return self._process.log

    @property
    def data(self) -> Path:
        """The data directory; the binlog files are in it."""
        return self.directory / "data"

    @property
    def running(self) -> bool:
        """Whether the server's process is alive."""
        return self._process.running

    @property
    def pid(self) -> int | None:
        """Pid of the server's process, or None if it does not run."""
        return self._process.pid

    # --- start and stop

    def start(self) -> None:
        """Fetch missing software, create missing data, start the server, and wait until it accepts connections.

        If it runs already, only wait.
        """
        if not self.running:
            self._fetch()
            if not self._account_file.exists():
                self._create()
            self._write_settings()
            # While a killed server is a zombie, mysqld would consider its lock file valid.
            (self.data / f"{SOCKET}.lock").unlink(missing_ok=True)
            self._process.start(self._server_command(), env=_environment(), cwd=self.directory)
        self._process.wait_until(self._answers, START_SECONDS)

    def stop(self, grace: float = 30.0) -> None:
        """Shut down cleanly; SIGKILL if that takes longer than *grace* seconds. The data stay."""
        self._process.stop(grace)

    def kill(self) -> None:
        """`kill -9`, as a machine failure would. The data stay."""
        self._process.kill()

    def restart(self, options: Options | None = None) -> None:
        """Stop, merge *options* into the settings, and start with the same data, port and passwords."""
        self.stop()
        self.options |= options or {}
        self.start()

    # --- connections and statements

    def connect(self, user: str = "root", **arguments: Any) -> pymysql.Connection[Any]:
        """A PyMySQL connection with autocommit as *user* (`root` or `changefeed`); *arguments* go to PyMySQL.

        TLS is off unless *arguments* name `ssl`: PyMySQL would read the machine's certificates, which takes 25 to 60 ms
        of CPU.
        """
        account = self._account()
        password = account.root_password if user == "root" else account.password
        plain = {} if any(name.startswith("ssl") for name in arguments) else {"ssl_disabled": True}
        arguments = {"autocommit": True, "charset": "utf8mb4", "password": password, **plain, **arguments}
        return pymysql.connect(host=LOCALHOST, port=account.port, user=user, **arguments)

    def execute(self, *statements: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Run *statements* as root in one connection with autocommit; returns the rows of the last one."""
        with self.connect(database=database) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def client(self, name: str) -> list[str]:
        """The beginning of a command line that runs this server's client program *name* (`mysqldump`, ...).

        It connects as root with a settings file, so that no password is on the command line. Raises ServerError if the
        server's software has no such program.
        """
        program = self._program(name)
        if program is None:
            raise ServerError(f"expected {self.product}'s program {name!r}, but the fetched software does not have it")
        return [*program, f"--defaults-file={self.directory / 'client.cnf'}"]

    def head(self) -> str:
        """The end of the binlog as FILE:POSITION."""
        file, position, *_ = self.execute(self.status_statement)[0]
        return f"{file}:{position}"

    # --- different for MySQL and MariaDB

    @property
    def status_statement(self) -> str:
        """The statement that shows the end of the binlog; it depends on the release."""
        return "SHOW MASTER STATUS"

    @abstractmethod
    def _fetch(self) -> None:
        """Fetch the software if it is missing."""

    @abstractmethod
    def _program(self, name: str) -> list[str] | None:
        """The command that runs the program *name*; None if there is none."""

    @abstractmethod
    def _settings(self) -> dict[str, str | int]:
        """The server settings that are specific to the product."""

    @abstractmethod
    def _server_command(self) -> list[str]:
        """The command that runs the server in the foreground."""

    @abstractmethod
    def _create_data(self, accounts: Path) -> None:
        """Create the data directory, and run the SQL file *accounts* in it; use `_run` for the steps."""

    @abstractmethod
    def _accounts_sql(self, account: Account) -> str:
        """Statements that set root's password and create the replication user, one a line."""

    # --- common to MySQL and MariaDB

    @property
    def _account_file(self) -> Path:
        return self.directory / "account.json"

    @property
    def _tmp(self) -> Path:
        return self.directory / "tmp"

    @property
    def _settings_file(self) -> Path:
        return self.directory / "my.cnf"

    def _account(self) -> Account:
        if not self._account_file.exists():
            raise ServerError(f"{self.product} in {self.directory} has no port and passwords yet. Start it first")
        return Account(**json.loads(self._account_file.read_text()))

    def _create(self) -> None:
        shutil.rmtree(self.data, ignore_errors=True)  # left by an incomplete creation
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o700)
        account = self._copy_data() if self._quick else self._initialize_data()
        client: dict[str, str | int] = {
            "user": "root",
            "password": account.root_password,
            "host": LOCALHOST,
            "port": account.port,
            "protocol": "TCP",
            **self.client_settings,
        }
        (self.directory / "client.cnf").write_text(_settings_text("client", client))
        partial = self._account_file.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(account)))
        partial.replace(self._account_file)

    def _initialize_data(self) -> Account:
        account = Account(free_port(), secrets.token_urlsafe(18), secrets.token_urlsafe(18))
        accounts = self.directory / "accounts.sql"
        accounts.write_text(self._accounts_sql(account))
        self._write_settings(port=account.port)
        try:
            self._create_data(accounts)
        finally:
            accounts.unlink()
        return account

    def _copy_data(self) -> Account:
        template = type(self)(
            install_once(self.home, self._template_name(), self._make_template), release=self.release, home=self.home
        )
        shutil.copytree(template.data, self.data, ignore=shutil.ignore_patterns(*_SERVER_SPECIFIC_FILES))
        return replace(template._account(), port=free_port())

    def _template_name(self) -> str:
        # The name has a digest of the statements and settings, so that a change of them creates a new template.
        made_with = self._accounts_sql(Account(0, "", "")), sorted(self._settings().items())
        return f"{self.product.lower()}-data-{hashlib.sha256(repr(made_with).encode()).hexdigest()[:12]}"

    def _make_template(self, target: Path) -> None:
        template = type(self)(target, release=self.release, home=self.home, owner=ProcessId.own())
        template.start()  # the first start creates TLS keys, which takes longest
        template.stop()

    def _write_settings(self, port: int | None = None) -> None:
        settings: dict[str, str | int] = {
            "datadir": str(self.data),
            "tmpdir": str(self._tmp),  # in a shared folder, each start would delete temporary files of other servers
            "port": port if port is not None else self.port,
            "bind-address": LOCALHOST,
            "socket": SOCKET,
            "pid-file": str(self.directory / "server.pid"),
            "server-id": 1,
            "log-bin": "binlog",
            "sync-binlog": 0,
            "skip-name-resolve": "ON",
            "performance-schema": "OFF",
            "max-connections": 100,
            "innodb-buffer-pool-size": "64M",
            "innodb-flush-log-at-trx-commit": 2,
            "innodb-use-native-aio": "OFF",  # the kernel limits it (fs.aio-max-nr)
            **self._settings(),
        }
        self._tmp.mkdir(exist_ok=True)
        if os.geteuid() == 0:
            settings["user"] = "root"
        chosen = {name.replace("_", "-"): value for name, value in self.options.items()}
        self._settings_file.write_text(_settings_text("mysqld", settings | chosen))

    def _answers(self) -> bool:
        try:
            self.connect(connect_timeout=2).close()
        except pymysql.err.OperationalError:
            return False
        return True

    def _run(self, command: list[str], what: str, text: str | None = None) -> None:
        done = subprocess.run(
            command,
            input=text or "",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=_environment(),
            cwd=self.directory,
            check=False,
        )
        with self.log.open("a") as log:
            log.write(done.stdout)
        if done.returncode != 0:
            tail = "\n".join(done.stdout.splitlines()[-TAIL_LINES:])
            raise ServerError(f"{self.product}: {what} failed with exit code {done.returncode}:\n{tail}")


def _settings_text(section: str, settings: Mapping[str, str | int]) -> str:
    return f"[{section}]\n" + "".join(f"{name}={value}\n" for name, value in settings.items())


def _environment() -> dict[str, str]:
    # MYSQL* and MARIADB* variables of the caller would change the server.
    return {name: value for name, value in os.environ.items() if not name.startswith(("MYSQL", "MARIADB"))}
