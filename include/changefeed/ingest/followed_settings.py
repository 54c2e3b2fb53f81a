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
    """The pipeline with its connections, as its file has it, except for settings of the process. Without a ``file``
    they stay as they are."""

    def __init__(self, connections: PipelineConnections, file: FollowedFile | None = None) -> None:
        self.connections = connections
        self._file = file
        self._seen = connections.pipeline
        """The file's last settings; the run may use others, which it keeps."""
        self._new: Pipeline | None = None

    def have_changed(self) -> bool:
        """Whether the file has other settings, which `apply` uses. Costs some `stat`."""
        if self._file is not None and (new := self._file.read_changed()) is not None:
            self._new = new
        return self._new is not None

    def look_now(self) -> None:
        """Wait until it is known whether the file has other settings, also if it was written a moment ago."""
        if self._file is not None and (new := self._file.read_now()) is not None:
            self._new = new

    def apply(self) -> bool:
        """From now on use the settings of the file; return False if only another run can do that, and this one ends.

        Then the run keeps all of its settings: no window has some of the file's and some that it has no longer.
        """
        if not self.have_changed() or self._new is None:
            return True
        old, new, self._new = self.connections, self._new, None
        changed, self._seen = changed_settings(self._seen, new), new
        kept = {name: getattr(old.pipeline, name) for name in _OF_A_PROCESS}
        connections = PipelineConnections(new.model_copy(update=kept), old.lookup, old.answer_limits)
        if why := _find_end(old, connections):
            _log.warning(
                "%s was changed (%s): %s. This run ends, and the next run has the changes: trigger the DAG, or begin "
                "another run, to go on at once",
                *(new.display_file, _quote(changed), why),
            )
            return False
        self.connections = connections
        if later := [name for name in changed if name in kept]:
            _log.warning("%s was changed (%s): this counts from the next run on", new.display_file, _quote(later))
        if now := [name for name in changed if name not in kept]:
            _log.info("%s was changed (%s): the next window has the new settings", new.display_file, _quote(now))
        return True


def _find_end(old: PipelineConnections, new: PipelineConnections) -> str:
    """Why only another run can have the ``new`` settings; '' if this one can."""
    if new.pipeline.windows is None:
        return "without `windows` a run publishes what it finds, and ends"
    if old.pipeline.source.connection != new.pipeline.source.connection:
        return "a run keeps its `source.connection`"
    if old.pipeline.kafka.connection != new.pipeline.kafka.connection:
        return "a run keeps its `kafka.connection`"
    try:
        _ = (new.kafka, new.registry, new.column_rules, new.transform_calls)
    except SettingsError as error:  # the job of the next run gets what the new settings name
        return f"this run does not have what it names: {error}"
    return ""


def _quote(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
