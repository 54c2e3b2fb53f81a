"""What the integration tests share beside the servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from changefeed.pipelines.pipeline import KafkaSettings, Pipeline, SourceSettings, SparkSettings
from changefeed.spark.session import local_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark with two cores in this process, for tests that are not about how it starts."""
    pipeline = Pipeline(
        name="tests",
        source=SourceSettings(connection="-"),
        kafka=KafkaSettings(connection="-"),
        spark=SparkSettings(master="local[2]"),
    )
    session = local_session(pipeline)
    yield session
    session.stop()
