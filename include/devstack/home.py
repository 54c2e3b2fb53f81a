"""The folders of devstack's downloads and servers."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
"""The project's folder, with `include/`, `dags/` and `tests/`."""

VARIABLE = "CHANGEFEED_DEVSTACK_DIR"


@dataclass(frozen=True)
class Home:
    """The folder of one devstack. It may be deleted when no server runs."""

    root: Path

    @classmethod
    def default(cls) -> Home:
        """The folder that CHANGEFEED_DEVSTACK_DIR names; default: `<project>/.devstack`."""
        chosen = os.environ.get(VARIABLE)
        return cls(Path(chosen).expanduser().resolve() if chosen else PROJECT / ".devstack")

    @property
    def downloads(self) -> Path:
        """Installed software; `clean --downloads` removes it."""
        return self.root / "downloads"

    @property
    def run(self) -> Path:
        """Record files, one for each started process that is not yet stopped."""
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
