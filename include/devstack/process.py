"""Server processes: each runs in its own session, has a record file, and is stopped with its descendants.

A record below `run/` has the pid and the start time of the process, so that a later `stop`, also from another shell,
never ends another process with the same pid.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from devstack.errors import ServerError
from devstack.identity import ProcessId, family

TAIL_LINES = 25
POLL_SECONDS = 0.05
KILL_SECONDS = 15.0
REPORT_SECONDS = 10.0
LONGEST = 4
"""A server that continues to write to its log may take this many times the time of one that writes nothing."""

_TRACE = ("\tat ", "\t... ", "    at ")
"""Begin the lines of Java's stack traces, which are left out of messages."""


@dataclass(frozen=True)
class RunRecord:
    """The record of a started process.

    When the process *owner* (a test session) has ended, the recorded process is an orphan. *owner* is None for the
    servers of the demo, which run longer than the command that started them.
    """

    name: str
    process: ProcessId
    log: str
    owner: ProcessId | None

    def write(self, path: Path) -> None:
        """Replace the record at *path* atomically."""
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        partial.write_text(json.dumps(asdict(self), indent=1) + "\n")
        partial.replace(path)

    @classmethod
    def read(cls, path: Path) -> RunRecord | None:
        """The record at *path*, or None if there is none."""
        try:
            fields = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        owner = ProcessId(**fields["owner"]) if fields["owner"] else None
        return cls(fields["name"], ProcessId(**fields["process"]), fields["log"], owner)

    def is_orphaned(self) -> bool:
        """Whether the owner has ended without stopping the process."""
        return self.owner is not None and not self.owner.alive()


class ServerProcess:
    """A server process with the record file *record*; its output is appended to *log*."""

    def __init__(self, name: str, record: Path, log: Path, owner: ProcessId | None = None) -> None:
        self.name = name
        self.log = log
        self._record = record
        self._owner = owner
        self._child: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def running(self) -> bool:
        """Whether the recorded process is alive, no matter which process started it."""
        if self._child is not None and self._child.poll() is not None:
            return False
        record = RunRecord.read(self._record)
        return record is not None and record.process.alive()

    @property
    def pid(self) -> int | None:
        """Pid of the running process, or None."""
        record = RunRecord.read(self._record)
        return record.process.pid if record is not None and record.process.alive() else None

    def start(self, command: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> None:
        """Start *command* without waiting until it is ready; raises ServerError if the process runs already."""
        if self.running:
            raise ServerError(
                f"{self.name} cannot be started, because it runs already (pid {self.pid}). Stop it first."
            )
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self._log_start = output.tell()
            self._child = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(env),
                cwd=cwd,
                start_new_session=True,
            )
        process = ProcessId.of(self._child.pid) or ProcessId(self._child.pid, "gone")
        RunRecord(self.name, process, str(self.log), self._owner).write(self._record)

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until *ready* returns True, and print a line each REPORT_SECONDS.

        Raises ServerError with the end of the log if the process ends before that, if it has written nothing to its log
        for *seconds*, or if it is not ready after LONGEST times *seconds*. In the latter cases the process is killed.
        """
        began = progressed = reported = time.monotonic()
        size = self._log_size()
        while not ready():
            self.check_running()
            now = time.monotonic()
            if (current := self._log_size()) != size:
                size, progressed = current, now
            if now - progressed > seconds or now - began > LONGEST * seconds:
                self.kill()
                raise ServerError(
                    f"{self.name} was not ready after {now - began:.0f} s and has been stopped. {self.describe_log()}"
                )
            if now - reported > REPORT_SECONDS:
                reported = now
                print(f"{self.name} is starting: {now - began:.0f} s so far. Its log: {self.log}", flush=True)
            time.sleep(POLL_SECONDS)

    def check_running(self) -> None:
        """Raise ServerError with the end of the log if the process has ended by itself."""
        if not self.running:
            # Poll again: the process may have ended since the last poll.
            code = self._child.poll() if self._child is not None else "unknown"
            self._forget()
            raise ServerError(f"{self.name} stopped by itself with exit code {code}. {self.describe_log()}")

    def stop(self, grace: float) -> None:
        """Send SIGTERM, and after *grace* seconds SIGKILL, also to its descendants. Does nothing if it does not run."""
        record = RunRecord.read(self._record)
        if record is not None:
            end_process(record.process, grace)
        self._forget()

    def kill(self) -> None:
        """Send SIGKILL to the process and its descendants."""
        self.stop(grace=0)

    def log_text(self) -> str:
        """The log since this object last started the process."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode(errors="replace")

    def _log_size(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0

    def describe_log(self) -> str:
        """The path of the log and its last lines without stack traces, for an error message."""
        lines = [line for line in self.log_text().splitlines() if not line.startswith(_TRACE)][-TAIL_LINES:]
        return f"The end of {self.log}:\n" + ("\n".join(lines) or "(empty)")

    def _forget(self) -> None:
        if self._child is not None:
            self._child.wait()
            self._child = None
        self._record.unlink(missing_ok=True)


class Server(Protocol):
    """A server that devstack starts and stops."""

    def start(self) -> None: ...
    def stop(self, grace: float = ...) -> None: ...


S = TypeVar("S", bound=Server)


@contextmanager
def run_server(server: S) -> Iterator[S]:
    """Start ``server``, and kill it with SIGKILL at the end of the block. Use it if the data are not needed later."""
    server.start()
    try:
        yield server
    finally:
        server.stop(grace=0)


def end_process(process: ProcessId, grace: float) -> None:
    """End *process* with SIGTERM, and after *grace* seconds the process and its family with SIGKILL.

    A process that got one of the pids in the meantime receives no signal.
    """
    members = family(process)
    if grace > 0:
        process.send(signal.SIGTERM)
        _wait_for([process], grace)
    members = list(dict.fromkeys([*members, *family(process)]))
    for member in (process, *members):
        member.send(signal.SIGKILL)
    _wait_for([process, *members], KILL_SECONDS)


def _wait_for(processes: Sequence[ProcessId], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(process.alive() for process in processes) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
