"""Resource use of a process and its descendants: CPU seconds, and the largest memory of one of them."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Event, Thread

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(root: int) -> float:
    """CPU seconds of the process ``root`` and its descendants, including ended ones."""
    return sum(sum(map(int, fields[11:15])) for fields in family(root).values()) / TICKS


def cpu_by_kind(root: int) -> dict[str, float]:
    """As `cpu_seconds`, of the driver, its JVM, and Spark's Python workers with what started them."""
    found: dict[str, float] = {}
    for pid, fields in family(root).items():
        with contextlib.suppress(OSError):
            who = _kind(root, pid, Path(f"/proc/{pid}/comm").read_text().strip())
            found[who] = found.get(who, 0.0) + sum(map(int, fields[11:15])) / TICKS
    return found


def _kind(root: int, pid: int, name: str) -> str:
    return "driver" if pid == root else "JVM" if name == "java" else "worker"


class Meter:
    """CPU seconds of several processes and their descendants, since its creation."""

    def __init__(self, *roots: int | None) -> None:
        self._roots = [root or 0 for root in roots]
        self._before = [cpu_seconds(root) for root in self._roots]

    def used(self) -> tuple[float, ...]:
        """Of each of them."""
        return tuple(cpu_seconds(root) - before for root, before in zip(self._roots, self._before, strict=True))


def adopt_orphans() -> None:
    """Make this process the parent of each descendant whose parent ends (prctl, PR_SET_CHILD_SUBREAPER). Such an orphan
    stays in /proc with its CPU time when it ends, because nobody waits for it."""
    ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)


class FamilyMeter:
    """CPU seconds in a block of the processes ``roots`` and their descendants, also of those for which nobody waits.

    Call `adopt_orphans` first, and start the block when no orphan is left that counts. Spark's daemon of Python workers
    ignores SIGCHLD, so the kernel adds the time of an ended worker to nobody: it counts as it was last seen, a quarter
    of a second before its end, when it waits for tasks.

    ``chosen`` selects processes by their command line, whose sum is `used_by_chosen`, as they were last seen.
    """

    def __init__(self, roots: Iterable[int], chosen: Callable[[bytes], bool]) -> None:
        self._roots, self._chosen = list(roots), chosen
        self._known = _children(os.getpid())
        self._seen: dict[int, float] = {}
        self._is_chosen: dict[int, bool] = {}
        self._unwaited: set[int] = set()
        self._ended = Event()
        self.used = self.used_by_chosen = 0.0

    def __enter__(self) -> FamilyMeter:
        self._before, self._chosen_before = self._sum(), self._sum_of_chosen()
        self._thread = Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.used = self._sum() - self._before
        self.used_by_chosen = self._sum_of_chosen() - self._chosen_before

    def _watch(self) -> None:
        while not self._ended.wait(0.25):
            self._look()

    def _look(self) -> dict[int, list[str]]:
        living: dict[int, list[str]] = {}
        for root in (*self._roots, *(_children(os.getpid()) - self._known)):
            living |= family(root)
        for pid, fields in living.items():
            self._seen[pid] = sum(map(int, fields[11:13])) / TICKS
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                if command:  # an ended process has none
                    self._is_chosen[pid] = self._chosen(command)
                if b"spark.daemon" in command and command == Path(f"/proc/{fields[1]}/cmdline").read_bytes():
                    self._unwaited.add(pid)
        return living

    def _sum(self) -> float:
        living = self._look()
        waited = sum(sum(map(int, fields[11:15])) for fields in living.values()) / TICKS
        return waited + sum(self._seen[pid] for pid in self._unwaited - set(living))

    def _sum_of_chosen(self) -> float:
        return sum(seconds for pid, seconds in self._seen.items() if self._is_chosen.get(pid))


def _children(parent: int) -> set[int]:
    return {pid for pid, fields in family(parent).items() if int(fields[1]) == parent}


def forget_peaks(root: int) -> None:
    """Reset the values of `peaks`."""
    for pid in family(root):
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")


def peaks(root: int) -> dict[str, int]:
    """The most megabytes that the driver, its JVM and the largest of Spark's Python workers had, of those that live."""
    found: dict[str, int] = {}
    for pid in family(root):
        with contextlib.suppress(OSError, KeyError):  # it has ended
            status = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            who = _kind(root, pid, status["Name"])
            found[who] = max(found.get(who, 0), int(status["VmHWM"].split()[0]) >> 10)
    return found


def family(root: int) -> dict[int, list[str]]:
    """The fields of /proc/PID/stat after the name, of ``root`` and its descendants."""
    fields: dict[int, list[str]] = {}
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                fields[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[int(folder.name)][1]), []).append(int(folder.name))
    family, left = {}, [root]
    while left:
        pid = left.pop()
        if pid in fields:
            family[pid] = fields[pid]
        left += children.get(pid, [])
    return family
