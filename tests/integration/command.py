"""Runs `changefeed` as a process, with one pipeline whose checkpoint is in a state table."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_database import PROGRAMS, environment
from integration.command_forks import CommandForks
from integration.topic_rows import records_of

from changefeed.model.checkpoint import Checkpoint
from changefeed.model.topic_name import commit_log_topic
from changefeed.state.table_store import TableCheckpointStore
from devstack.kafka import KafkaBroker
from devstack.sql_server import SqlServer

WRONG_PASSWORD = "wrong-9f2c51"
SALT, SASL_PASSWORD = "pl4nted-salt", "pl4nted-password"
"""Passwords of each pipeline's mask and Kafka, which does not require one."""
NOTHING_NEW = 3


@dataclass
class Outcome:
    exit_code: int
    out: str
    err: str

    def is_refused(self, error: str, *words: str) -> None:
        """Assert that the command printed one error of that class, and exited with 1."""
        assert self.exit_code == 1, self
        assert "Traceback" not in self.err + self.out, self.err
        messages = [line for line in self.err.splitlines() if re.match(rf"(\S+: FAIL )?{error}: ", line)]
        assert len(messages) == 1, self.err
        message = self.err[self.err.index(messages[0]) :]
        assert [word for word in words if word not in message] == [], message


@dataclass
class Command:
    """`changefeed` with one pipeline whose checkpoint is in a state table."""

    folder: Path
    name: str
    database: str
    server: SqlServer
    broker: KafkaBroker
    server_id: int
    spark: str = "{master: 'local[2]'}"
    """The `spark` section of the pipeline's YAML."""
    forks: CommandForks | None = None
    """The process that forks commands; None to start a new process for each."""
    secrets: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    env: dict[str, str] = field(default_factory=dict)
    """Environment variables of all commands; '' unsets a variable."""
    on_terminal: bool = False
    """Whether stderr of commands that are new processes is a terminal."""
    mask: str = "columns: {mask: {no.such.column: {sha256: {environment: MASK_SALT}}}}"
    """A mask that matches no column. Tests of `changefeed check`, which reports that, remove it."""

    def __post_init__(self) -> None:
        self.secrets += [self.server.url.split(":")[2].rpartition("@")[0], WRONG_PASSWORD, SALT, SASL_PASSWORD]
        self.pipelines = self.folder / "pipelines"
        self.pipelines.mkdir()
        sasl = f"sasl.username=me&sasl.password={SASL_PASSWORD}&ssl.key.password={SASL_PASSWORD}"
        kafka = f"kafka://{self.broker.bootstrap}/?security.protocol=PLAINTEXT&{sasl}"
        self.connect(mysql=self.server.url, kafka=kafka)
        self.write()

    @property
    def state_url(self) -> str:
        return f"sqlite:///{self.folder / 'state.db'}"

    def connect(self, *, mysql: str | None = None, kafka: str | None = None) -> None:
        if mysql:
            self.mysql_uri = mysql
        if kafka:
            self.kafka_uri = kafka

    def write(self, more: str = "", *, start: str = "latest", spark: str | None = None) -> None:
        (self.pipelines / f"{self.name}.yaml").write_text(f"""\
name: {self.name}
source: {{connection: mysql_x, server_ids: {self.server_id}-{self.server_id + 9}}}
kafka: {{connection: kafka_x}}
tables: {{include: ['{self.database}.*']}}
topics: {{partitions: 2}}
checkpoint: {{store: table, connection: state_x}}
start: {start}
spark: {spark or self.spark}
{more}{self.mask}""")

    def __call__(self, *arguments: str) -> Outcome:
        """Run `changefeed`, and fail if a password is in the arguments of any process."""
        env = environment(self.folder) | {
            "CHANGEFEED_PIPELINES": str(self.pipelines),
            "AIRFLOW_CONN_MYSQL_X": self.mysql_uri,
            "AIRFLOW_CONN_KAFKA_X": self.kafka_uri,
            "AIRFLOW_CONN_STATE_X": self.state_url,
            "MASK_SALT": SALT,
            **self.env,
        }
        env = {variable: value for variable, value in env.items() if value}
        ended = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(ended,))
        watcher.start()
        try:
            run = self.forks.run if self.forks else _run_on_terminal if self.on_terminal else _run
            code, out, err = run(arguments, env, self.folder)
        finally:
            ended.set()
            watcher.join()
        for secret in self.secrets:
            assert secret not in out + err
        assert not self.seen, f"a password is in the arguments of {self.seen}"
        return Outcome(code, out, err)

    def _watch(self, ended: threading.Event) -> None:
        while not ended.wait(0.2):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    text = path.read_bytes()
                except OSError:
                    continue
                if any(secret.encode() in text for secret in self.secrets):
                    self.seen.add(text.replace(b"\0", b" ").decode(errors="replace")[:100])

    def checkpoint(self) -> Checkpoint | None:
        return TableCheckpointStore(self.state_url).load(self.name)

    def records(self, table: str) -> list[Any]:
        return records_of(self.broker.bootstrap, f"{self.database}.{table}")

    def logged(self, identity: str) -> list[str]:
        """The kinds of records in the commit log of identities with this prefix."""
        records = {
            record.key: record.value for record in records_of(self.broker.bootstrap, commit_log_topic(self.name))
        }
        assert [secret for secret in self.secrets if secret in f"{records}"] == []
        keys = [json.loads(key) for key, value in records.items() if value is not None]
        return [key[1] for key in keys if key[0].startswith(identity)]

    def begin(self) -> Checkpoint:
        """Store the first checkpoint at the head, then insert rows for the next run."""
        assert self("run", self.name).exit_code == NOTHING_NEW
        self.server.execute(
            "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",
            "INSERT INTO t VALUES (1, 'one'), (2, 'two')",
            "UPDATE t SET v = 'zwei' WHERE id = 2",
            database=self.database,
        )
        first = self.checkpoint()
        assert first is not None
        return first


def _run_on_terminal(arguments: tuple[str, ...], env: dict[str, str], folder: Path) -> tuple[int, str, str]:
    shown: list[bytes] = []
    reader, terminal = pty.openpty()

    def read() -> None:
        with suppress(OSError):  # no process has the terminal any more
            while data := os.read(reader, 65536):
                shown.append(data)

    reading = threading.Thread(target=read)
    reading.start()
    command = [str(PROGRAMS / "changefeed"), *arguments]
    done = subprocess.run(
        command,
        env={**env, "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
        cwd=folder,
        timeout=600,
        check=False,
    )
    os.close(terminal)
    reading.join(60)
    os.close(reader)
    return done.returncode, done.stdout, b"".join(shown).decode()


def _run(arguments: tuple[str, ...], env: dict[str, str], folder: Path) -> tuple[int, str, str]:
    done = subprocess.run(
        [str(PROGRAMS / "changefeed"), *arguments],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=600,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr
