"""Server processes: started in a session of their own, recorded, and stopped with all they started.

A record under `run/` holds the pid together with the time at which that process started, so that a later
`stop`, from whichever shell, never ends another process that was given the same pid.
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


@dataclass(frozen=True)
class RunRecord:
    """What is known of a started process.

    *owner* is the process that must be alive for this one to be wanted (a test session), or None for the
    servers of the demo, which outlive the command that started them.
    """

    name: str
    process: ProcessId
    log: str
    owner: ProcessId | None

    def write(self, path: Path) -> None:
        """Replace the record at *path* in one step."""
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        partial.write_text(json.dumps(asdict(self), indent=1) + "\n")
        partial.replace(path)

    @classmethod
    def read(cls, path: Path) -> RunRecord | None:
        """The record at *path*, or None if there is none (any more)."""
        try:
            fields = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        owner = ProcessId(**fields["owner"]) if fields["owner"] else None
        return cls(fields["name"], ProcessId(**fields["process"]), fields["log"], owner)

    def orphaned(self) -> bool:
        """Whether its owner is gone without having stopped it."""
        return self.owner is not None and not self.owner.alive()


class ServerProcess:
    """One server process at a time, known by its record file *record*; its output is appended to *log*."""

    def __init__(self, name: str, record: Path, log: Path, owner: ProcessId | None = None) -> None:
        self.name = name
        self.log = log
        self._record = record
        self._owner = owner
        self._child: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def running(self) -> bool:
        """Whether the recorded process is alive, whoever started it."""
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
        """Start *command*; raises ServerError if it runs already. Does not wait for it to be ready."""
        if self.running:
            raise ServerError(f"{self.name} was to be started, but it runs already (pid {self.pid}). Stop it first.")
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
        started = ProcessId.of(self._child.pid) or ProcessId(self._child.pid, "gone")
        RunRecord(self.name, started, str(self.log), self._owner).write(self._record)

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Return as soon as *ready* says so.

        Raises ServerError with the end of the log if the process ends before that, or is not ready in
        *seconds*; it is stopped then.
        """
        deadline = time.monotonic() + seconds
        while not ready():
            self.check_running()
            if time.monotonic() > deadline:
                self.kill()
                raise ServerError(
                    f"{self.name} was not ready after {seconds:.0f} s and has been stopped. {self.describe_log()}"
                )
            time.sleep(POLL_SECONDS)

    def check_running(self) -> None:
        """Raise ServerError with the end of the log if the process has ended by itself."""
        if not self.running:
            # It may have ended since its state was last asked for.
            code = self._child.poll() if self._child is not None else "unknown"
            self._forget()
            raise ServerError(f"{self.name} stopped by itself with exit code {code}. {self.describe_log()}")

    def stop(self, grace: float) -> None:
        """SIGTERM, and after *grace* seconds SIGKILL, also to all that it started. Nothing to stop is fine."""
        record = RunRecord.read(self._record)
        if record is not None:
            end(record.process, grace)
        self._forget()

    def kill(self) -> None:
        """SIGKILL, at once, to the process and all that it started."""
        self.stop(grace=0)

    def log_text(self) -> str:
        """The log since the process was last started from here."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode(errors="replace")

    def describe_log(self) -> str:
        """The end of the log, introduced by where it is."""
        lines = self.log_text().splitlines()[-TAIL_LINES:]
        return f"The end of {self.log}:\n" + ("\n".join(lines) or "(empty)")

    def _forget(self) -> None:
        if self._child is not None:
            self._child.wait()
            self._child = None
        self._record.unlink(missing_ok=True)


class Server(Protocol):
    """What the devstack starts and stops."""

    def start(self) -> None: ...
    def stop(self, grace: float = ...) -> None: ...


S = TypeVar("S", bound=Server)


@contextmanager
def started(server: S) -> Iterator[S]:
    """``server``, up and answering; killed at the end, whatever happens: nobody needs its data then."""
    server.start()
    try:
        yield server
    finally:
        server.stop(grace=0)


def end(process: ProcessId, grace: float) -> None:
    """End *process* with SIGTERM, then everything of its family that is left with SIGKILL.

    A pid that meanwhile belongs to somebody else is left alone.
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
