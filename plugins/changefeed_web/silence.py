"""Servers that kept silent a moment ago: a request does not wait for them again, whichever pipeline it is about."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from changefeed.airflow.connections import server_connections
from changefeed.errors import BrokerUnavailableError, ChangefeedError, SourceUnavailableError
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.pipeline import Pipeline
from changefeed.source.mysql.session import Session

SILENT_SECONDS = 10.0

_silent: dict[str, tuple[float, ChangefeedError]] = {}
"""By connection id: since when, and what was said of it."""


@contextmanager
def unless_silent(connection_id: str) -> Iterator[None]:
    """Raise what the last request met that asked the server of this connection in vain, or keep what this one meets."""
    since, error = _silent.get(connection_id, (0.0, None))
    if error is not None and time.monotonic() - since < SILENT_SECONDS:
        raise error.with_traceback(None)
    try:
        yield
    except (SourceUnavailableError, BrokerUnavailableError) as unavailable:
        _silent[connection_id] = (time.monotonic(), unavailable)
        raise


class AskedOnce(PipelineConnections):
    """`PipelineConnections` whose source is left alone for a while when it kept silent."""

    @classmethod
    def of(cls, pipeline: Pipeline) -> "AskedOnce":
        """As the API server reaches them."""
        connections = server_connections(pipeline)
        return cls(connections.pipeline, connections.lookup, connections.patience)

    def session(self) -> Session:
        """As `PipelineConnections.session`, which waits."""
        with unless_silent(self.pipeline.source.connection):
            return super().session()
