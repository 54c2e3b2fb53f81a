"""Identifies processes by pid and start time, because pids are reused."""

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
    """A process: its pid, and its start time."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """The process that has *pid* now; None if there is none, or if it is a zombie."""
        started = _start_time(pid)
        return None if started is None else cls(pid, started)

    @classmethod
    def own(cls) -> ProcessId:
        """The calling process."""
        return cls(os.getpid(), _start_time(os.getpid()) or "")

    def alive(self) -> bool:
        """Whether the process still runs; False if another process has its pid."""
        return _start_time(self.pid) == self.started

    def send(self, number: int) -> None:
        """Send the signal *number*, unless the process has ended."""
        if self.alive():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return


@dataclass(frozen=True)
class _Stat:
    """The fields of /proc/<pid>/stat that are used."""

    pid: int
    state: str
    parent: int
    session: int
    ticks: str


def family(leader: ProcessId) -> list[ProcessId]:
    """The descendants of *leader* and the processes of its session, without *leader* itself.

    Processes of the session are found even if its leader has ended: the kernel does not reuse the leader's pid while
    the session exists.
    """
    stats = [stat for stat in _all_stats() if stat.state != "Z"]
    taken_over = any(stat.pid == leader.pid for stat in stats) and not leader.alive()
    if taken_over:
        return []
    pids = {leader.pid}
    while True:
        more = {stat.pid for stat in stats if stat.parent in pids or stat.session == leader.pid} - pids
        if not more:
            break
        pids |= more
    members = (ProcessId.of(pid) for pid in sorted(pids - {leader.pid, os.getpid()}))
    return [process for process in members if process is not None]


def _start_time(pid: int) -> str | None:
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
    # The program's name is in parentheses and may contain any characters; the fields after it are numbers.
    fields = text[text.rindex(")") + 2 :].split()
    return _Stat(pid, fields[0], int(fields[1]), int(fields[3]), fields[19])
