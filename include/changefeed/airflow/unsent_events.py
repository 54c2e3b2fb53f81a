"""Asset events of the windows of continuous runs, also of runs that failed.

Airflow sends the events of a task when it succeeds. A continuous run that fails or is cancelled has committed windows
without events, so the next task that succeeds sends those.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowRuntimeError

from changefeed.airflow.assets import emit_events, knows_sent_events, last_sent_window
from changefeed.airflow.pipeline_versions import PipelineVersions
from changefeed.errors import ChangefeedError
from changefeed.model.checkpoint import CheckpointStore
from changefeed.model.manifest import Manifest

if TYPE_CHECKING:  # at run time it would load the clients of Kafka and MySQL in each process that parses DAGs
    from changefeed.pipeline.connections import PipelineConnections

_log = logging.getLogger(__name__)

_DAY_MS = 24 * 60 * 60 * 1000


def read_unsent(connections: PipelineConnections) -> list[Manifest]:
    """The windows in the commit log that no task has sent events for, as far as this is known now.

    A task reads them before its job, which may publish so many windows that the log merges them.
    """
    if not knows_sent_events(connections.pipeline.name):
        return []
    try:
        return _read_unsent(connections, ())
    except (ChangefeedError, AirflowRuntimeError) as error:
        _log.warning("which windows have no asset events is not known yet, after: %s", error)
        return []


def emit_unsent(
    versions: PipelineVersions,
    connections: PipelineConnections,
    store: CheckpointStore,
    kept: Sequence[Manifest] = (),
) -> list[Manifest]:
    """Emit asset events for all windows up to the checkpoint that no task has sent events for; return their manifests.

    ``kept`` are windows that `read_unsent` returned, or that this task has committed; the commit log may have merged
    them. If something cannot be read now, nothing is sent until the next run. An event may be sent twice, if two runs
    end at the same time; it names its windows.

    A task that Airflow parsed while the pipeline had no `windows` cannot read the events: it sends those of ``kept``.
    """
    name = connections.pipeline.name
    try:
        if knows_sent_events(name):
            stored = store.load(name)
            last = stored.window if stored else 0
            unsent = [each for each in _read_unsent(connections, kept) if each.window.number <= last]
        else:
            unsent = list(kept)
    except (ChangefeedError, AirflowRuntimeError) as error:
        _log.warning("asset events are left to the next run, after: %s", error)
        return []
    last = max((each.window.number for each in unsent), default=0)
    for pipeline, manifests in versions.group(unsent):
        emit_events(pipeline, manifests, last=last)
    return unsent


def _read_unsent(connections: PipelineConnections, kept: Sequence[Manifest]) -> list[Manifest]:
    """The windows of ``kept`` and of the commit log after the last window with events, in order.

    Without such a window, as after a rename, the log's windows of the last day: the log may have thousands.
    """
    from changefeed.pipeline.windows import last_stable_state

    sent, state = last_sent_window(connections.pipeline.name), last_stable_state(connections)
    since = sent if sent <= state.latest_number else 0  # the pipeline has begun anew
    numbers = [number for number in state.seals if number > since]
    if not since:
        begin_ms = int(time.time() * 1000) - _DAY_MS
        recent = (number for number in numbers if state.seals.written_at_ms(number) >= begin_ms)
        numbers = [number for number in recent if state.sealed_at_ms(number) >= begin_ms]
    windows = {number: state.seals[number] for number in numbers}
    windows |= {each.window.number: each for each in kept if each.window.number > since}
    return [windows[number] for number in sorted(windows)]
