"""A continuous run that takes over from an older one and hands over to a newer one, as that of Airflow's task, with the
pipeline's own Spark. Argument: the pipeline's name. It prints each sealed window."""

from __future__ import annotations

import logging
import sys
from typing import Any, cast

from changefeed.ingest.checkpoint_mover import CheckpointMover
from changefeed.ingest.continuous import ingest_continuously
from changefeed.ingest.followed_settings import FollowedSettings
from changefeed.ingest.handover import Handover
from changefeed.model.connection import from_environment
from changefeed.pipeline.checkpoint_store import checkpoint_store
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.plan import plan
from changefeed.settings.file import load_pipeline
from changefeed.spark.session import session


def main(name: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kafka").setLevel(logging.ERROR)
    pipeline = load_pipeline(name)
    connections = PipelineConnections(pipeline, from_environment)
    store = checkpoint_store(connections, cast(Any, None))
    planned = plan(connections, store)
    with (
        session(pipeline, "changefeed.ingest.continuous") as spark,
        CheckpointMover(connections, store, every_seconds=1),
    ):
        for manifest in ingest_continuously(
            spark, FollowedSettings(connections), planned.expected, handover=Handover(connections)
        ):
            print(f"sealed window {manifest.window.number}: {manifest.row_count} rows", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
