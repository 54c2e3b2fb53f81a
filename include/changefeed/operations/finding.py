"""The findings of a check: lines with a level, OK, WARN or FAIL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from changefeed.errors import ChangefeedError


class Level(StrEnum):
    """The level of a finding.

    - OK: as the pipeline's settings say.
    - WARN: does not stop a run, but may be unexpected.
    - FAIL: a run would fail, or would not do what the pipeline's YAML says.
    """

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Finding:
    """A line of a check. The text of a failure begins with the class of the error that a run would raise."""

    level: Level
    text: str

    def __str__(self) -> str:
        return f"{self.level:4} {self.text}"


def ok(text: str) -> Finding:
    """A finding that needs no action."""
    return Finding(Level.OK, text)


def warn(text: str) -> Finding:
    """A finding that does not stop a run, but that the user should know."""
    return Finding(Level.WARN, text)


def fail(error: ChangefeedError) -> Finding:
    """A finding for ``error``: a run would fail, or would not do what the pipeline's YAML says."""
    return Finding(Level.FAIL, f"{type(error).__name__}: {error}")


def summary(findings: Iterable[Finding]) -> str:
    """The number of findings of each level, as a text."""
    counts = Counter(finding.level for finding in findings)
    return ", ".join(f"{counts[level]} {level}" for level in Level)


@dataclass(frozen=True)
class Report:
    """The findings of a pipeline."""

    pipeline: str
    findings: list[Finding] = field(default_factory=list)

    def add(self, finding: Finding) -> None:
        """Append a finding."""
        self.findings.append(finding)

    @property
    def wrong(self) -> list[str]:
        """The texts of the findings that fail."""
        return self._texts(Level.FAIL)

    def to_json(self) -> dict[str, Any]:
        """As plain values: all lines in order, and by level."""
        return {
            "pipeline": self.pipeline,
            "right": self._texts(Level.OK),
            "warnings": self._texts(Level.WARN),
            "wrong": self.wrong,
            "lines": [{"level": str(finding.level), "text": finding.text} for finding in self.findings],
            "summary": summary(self.findings),
        }

    def _texts(self, level: Level) -> list[str]:
        return [finding.text for finding in self.findings if finding.level is level]
