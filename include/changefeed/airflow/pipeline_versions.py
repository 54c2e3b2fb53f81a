"""The settings of a continuous run in its task: the job may change them between two windows, as their file does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from changefeed.errors import SettingsError
from changefeed.model.manifest import Manifest
from changefeed.settings.file import load_pipeline
from changefeed.settings.pipeline import Pipeline


class PipelineVersions:
    """The settings of a pipeline since the task began, as far as the task has read them."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._versions = [pipeline]

    def read(self) -> Pipeline:
        """The settings of the file; the last valid ones if it is wrong or missing, as the job uses them then."""
        try:
            found = load_pipeline(self._versions[-1].name)
        except SettingsError:
            return self._versions[-1]
        if found != self._versions[-1]:
            self._versions.append(found)
        return self._versions[-1]

    def group(self, manifests: Iterable[Manifest]) -> Iterator[tuple[Pipeline, list[Manifest]]]:
        """The windows with the settings under which they were published, in order. Windows under settings that the task
        has not read are with the last ones."""
        from changefeed.settings.message_rules import message_rules, rules_digest  # loads records of the commit log

        by_rules = {rules_digest(message_rules(version)): version for version in self._versions}
        for rules, group in groupby(manifests, lambda manifest: manifest.rules if manifest.rules in by_rules else None):
            yield self._versions[-1] if rules is None else by_rules[rules], list(group)
