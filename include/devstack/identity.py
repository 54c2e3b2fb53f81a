"""Which process a pid means: pids are used again, a pid with its start time is not."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_BOOT = _PROC / "sys/kernel/random/boot_id"


@dataclass(frozen=True)
class ProcessId:
    """A process for certain: its pid, and when it started."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """The process that has *pid* now; None if there is none, or only its exit status is left."""
        started = _started(pid)
        return None if started is None else cls(pid, started)

    @classmethod
    def own(cls) -> ProcessId:
        """The calling process."""
        return cls(os.getpid(), _started(os.getpid()) or "")

    def alive(self) -> bool:
        """Whether this very process still runs."""
        return _started(self.pid) == self.started

    def send(self, number: int) -> None:
        """Send the signal, unless this process is gone."""
        if self.alive():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return


@dataclass(frozen=True)
class _Stat:
    """What /proc/<pid>/stat says that we need."""

    pid: int
    state: str
    parent: int
    session: int
    ticks: str


def family(leader: ProcessId) -> list[ProcessId]:
    """The processes that *leader* started and theirs, and those of its session, without itself.

    The session is searched also when its leader is gone: no pid is given out again while a session has it.
    """
    stats = [stat for stat in _all_stats() if stat.state != "Z"]
    taken_over = any(stat.pid == leader.pid for stat in stats) and not leader.alive()
    if taken_over:
        return []
    wanted = {leader.pid}
    while True:
        more = {stat.pid for stat in stats if stat.parent in wanted or stat.session == leader.pid} - wanted
        if not more:
            break
        wanted |= more
    members = (ProcessId.of(pid) for pid in sorted(wanted - {leader.pid, os.getpid()}))
    return [process for process in members if process is not None]


def _started(pid: int) -> str | None:
    if not _BOOT.exists():
        done = subprocess.run(
            ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        state, _, started = done.stdout.strip().partition(" ")
        return started.strip() if started and not state.startswith("Z") else None
    stat = _stat(pid)
    return None if stat is None or stat.state in "ZX" else f"{_BOOT.read_text().strip()}/{stat.ticks}"


def _all_stats() -> Iterator[_Stat]:
    for folder in _PROC.glob("[0-9]*"):
        stat = _stat(int(folder.name))
        if stat is not None:
            yield stat


def _stat(pid: int) -> _Stat | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError, NotADirectoryError):
        return None
    # The program's name stands in parentheses and may hold anything; the fields after it are numbers.
    fields = text[text.rindex(")") + 2 :].split()
    return _Stat(pid, fields[0], int(fields[1]), int(fields[3]), fields[19])
