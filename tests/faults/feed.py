"""A pipeline whose runs are separate processes, which tests kill, and checks with an independent consumer."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from integration.topic_rows import event_ids, records_of, select_rows, topic_rows
from seeds import of_this_test

from changefeed import errors
from devstack.kafka import KafkaBroker
from devstack.sql_server import SqlServer

PROJECT = Path(__file__).parents[2]
TABLES = ("accounts", "journal")
NOTHING_NEW = 3


def processes_of(session: int) -> list[int]:
    """Pids of a session: a driver, its JVM and its Python workers."""
    pids = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session:
                    pids.append(int(folder.name))
    return pids


class Runner:
    """The process that runs are forked from; with ``connect``, they are on that Connect server."""

    def __init__(self, connect: str = "") -> None:
        self.connect = connect
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("inline_run.py"))],
            env={**os.environ, "PYTHONPATH": str(PROJECT / "include")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._begun: queue.Queue[int] = queue.Queue()
        self._asking = threading.Lock()  # one request at a time, as answers have no number
        self.codes: dict[int, int] = {}
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if "code" in message:
                self.codes[message["pid"]] = message["code"]
            else:
                self.codes.pop(message["pid"], None)  # from an earlier process with the same number
                self._begun.put(message["pid"])

    def begin(
        self,
        name: str,
        env: dict[str, str],
        log: Path,
        windows: list[Any] | None = None,
        command: tuple[str, ...] | None = None,
    ) -> Forked:
        assert self._process.stdin is not None
        asked = {"name": name, "env": env, "log": str(log), "windows": windows, "command": command}
        with self._asking:
            print(json.dumps(asked), file=self._process.stdin, flush=True)
            return Forked(self._begun.get(timeout=240), self.codes)

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(120)


@dataclass
class Forked:
    """The part of Popen that tests need, for a run that is a grandchild process."""

    pid: int
    codes: dict[int, int]

    def poll(self) -> int | None:
        return self.codes.get(self.pid)

    def wait(self, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        while self.pid not in self.codes:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(f"run {self.pid}", timeout)
            time.sleep(0.01)
        return self.codes[self.pid]

    def print_stacks(self) -> None:
        """Let the run print where its threads are."""
        os.kill(self.pid, signal.SIGUSR1)
        time.sleep(1)


@dataclass
class Run:
    """A run in progress."""

    process: subprocess.Popen[str] | Forked
    log: Path
    file: Path
    tells_terminal: bool = False
    """Whether `result` is 2 for a terminal error of a command, whose exit code is 1 for any error."""

    def wait_until_held(self, seconds: float = 300) -> bool:
        """Wait for the stage of the fault; False if the run ended before it."""
        deadline = time.monotonic() + seconds
        while not self.file.exists():
            if self.process.poll() is not None:
                return False
            assert time.monotonic() < deadline, f"the stage was not reached:\n{self.text()[-3000:]}"
            time.sleep(0.01)
        return True

    def go_on(self) -> None:
        self.file.unlink()

    def kill(self) -> None:
        """`kill -9` all of its processes."""
        for pid in processes_of(self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait(120)

    def result(self, seconds: float = 300) -> int:
        try:
            code = int(self.process.wait(seconds))
        except subprocess.TimeoutExpired as error:
            if isinstance(self.process, Forked):
                self.process.print_stacks()
            raise AssertionError(f"the run did not end in {seconds} seconds:\n{self.text()[-12000:]}") from error
        return 2 if code == 1 and self.tells_terminal and self._is_terminal() else code

    def _is_terminal(self) -> bool:
        names = re.findall(r"^(\w+Error): ", self.text(), re.MULTILINE)
        return bool(names) and issubclass(getattr(errors, names[-1], Exception), errors.TerminalError)

    def text(self) -> str:
        return self.log.read_text()


@dataclass
class Feed:
    """A database with two tables, a pipeline over them, and its state in a database file."""

    name: str
    mysql: SqlServer
    kafka: KafkaBroker
    folder: Path
    runner: Runner
    settings: dict[str, Any] = field(default_factory=dict)
    mysql_port: int | None = None
    kafka_port: int | None = None
    hosts: str = ""
    """Hosts of the source's connection, in place of the address of ``mysql``."""
    connections: dict[str, str] = field(default_factory=dict)
    """URIs of further connections, by name."""
    environment: dict[str, str] = field(default_factory=dict)
    """Further environment variables of the runs."""

    def __post_init__(self) -> None:
        self.numbers = itertools.count(1)
        self.random = of_this_test()
        self.state = self.folder / "state.db"
        self.mysql.execute(
            f"CREATE DATABASE IF NOT EXISTS `{self.name}`",
            f"CREATE TABLE `{self.name}`.accounts (id INT PRIMARY KEY, version INT NOT NULL, text VARCHAR(200))",
            f"CREATE TABLE `{self.name}`.journal (id INT AUTO_INCREMENT PRIMARY KEY, text VARCHAR(100))",
        )
        self.configure()

    def configure(self, **kafka: Any) -> None:
        given = {
            "name": self.name,
            "source": {"connection": "mysql_faults"},
            "kafka": {"connection": "kafka_faults", "transaction_rows": 40, "lease_seconds": 2, **kafka},
            "tables": {"include": [f"{self.name}.*"]},
            "topics": {"partitions": 2},
            "checkpoint": {"store": "table", "connection": "state"},
            "spark": {"master": "local[2]"},
            "start": "earliest",
            **self.settings,
        }
        folder = self.folder / "pipelines"
        folder.mkdir(exist_ok=True)
        (folder / f"{self.name}.yaml").write_text(yaml.safe_dump(given))

    def use_connect(self, url: str) -> None:
        """Use this Connect server for the next runs on Spark."""
        self.settings["spark"] = {"connect": url}
        self.configure()

    def env(self) -> dict[str, str]:
        mysql = self.mysql.url
        if self.mysql_port:
            mysql = mysql.replace(f":{self.mysql.port}", f":{self.mysql_port}")
        if self.hosts:
            mysql = f"{mysql.rpartition('@')[0]}@{self.hosts}"
        return {
            # without what pyspark sets where a test of this process was a Connect client
            **{name: value for name, value in os.environ.items() if not name.startswith("SPARK_")},
            "PYTHONPATH": str(PROJECT / "include"),
            "CHANGEFEED_PIPELINES": str(self.folder / "pipelines"),
            "CHANGEFEED_TRANSFORMS": str(self.folder / "transforms"),
            "AIRFLOW_CONN_MYSQL_FAULTS": mysql,
            "AIRFLOW_CONN_KAFKA_FAULTS": f"kafka://127.0.0.1:{self.kafka_port or self.kafka.port}",
            "AIRFLOW_CONN_STATE": f"sqlite:///{self.state}",
            "AIRFLOW_HOME": str(self.folder / "airflow"),
            **{f"AIRFLOW_CONN_{name}": uri for name, uri in self.connections.items()},
            **self.environment,
        }

    # --- writing

    def write(self, transactions: int = 30) -> None:
        """Write transactions of inserts, updates and deletes."""
        with self.mysql.connect(database=self.name, autocommit=False) as connection, connection.cursor() as cursor:
            for _ in range(transactions):
                for _ in range(self.random.randrange(1, 8)):
                    self._change(cursor)
                connection.commit()

    def _change(self, cursor: Any) -> None:
        key = self.random.randrange(60)
        match self.random.randrange(4):
            case 0:
                cursor.execute("INSERT INTO journal (text) VALUES (REPEAT('j', %s))", (key,))
            case 1:
                cursor.execute("DELETE FROM accounts WHERE id = %s", (key,))
            case _:
                cursor.execute(
                    "INSERT INTO accounts VALUES (%s, 1, 'é') ON DUPLICATE KEY UPDATE version = version + 1", (key,)
                )

    # --- running

    def begin(self, fault: str = "", *, spark: bool | None = None, windows: list[Any] | None = None) -> Run:
        """Begin a run; with ``windows``, of these frozen windows, as in a retry of a task.

        Unless ``spark`` is given, it uses Spark if the pipeline has a Connect server and the run has no fault.
        """
        can_choose = spark is None and not fault and windows is None
        has_connect = "connect" in self.settings.get("spark", {}) or (can_choose and self._uses_runners_connect())
        if spark or (can_choose and has_connect):
            start = self.fork_command if has_connect else self.begin_command
            return replace(start(fault, "run", self.name), tells_terminal=can_choose)
        environment, log, held = self._prepare(fault)
        return Run(self.runner.begin(self.name, environment, log, windows), log, held)

    def _uses_runners_connect(self) -> bool:
        """Whether the next run uses the shared Connect server; the pipeline's file is written for it."""
        chosen = "spark" not in self.settings and bool(self.runner.connect)
        if chosen:
            self._write_spark({"connect": self.runner.connect})
        return chosen

    def _write_spark(self, spark: dict[str, str]) -> None:
        for file in (self.folder / "pipelines").glob("*.yaml"):
            file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "spark": spark}))

    def _prepare(self, fault: str) -> tuple[dict[str, str], Path, Path]:
        number = next(self.numbers)  # asked for by several threads
        log = self.folder / f"run{number}.log"
        held = self.folder / f"held{number}"
        environment = self.env()
        if fault:
            environment |= {"CHANGEFEED_FAULT": fault, "CHANGEFEED_FAULT_FILE": str(held)}
        log.touch()
        return environment, log, held

    def begin_command(self, fault: str, *arguments: str) -> Run:
        """Begin a command in its own process."""
        if self.runner.connect and "spark" not in self.settings:
            self._write_spark({"master": "local[2]"})
        return self.begin_python(fault, "-m", "changefeed.cli.main", *arguments)

    def begin_python(self, fault: str, *arguments: str) -> Run:
        """Begin a Python process with these arguments."""
        environment, log, held = self._prepare(fault)
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        return Run(process, log, held)

    def fork_command(self, fault: str, *arguments: str) -> Run:
        """As `begin_command`, but faster: forked, and without Spark's JVM unless the pipeline has a Connect server."""
        if not fault:
            self._uses_runners_connect()
        environment, log, held = self._prepare(fault)
        return Run(self.runner.begin(self.name, environment, log, command=arguments), log, held)

    def run(self, *, spark: bool | None = None) -> str:
        """Run the pipeline, which must succeed; return its output."""
        run = self.begin(spark=spark)
        code = run.result()
        assert code in (0, NOTHING_NEW), f"exit {code}:\n{run.text()[-4000:]}"
        return run.text()

    def run_until_current(self, *, spark: bool | None = None, seconds: float = 300) -> None:
        """Run the pipeline again and again, at most ``seconds`` each, until nothing is new."""
        for _ in range(5):
            run = self.begin(spark=spark)
            code = run.result(seconds)
            assert code in (0, 1, NOTHING_NEW), f"exit {code}:\n{run.text()[-4000:]}"
            if code == NOTHING_NEW:
                return
        raise AssertionError(f"no end:\n{run.text()[-4000:]}")

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "changefeed.cli.main", *arguments],
            env=self.env(),
            capture_output=True,
            text=True,
            check=False,
        )

    # --- looking

    def records(self, table: str) -> list[Any]:
        return records_of(self.kafka.bootstrap, f"{self.name}.{table}")

    def ids(self) -> list[str]:
        return [event for table in TABLES for event in event_ids(self.records(table))]

    def check(self, *, one_server: bool = True) -> None:
        """Check that the topics have each event once, in binlog order per key, and that no version of a row is
        missing."""
        for table in TABLES:
            records = self.records(table)
            twice = [event for event, count in Counter(event_ids(records)).items() if count > 1]
            assert not twice, f"{table}: published twice: {twice[:5]}"
            # Applies each change to the row before it: a missing or misplaced change does not fit.
            assert topic_rows(records) == select_rows(self.mysql, self.name, table), table
            if one_server:
                assert in_order(records), f"{table}: out of binlog order"


@contextlib.contextmanager
def fresh_feed(server: SqlServer, kafka: KafkaBroker, name: str, folder: Path, runner: Runner) -> Iterator[Feed]:
    """A feed on a fresh binlog file of ``server``, so that no other test's events are read again."""
    server.execute("FLUSH BINARY LOGS")
    yield Feed(name, server, kafka, folder, runner, {"start": server.head()})
    server.execute(f"DROP DATABASE IF EXISTS `{name}`")


def in_order(records: list[Any]) -> bool:
    """Whether the changes of each key come in the order of the binlog."""
    last: dict[bytes, tuple[int, ...]] = {}
    for record in records:
        if record.value is None:
            continue  # a tombstone follows its delete
        source = json.loads(record.value)["source"]
        at = (int(source["file"].rpartition(".")[2]), int(source["pos"]), int(source["row"]))
        if record.key in last and at <= last[record.key]:
            return False
        last[record.key] = at
    return True
