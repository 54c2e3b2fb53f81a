"""Asks each Kafka cluster once whether it answers, for a check of many pipelines."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock

from changefeed.kafka.connection import KafkaConnection
from changefeed.pipeline.connections import PipelineConnections


class AskedClusters:
    """The Kafka clusters of a check, by connection id, and the error of each that does not answer."""

    def __init__(self) -> None:
        self._answers: dict[str, Future[None]] = {}
        self._lock = Lock()

    def check(self, connection_id: str, ask: Callable[[], None]) -> None:
        """Call ``ask`` if this is the first call for ``connection_id``. The others wait, and raise the same error."""
        with self._lock:
            is_first = connection_id not in self._answers
            answer = self._answers.setdefault(connection_id, Future())
        if is_first:
            try:
                ask()
            except BaseException as error:
                answer.set_exception(error)
            else:
                answer.set_result(None)
        answer.result()


@dataclass(frozen=True, repr=False)
class AskedConnections(PipelineConnections):
    """`PipelineConnections` of a check; if the Kafka cluster does not answer, that is found once for ``clusters``."""

    clusters: AskedClusters = field(default_factory=AskedClusters, compare=False)

    @cached_property
    def kafka(self) -> KafkaConnection:
        """As `PipelineConnections.kafka`. Raises what `KafkaConnection.admin` raises."""
        reached = super().kafka

        def ask() -> None:
            with reached.admin():
                pass

        self.clusters.check(self.pipeline.kafka.connection, ask)
        return reached
