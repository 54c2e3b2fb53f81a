"""Whose progress it is, where something publishes beside a pipeline's own windows."""

from __future__ import annotations

import hashlib
import re


def run_identity(pipeline: str, operation: str, run: str) -> str:
    """The identity of one run of an operation: its own for each run, and the same for a retry of that run.

    It is part of transactional ids and of keys of the commit log, plainly written: where characters of a run's id are
    replaced for that, a digest keeps two of those apart.
    """
    plain = re.sub(r"[^a-zA-Z0-9_-]+", "_", run)
    digest = "" if plain == run else f"-{hashlib.sha256(run.encode()).hexdigest()[:8]}"
    return f"{pipeline}.{operation}.{plain}{digest}"


def backfill_identity(pipeline: str, run: str) -> str:
    """Whose progress a backfill's is; see `run_identity`."""
    return run_identity(pipeline, "backfill", run)


def snapshot_identity(pipeline: str, run: str) -> str:
    """Whose progress a snapshot's is; see `run_identity`."""
    return run_identity(pipeline, "snapshot", run)
