"""A window after the other while a writer does everything: what a run uses stays flat, and topics and source end equal.

The short form has two windows for each kind of server and Spark. `make soak` has one each 30 seconds for
CHANGEFEED_SOAK_MINUTES, and prints what was measured.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil
import pytest
from faults.feed import NOTHING_NEW, Feed, Run, processes_of
from faults.test_verify import connections_of
from run_verify import run_verify

from changefeed.ddl.history import KEPT_ENTRIES
from changefeed.verify.report import summary
from devstack.mariadb import MariadbServer
from devstack.spark_connect import SparkConnectServer

MINUTES = float(os.environ.get("CHANGEFEED_SOAK_MINUTES", "0"))
WINDOW_SECONDS = 30 if MINUTES else 0
SHORT_WINDOWS = 2
SHORT_SECONDS = 20

pytestmark = [pytest.mark.extended, pytest.mark.timeout(1200 + int(MINUTES * 120))]


class Writer:
    """Writes rows, large transactions and DDL, rotates, pauses, and toggles compression, until it is stopped."""

    def __init__(self, feed: Feed) -> None:
        self.feed, self.tables = feed, 0
        self._stopped = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._write, daemon=True)

    @contextmanager
    def writing(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            self._thread.join(240)
            self._compress(False)
        if self._error is not None:
            raise self._error

    def fill_history(self) -> None:
        """Change the schema as often as a pipeline keeps: until then its state grows, and what a run holds of it."""
        changes = (f"ALTER TABLE journal MODIFY text VARCHAR({100 + n % 2})" for n in range(KEPT_ENTRIES))
        self.feed.mysql.execute(*changes, database=self.feed.name)

    def _write(self) -> None:
        steps: list[Callable[[], object]] = [
            lambda: self.feed.write(3),
            lambda: self.feed.write(3),
            self._write_large,
            self._change_schema,
            lambda: self.feed.mysql.execute("FLUSH BINARY LOGS"),
            lambda: self._compress(True),
            lambda: self._compress(False),
            lambda: self._stopped.wait(3),
        ]
        try:
            while not self._stopped.wait(0.3):
                self.feed.random.choice(steps)()
        except Exception as error:
            self._error = error

    def _write_large(self) -> None:
        rows = "SELECT REPEAT('l', 60) FROM information_schema.columns LIMIT 1500"
        self.feed.mysql.execute(f"INSERT INTO journal (text) {rows}", database=self.feed.name)

    def _change_schema(self) -> None:
        self.tables += 1
        new, old = f"extra{self.tables}", f"`extra{self.tables - 2}`"
        self.feed.mysql.execute(
            f"CREATE TABLE {new} (id INT PRIMARY KEY, a INT)",
            f"INSERT INTO {new} VALUES (1, 1), (2, 2)",
            f"ALTER TABLE {new} ADD b VARCHAR(10) NOT NULL DEFAULT 'b', ADD KEY (a)",
            f"UPDATE {new} SET b = 'changed' WHERE id = 1",
            f"INSERT INTO {new} VALUES (3, 3, 'new')",
            f"DROP TABLE IF EXISTS {old}",
            f"ALTER TABLE journal MODIFY text VARCHAR({100 + self.tables})",
            database=self.feed.name,
        )

    def _compress(self, on: bool) -> None:
        name = "log_bin_compress" if isinstance(self.feed.mysql, MariadbServer) else "binlog_transaction_compression"
        self.feed.mysql.execute(f"SET GLOBAL {name} = {'ON' if on else 'OFF'}")


@dataclass(frozen=True)
class Use:
    """What is used after a window: by the processes that go on, and of the disk."""

    memory_bytes: int
    open_files: int
    threads: int
    processes: int
    temporary_files: int
    state_bytes: int


def wait_for_jvm(run: Run) -> None:
    """A local run's JVM ends a little later than the run, and removes its files."""
    deadline = time.monotonic() + 240
    while processes_of(run.process.pid):
        assert time.monotonic() < deadline, "a process of the run does not end"
        time.sleep(0.1)


