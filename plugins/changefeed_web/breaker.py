"""A circuit breaker for sources and Kafka clusters: after a timeout, requests fail at once for a while.

There is one for each connection, so pipelines that use the same connection share it.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from functools import cached_property

from changefeed.airflow.connections import server_connections
from changefeed.errors import BrokerUnavailableError, ChangefeedError, SourceUnavailableError
from changefeed.kafka.connection import KafkaConnection
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.pipeline import Pipeline
from changefeed.source.mysql.session import Session

OPEN_SECONDS = 10.0
"""How long requests fail after an error, without a connection attempt."""

_failures: dict[str, tuple[float, ChangefeedError]] = {}
"""By connection id: monotonic time and error of the last failure."""


@contextmanager
def circuit_breaker(connection_id: str) -> Iterator[None]:
    """Run the block, unless the server was unavailable less than `OPEN_SECONDS` ago: then raise that error again.

    An error of the block that means that the server is unavailable is stored for later calls.
    """
    since, error = _failures.get(connection_id, (0.0, None))
    if error is not None and time.monotonic() - since < OPEN_SECONDS:
        raise error.with_traceback(None)
    try:
        yield
    except (SourceUnavailableError, BrokerUnavailableError) as unavailable:
        _failures[connection_id] = (time.monotonic(), unavailable)
        raise


@dataclass(frozen=True, repr=False)
class GuardedKafkaConnection(KafkaConnection):
    """`KafkaConnection` with the circuit breaker of the connection ``id``."""

    id: str = ""

    @contextmanager
    def kafka_python_errors(self) -> Iterator[None]:
        """As `KafkaConnection.kafka_python_errors`, with the circuit breaker."""
        with circuit_breaker(self.id), super().kafka_python_errors():
            yield


class GuardedConnections(PipelineConnections):
    """`PipelineConnections` with circuit breakers for source and Kafka."""

    @classmethod
    def of(cls, pipeline: Pipeline) -> "GuardedConnections":
        """The connections of ``pipeline``, for the API server."""
        connections = server_connections(pipeline)
        return cls(connections.pipeline, connections.lookup, connections.answer_limits)

    @cached_property
    def kafka(self) -> KafkaConnection:
        """As `PipelineConnections.kafka`."""
        reached = super().kafka
        values = {field.name: getattr(reached, field.name) for field in fields(reached)}
        return GuardedKafkaConnection(**values, id=self.pipeline.kafka.connection)

    @contextmanager
    def session(self) -> Iterator[Session]:
        """As `PipelineConnections.session`, with the circuit breaker."""
        with ExitStack() as opened:
            with circuit_breaker(self.pipeline.source.connection):
                session = opened.enter_context(super().session())
            yield session
