"""Ends servers of test sessions that were killed."""

from __future__ import annotations

import shutil
from pathlib import Path

from devstack.home import Home
from devstack.identity import ProcessId
from devstack.process import RunRecord, end_process


def records(home: Home) -> dict[Path, RunRecord]:
    """All records of processes by their file, including records of ended processes."""
    known = {path: RunRecord.read(path) for path in sorted(home.run.glob("*.json"))}
    return {path: record for path, record in known.items() if record is not None}


def end_orphans(home: Home) -> list[str]:
    """Kill the processes whose owner has ended, and remove the folders of ended test sessions.

    Returns the names of the processes.
    """
    ended = []
    for path, record in records(home).items():
        if record.is_orphaned():
            end_process(record.process, grace=0)
            path.unlink(missing_ok=True)
            ended.append(record.name)
    for folder in home.test.glob("*-*"):
        pid = folder.name.partition("-")[0]
        if pid.isdigit() and ProcessId.of(int(pid)) is None:
            shutil.rmtree(folder, ignore_errors=True)
    return ended
