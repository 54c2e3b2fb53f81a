"""Resource use of a process and its descendants: CPU seconds, and the largest memory of one of them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

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
