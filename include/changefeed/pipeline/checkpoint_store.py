"""Opens the checkpoint store that a pipeline's settings name. Only the client of this store is imported."""

from __future__ import annotations

from collections.abc import Callable

from changefeed.model.checkpoint import CheckpointStore
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.site import load_site


def checkpoint_store(connections: PipelineConnections, variables: Callable[[], CheckpointStore]) -> CheckpointStore:
    """The store of the pipeline's checkpoint; ``variables`` opens the caller's store of Airflow Variables.

    Raises SettingsError for a connection that does not exist or cannot be read, StateStoreUnavailableError.
    """
    settings, topics = connections.pipeline.checkpoint, connections.pipeline.topics
    if settings.store == "kafka":
        from changefeed.state.kafka_store import KafkaCheckpointStore

        return KafkaCheckpointStore(connections.kafka, topics.replication_factor, create_topics=topics.create)
    if settings.connection is not None:
        from changefeed.state.table_store import TableCheckpointStore

        uri = connections.lookup(settings.connection)
        return TableCheckpointStore(uri, load_site().password_source(settings.connection))
    return variables()
