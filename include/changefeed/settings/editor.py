"""The rights of a user who writes pipelines over REST, and the connections that a pipeline uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import compile_routes


@dataclass(frozen=True)
class Editor:
    """The rights of the user of a REST call."""

    may_edit: Callable[[str], bool]
    """Whether the user may edit the pipeline of that name."""
    may_edit_connection: Callable[[str], bool]
    """Whether the user may edit the connection of that id in Airflow, and Airflow reads it from there."""

    def foreign_connections(self, *pipelines: Pipeline | None) -> list[str]:
        """The connections of ``pipelines`` that the user may not edit.

        A user who may edit all of them can send each login and each row to another server, with or without changefeed.
        """
        used = dict.fromkeys(name for pipeline in pipelines if pipeline for name in used_connections(pipeline))
        return [name for name in used if not self.may_edit_connection(name)]


def used_connections(pipeline: Pipeline) -> Iterator[str]:
    """Ids of the connections from which the pipeline reads rows or secrets, or to which it writes rows."""
    yield pipeline.source.connection
    yield pipeline.kafka.connection
    registry = compile_routes(pipeline).registry
    secrets = [where for _, where in pipeline.columns.secrets]
    secrets += [where for transform in pipeline.transforms for where in transform.secrets.values()]
    named = [pipeline.checkpoint.connection, registry, *(where.connection for where in secrets)]
    yield from (name for name in named if name is not None)
    yield from (follower.connection for follower in pipeline.followers)
