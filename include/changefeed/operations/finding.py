"""What a check says: lines that are OK, WARN or FAIL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from changefeed.errors import ChangefeedError


class Level(StrEnum):
    """How a line of a check is meant: a run is as the pipeline says, or otherwise than it may seem, or refused."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Finding:
    """A line of a check. One that fails begins with the class of the error that a run ends with."""

    level: Level
    text: str

    def __str__(self) -> str:
        return f"{self.level:4} {self.text}"


def ok(text: str) -> Finding:
    """What is right."""
    return Finding(Level.OK, text)


def warn(text: str) -> Finding:
    """What no run is refused for, and somebody may want to know before it."""
    return Finding(Level.WARN, text)


def fail(error: ChangefeedError) -> Finding:
    """What a run is refused for, or what it does otherwise than the pipeline's YAML says."""
    return Finding(Level.FAIL, f"{type(error).__name__}: {error}")


def summary(findings: Iterable[Finding]) -> str:
    """How many lines there are of each level."""
    counts = Counter(finding.level for finding in findings)
    return ", ".join(f"{counts[level]} {level}" for level in Level)
