"""Identities of the progress of backfills, snapshots and returns of parked tables."""

from __future__ import annotations

import hashlib
import re


def run_identity(pipeline: str, operation: str, run: str) -> str:
    """The identity of one run of an operation. A retry of the run has the same identity.

    Transactional ids and keys of the commit log include it. Characters of the run's id other than letters, digits, `-`
    and `_` are replaced; then a digest of the id keeps the identity unique.
    """
    plain = re.sub(r"[^a-zA-Z0-9_-]+", "_", run)
    digest = "" if plain == run else f"-{hashlib.sha256(run.encode()).hexdigest()[:8]}"
    return f"{pipeline}.{operation}.{plain}{digest}"


def backfill_identity(pipeline: str, run: str) -> str:
    """The identity of a backfill; see `run_identity`."""
    return run_identity(pipeline, "backfill", run)


def unpark_identity(pipeline: str, run: str) -> str:
    """The identity of the return of a parked table; see `run_identity`."""
    return run_identity(pipeline, "unpark", run)


def snapshot_identity(pipeline: str, run: str) -> str:
    """The identity of a snapshot; see `run_identity`."""
    return run_identity(pipeline, "snapshot", run)
