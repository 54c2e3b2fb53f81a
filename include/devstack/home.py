"""Where devstack keeps what it downloads and runs."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
"""The project's folder: the one that holds `include/`, `dags/` and `tests/`."""

VARIABLE = "CHANGEFEED_DEVSTACK_DIR"


@dataclass(frozen=True)
class Home:
    """The folder of one devstack. Everything below it can be deleted when nothing runs."""

    root: Path

    @classmethod
    def default(cls) -> Home:
        """`<project>/.devstack`, or what the environment variable CHANGEFEED_DEVSTACK_DIR names."""
        chosen = os.environ.get(VARIABLE)
        return cls(Path(chosen).expanduser().resolve() if chosen else PROJECT / ".devstack")

    @property
    def downloads(self) -> Path:
        """Installed software; kept by `stop`, removed by `clean --downloads`."""
        return self.root / "downloads"

    @property
    def run(self) -> Path:
        """One record for each process that was started and not yet stopped."""
        return self.root / "run"

    @property
    def servers(self) -> Path:
        """Data of the demo's servers, one folder each."""
        return self.root / "servers"

    @property
    def test(self) -> Path:
        """Data of the servers of test sessions, one folder for each session."""
        return self.root / "test"

    def record_of(self, directory: Path) -> Path:
        """The record file of the server whose folder is *directory*."""
        if directory.is_relative_to(self.root):
            name = "-".join(directory.relative_to(self.root).parts)
        else:
            name = f"{directory.name}-{hashlib.sha256(bytes(directory)).hexdigest()[:12]}"
        return self.run / f"{name}.json"
