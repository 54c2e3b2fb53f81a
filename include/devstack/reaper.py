"""Ends the servers of test sessions that were killed."""

from __future__ import annotations

import shutil
from pathlib import Path

from devstack.home import Home
from devstack.identity import ProcessId
from devstack.process import RunRecord, end


def records(home: Home) -> dict[Path, RunRecord]:
    """All records of started processes, by their file; those of processes that are gone included."""
    known = {path: RunRecord.read(path) for path in sorted(home.run.glob("*.json"))}
    return {path: record for path, record in known.items() if record is not None}


def end_orphans(home: Home) -> list[str]:
    """End the processes whose owner is gone, and remove the folders of such test sessions; their names.

    Their data are not needed, so they are killed at once.
    """
    ended = []
    for path, record in records(home).items():
        if record.orphaned():
            end(record.process, grace=0)
            path.unlink(missing_ok=True)
            ended.append(record.name)
    for folder in home.test.glob("*-*"):
        pid = folder.name.partition("-")[0]
        if pid.isdigit() and ProcessId.of(int(pid)) is None:
            shutil.rmtree(folder, ignore_errors=True)
    return ended
