"""What the integration tests share beside the servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from changefeed.spark.session import connect_session
from devstack.spark_connect import SparkConnectServer


@pytest.fixture(scope="module")
def spark(spark_connect: SparkConnectServer) -> Iterator[SparkSession]:
    """A session on the Spark that is up, with two cores, for tests that are not about how it starts."""
    session = connect_session(spark_connect.url)
    yield session
    session.stop()
