"""The settings of a continuous run: a changed file takes effect between two windows, as between two runs."""

from __future__ import annotations

import logging

from changefeed.errors import SettingsError
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.followed_file import FollowedFile, changed_settings
from changefeed.settings.pipeline import Pipeline

_log = logging.getLogger(__name__)

_OF_A_PROCESS = ("spark", "checkpoint", "commit_log")
"""Settings that a run keeps: those of its Spark session, and of the task that moves the checkpoint meanwhile."""


class FollowedSettings:
    """The pipeline with its connections, as its file has it. Without a ``file`` they stay as they are."""

    def __init__(self, connections: PipelineConnections, file: FollowedFile | None = None) -> None:
        self.connections = connections
        self._file = file
        self._new: Pipeline | None = None

    def have_changed(self) -> bool:
        """Whether the file has other settings, which `apply` uses. Costs some `stat`."""
        if self._file is not None and (new := self._file.read_changed()) is not None:
            self._new = new
        return self._new is not None

    def apply(self) -> bool:
        """From now on use the settings of the file; return False if only another run can do that, and this one ends.

        Then the run keeps all of its settings: no window has some of the file's and some that it has no longer.
        """
        if not self.have_changed() or self._new is None:
            return True
        old, new, self._new = self.connections, self._new, None
        changed = changed_settings(old.pipeline, new)
        names, file = ", ".join(f"`{name}`" for name in changed), new.display_file
        if why := _find_end(old.pipeline, new):
            _log.warning("%s was changed (%s): %s. This run ends, and the next run has the changes", file, names, why)
            return False
        connections = PipelineConnections(new, old.lookup, old.answer_limits)
        try:
            _ = (connections.kafka, connections.registry, connections.column_rules, connections.transform_calls)
        except SettingsError as error:  # the job of the next run gets what the new settings name
            _log.warning(
                "%s was changed (%s), and this run does not have what it names: %s. This run ends, and the next run "
                "looks it up again",
                *(file, names, error),
            )
            return False
        self.connections = connections
        if changed:
            _log.info("%s was changed (%s): the next window has the new settings", file, names)
        return True


def _find_end(old: Pipeline, new: Pipeline) -> str:
    """Why only another run can have the ``new`` settings; '' if this one can."""
    if new.windows is None:
        return "without `windows` a run publishes what it finds, and ends"
    kept = [name for name in _OF_A_PROCESS if getattr(old, name) != getattr(new, name)]
    if old.source.connection != new.source.connection:
        kept.append("source.connection")
    if old.kafka.connection != new.kafka.connection:
        kept.append("kafka.connection")
    return f"a run keeps its {', '.join(f'`{name}`' for name in kept)}" if kept else ""