def measure(feed: Feed, pid: int | None) -> Use:
    """What process ``pid`` and its children use, if there is one."""
    processes = []
    if pid is not None:
        root = psutil.Process(pid)
        processes = [root, *root.children(recursive=True)]
    memory = files = threads = 0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            memory += process.memory_info().rss
            files += process.num_fds()
            threads += process.num_threads()
    folder = Path(feed.environment["TMPDIR"])
    state_bytes = feed.state.stat().st_size if feed.state.exists() else 0
    return Use(memory, files, threads, len(processes), len([*folder.rglob("*")]), state_bytes)


def assert_flat(uses: list[Use]) -> None:
    """No temporary files are left, and the state has at most 2 KB for each DDL statement that it keeps.

    In the long form, the median of the last third is also at most a tenth above that of the third before. The first
    third is not compared: the server's JVM touches its young generation for the first time.
    """
    assert {use.temporary_files for use in uses} == {0}, "a run leaves temporary files"
    assert uses[-1].state_bytes <= 2048 * KEPT_ENTRIES
    third = len(uses) // 3
    if not MINUTES or third < 3:
        return
    for name in ("memory_bytes", "open_files", "threads", "processes"):
        before, after = (
            statistics.median(getattr(use, name) for use in part) for part in (uses[third : 2 * third], uses[-third:])
        )
        assert after <= 1.1 * before + 2, f"{name} grew from {before} to {after}"


@pytest.mark.parametrize("where", ["local", "connect"])
@pytest.mark.parametrize("kind", ["feed", "mariadb_feed"], ids=["mysql", "mariadb"])
def test_windows_one_after_another_keep_what_they_use_flat(
    kind: str, where: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    feed: Feed = request.getfixturevalue(kind)
    server: SparkConnectServer | None = request.getfixturevalue("spark_connect") if where == "connect" else None
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    feed.environment = {"TMPDIR": str(temporary), "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={temporary}"}
    feed.settings["spark"] = {"connect": server.url} if server else {"master": "local[2]"}
    feed.configure()
    uses: list[Use] = []
    writer = Writer(feed)
    if MINUTES:
        writer.fill_history()
    end = time.monotonic() + 60 * MINUTES
    with writer.writing():
        while len(uses) < SHORT_WINDOWS or time.monotonic() < end:
            began = time.monotonic()
            run = feed.begin_command("", "run", feed.name)
            assert run.result() in (0, NOTHING_NEW), run.text()
            wait_for_jvm(run)
            uses.append(measure(feed, server.pid if server else None))
            print(f"window {len(uses)}: {asdict(uses[-1])}", flush=True)
            time.sleep(max(0.0, WINDOW_SECONDS - (time.monotonic() - began)))
    feed.run(spark=server is not None)
    feed.check()
    report = run_verify(connections_of(feed))
    assert report.outcome == "equal", summary(report)
    assert_flat(uses)


@pytest.mark.long
def test_a_continuous_run_keeps_what_it_uses_flat(feed: Feed, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    feed.environment = {"TMPDIR": str(temporary), "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={temporary}"}
    seconds = int(60 * MINUTES) or SHORT_SECONDS
    feed.settings |= {"spark": {"master": "local[2]"}, "windows": {"every": "1s", "run_for": f"{seconds}s"}}
    feed.configure()
    writer = Writer(feed)
    if MINUTES:
        writer.fill_history()
    uses: list[Use] = []
    with writer.writing():
        run = feed.begin_command("", "run", feed.name)
        while run.process.poll() is None:
            time.sleep(WINDOW_SECONDS or 5)
            if run.process.poll() is None:
                uses.append(replace(measure(feed, run.process.pid), temporary_files=0))  # of the JVM, while it runs
                print(f"{len(uses)}: {asdict(uses[-1])}", flush=True)
    assert run.result() == 0, run.text()
    wait_for_jvm(run)
    uses.append(replace(uses[-1], temporary_files=measure(feed, None).temporary_files))
    del feed.settings["windows"]
    feed.configure()
    feed.run_until_current(spark=True)
    feed.check()
    assert_flat(uses)
