"""Commit windows: move the checkpoint over windows that are sealed in the commit log."""

from __future__ import annotations

import logging
import time
from dataclasses import replace

from changefeed.errors import AccountingError, ChangefeedError, CheckpointError, StaleCheckpointError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.model import fault_point
from changefeed.model.checkpoint import Checkpoint, CheckpointStore
from changefeed.model.manifest import Manifest
from changefeed.model.window import Window
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.open_windows import find_unfinished
from changefeed.pipeline.planned_run import PlannedRun
from changefeed.pipeline.schema_history import copy_history
from changefeed.pipeline.windows import check_not_renamed, last_stable_state

_log = logging.getLogger(__name__)


def commit(
    connections: PipelineConnections,
    window: Window,
    expected: Checkpoint,
    store: CheckpointStore,
    state: CommitLogState | None = None,
) -> Manifest:
    """Move the checkpoint from ``expected`` to the window's head; return the window's manifest, with the duration of
    the commit in seconds.

    ``state`` is the commit log's state, read after the window was sealed; with None it is read here.

    Raises AccountingError if the window is not sealed in the commit log, StaleCheckpointError if the checkpoint is not
    ``expected``. A second commit of the same window changes nothing.
    """
    began = time.monotonic()
    manifest = _sealed_manifest_of(connections, window, state or connections.commit_log().read())
    if _is_at(store.load(connections.pipeline.name), window):
        return manifest
    store.advance(expected, Checkpoint.after(window, int(time.time() * 1000), manifest.gtids))
    fault_point.reach("after_checkpoint")
    copy_history(connections, store, manifest)
    return replace(manifest, seconds={**manifest.seconds, "commit": round(time.monotonic() - began, 3)})


def commit_windows(connections: PipelineConnections, run: PlannedRun, store: CheckpointStore) -> list[Manifest]:
    """Move the checkpoint over the sealed windows of ``run``, in order; return their manifests.

    Windows before the checkpoint are included: an earlier attempt committed them, or a later run that finished them.
    Raises AccountingError if the first window is not sealed, StaleCheckpointError if the checkpoint is elsewhere.
    """
    expected = run.expected
    stored = store.load(connections.pipeline.name)
    state = connections.commit_log().read()
    manifests: list[Manifest] = []
    for window in run.windows:
        try:
            manifest = _sealed_manifest_of(connections, window, state)
        except AccountingError:
            if not manifests:
                raise
            break
        if stored is None or stored.window < window.number:
            manifest = commit(connections, window, expected, store, state)
            expected = store.load(connections.pipeline.name) or expected
        elif _is_at(stored, window):
            expected = stored
        manifests.append(manifest)
    return manifests


def commit_sealed(connections: PipelineConnections, store: CheckpointStore) -> list[Manifest]:
    """Move the checkpoint to the commit log: over a seek whose record the store does not have yet, and over all windows
    that are sealed after it. Return the manifests of these windows.

    Raises CheckpointError if the pipeline has no checkpoint, was renamed, or if sealed windows do not follow one
    another; StaleCheckpointError if the checkpoint was moved meanwhile, and again.
    """
    try:
        return _commit_sealed(connections, store)
    except StaleCheckpointError:  # the task of the run that hands over, or that takes over, has moved it
        return _commit_sealed(connections, store)


def _commit_sealed(connections: PipelineConnections, store: CheckpointStore) -> list[Manifest]:
    name = connections.pipeline.name
    stored, state = store.load(name), last_stable_state(connections)
    check_not_renamed(name, state)
    if stored is None:
        raise CheckpointError(
            f"expected a checkpoint of pipeline {name!r} in {connections.pipeline.checkpoint.place}, found none: it "
            f"was removed while a run published. Nothing was stored. `changefeed recover {name}` rebuilds it."
        )
    left = find_unfinished(stored, state, server_uuid="")  # of unfinished windows, only the sealed ones count here
    if left.end.window <= stored.window:
        return []
    manifests = [state.seals[window.number] for window in left.sealed]
    store.replace(stored, left.end)  # also back, if a seek's record leads there
    fault_point.reach("after_checkpoint")
    if manifests:
        _copy_history(connections, store, manifests[-1])
    return manifests


def _copy_history(connections: PipelineConnections, store: CheckpointStore, manifest: Manifest) -> None:
    """Copy the schema history to the store; an error is logged, as the windows are committed. The next commit copies
    it."""
    try:
        copy_history(connections, store, manifest)
    except ChangefeedError as error:
        _log.warning("the schema history was not copied to %s: %s", connections.pipeline.checkpoint.place, error)


def _is_at(checkpoint: Checkpoint | None, window: Window) -> bool:
    """Whether ``checkpoint`` is at the end of ``window``."""
    return checkpoint is not None and (checkpoint.window, checkpoint.coordinates) == (window.number, window.head)


def _sealed_manifest_of(connections: PipelineConnections, window: Window, state: CommitLogState) -> Manifest:
    """The window's manifest from the commit log; raises AccountingError if there is none, or one of another window."""
    manifest = state.seals.get(window.number)
    if manifest is None or manifest.window != window:
        raise AccountingError(
            f"window {window.number} of pipeline {connections.pipeline.name!r} ({window.start} to {window.head}) is "
            "not sealed in the commit log: it may not be in Kafka completely. The checkpoint does not move; run again."
        )
    return manifest
