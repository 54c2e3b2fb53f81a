"""commit: a window's seal is in the commit log, so the checkpoint may move."""

from __future__ import annotations

import time
from dataclasses import replace

from changefeed import fault_point
from changefeed.checkpoint import Checkpoint, CheckpointStore
from changefeed.endpoints.endpoints import Endpoints
from changefeed.errors import AccountingError
from changefeed.kafka.commit_log import CommitLogState
from changefeed.manifest import Manifest
from changefeed.runs.planned_run import PlannedRun
from changefeed.runs.schema_history import copy_history
from changefeed.window import Window


def commit(
    endpoints: Endpoints,
    window: Window,
    expected: Checkpoint,
    store: CheckpointStore,
    state: CommitLogState | None = None,
) -> Manifest:
    """Move the checkpoint from ``expected`` to the window's head; the manifest that proves it may, with its seconds.

    ``state`` is what the commit log says since the window was sealed, where that is known already.

    Raises AccountingError when the window is not sealed in the commit log, StaleCheckpointError when the checkpoint
    is not ``expected``. A second commit of the same window changes nothing.
    """
    began = time.monotonic()
    manifest = _sealed(endpoints, window, state or endpoints.commit_log().read())
    if _is_at(store.load(endpoints.pipeline.name), window):
        return manifest
    store.advance(expected, Checkpoint.after(window, int(time.time() * 1000), manifest.gtids))
    fault_point.reached("after_checkpoint")
    copy_history(endpoints, store, manifest)
    return replace(manifest, seconds={**manifest.seconds, "commit": round(time.monotonic() - began, 3)})


def commit_windows(endpoints: Endpoints, run: PlannedRun, store: CheckpointStore) -> list[Manifest]:
    """Move the checkpoint over the sealed windows of ``run``, in order; return the manifests of all of them.

    Those that are behind the checkpoint already are among them: an earlier attempt committed them, or a later run that
    found them unfinished. Raises AccountingError when not even the first is sealed, StaleCheckpointError when the
    checkpoint is somewhere else.
    """
    expected = run.expected
    stored = store.load(endpoints.pipeline.name)
    state = endpoints.commit_log().read()
    manifests: list[Manifest] = []
    for window in run.windows:
        try:
            manifest = _sealed(endpoints, window, state)
        except AccountingError:
            if not manifests:
                raise
            break
        if stored is None or stored.window < window.number:
            manifest = commit(endpoints, window, expected, store, state)
            expected = store.load(endpoints.pipeline.name) or expected
        elif _is_at(stored, window):
            expected = stored
        manifests.append(manifest)
    return manifests


def _is_at(checkpoint: Checkpoint | None, window: Window) -> bool:
    """Whether ``checkpoint`` is the one that commits ``window``."""
    return checkpoint is not None and (checkpoint.window, checkpoint.coordinates) == (window.number, window.head)


def _sealed(endpoints: Endpoints, window: Window, state: CommitLogState) -> Manifest:
    """The window's manifest out of the commit log; raises AccountingError where that has none, or another's."""
    manifest = state.seals.get(window.number)
    if manifest is None or manifest.window != window:
        raise AccountingError(
            f"window {window.number} of pipeline {endpoints.pipeline.name!r} ({window.start} to {window.head}) is not "
            "sealed in the commit log: not all of it is known to be in Kafka. The checkpoint stays; run again."
        )
    return manifest
