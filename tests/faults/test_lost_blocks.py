"""Spark loses decoded blocks between decoding and publishing, and the source is away when they would be made again."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults.feed import Feed
from faults.proxy import Proxy

from devstack.spark_connect import SparkConnectServer

pytestmark = pytest.mark.timeout(900)


def test_decoded_blocks_that_are_lost_stop_the_run_and_the_next_one_publishes_all(
    feed: Feed, spark_connect: SparkConnectServer, tmp_path: Path
) -> None:
    proxy = Proxy(feed.mysql.port)
    feed.mysql_port = proxy.port
    blocks = tmp_path / "spark"
    blocks.mkdir()
    feed.settings["spark"] = {"master": "local[2]", "conf": {"spark.local.dir": str(blocks)}}
    feed.configure()
    try:
        for _ in range(3):  # three files are three slices
            feed.write(20)
            feed.mysql.execute("FLUSH BINARY LOGS")
        run = feed.begin("after_decode", spark=True)
        assert run.wait_until_held(400), run.text()
        decoded = sorted(blocks.glob("**/rdd_*"), key=lambda file: file.name)
        assert len(decoded) >= 3, list(blocks.glob("**/*"))
        decoded[0].unlink()
        proxy.cut()
        run.go_on()
        assert run.result() in (1, 2), run.text()
        proxy.mend()
        feed.write(5)
        feed.use_connect(spark_connect.url)
        feed.run(spark=True)
        feed.check()
    finally:
        proxy.close()
