"""Random kills under a running writer. CHANGEFEED_FAULTS is their number; CHANGEFEED_SEED repeats a run's choices."""

from __future__ import annotations

import random
import threading
import time

import pytest
from both_settings import on_both_settings
from faults.conftest import LONG
from faults.feed import Feed
from seeds import choose_seed

from devstack.spark_connect import SparkConnectServer

pytestmark = pytest.mark.extended

KILLS = LONG or 4
SPARK_KILLS = LONG // 2 or 2
"""The number of kills on each server."""
LEFT_ALONE = 0.1
"""The share of runs that are not killed, so that the backlog does not grow, and that kills also happen late in a run
on a slow machine."""
TIMEOUT_SECONDS = 900


def kill_at_random(feed: Feed, kills: int, *, spark: bool = False) -> None:
    """Start runs one after another under a writer until ``kills`` were killed; then one run that ends."""
    seed = choose_seed()
    chance = random.Random(seed)
    feed.random = random.Random(seed + 1)
    done = threading.Event()

    def write() -> None:
        feed.write(8)
        if spark:
            feed.mysql.execute("FLUSH BINARY LOGS")  # each file is a slice

    def writer() -> None:
        while not done.is_set():
            write()
            time.sleep(0.5 if spark else 0.1)

    usual = 0.0
    for _ in range(2):  # the first may compile the kernels
        write()
        write()
        began = time.monotonic()
        feed.begin(spark=spark).result()
        usual = time.monotonic() - began  # the usual duration of a run on this machine
    writing = threading.Thread(target=writer)
    writing.start()
    killed = 0
    try:
        while killed < kills:
            began = time.monotonic()
            run = feed.begin(spark=spark)
            if chance.random() < LEFT_ALONE:
                run.result(TIMEOUT_SECONDS)
                usual = time.monotonic() - began
                continue
            time.sleep(chance.uniform(0, usual * 1.1))
            if run.process.poll() is None:
                run.kill()
                killed += 1
    finally:
        done.set()
        writing.join()
    feed.run_until_current(spark=spark, seconds=TIMEOUT_SECONDS)
    feed.check()


@on_both_settings
@pytest.mark.timeout(600 + 60 * KILLS)
def test_random_kills_under_a_running_writer_repeat_nothing_and_lose_nothing(feed: Feed) -> None:
    kill_at_random(feed, KILLS)


@pytest.mark.timeout(600 + 60 * SPARK_KILLS)
@pytest.mark.parametrize("server", ["feed", "mariadb_feed"])
def test_random_driver_kills_repeat_and_lose_nothing_in_windows_of_many_slices(
    server: str, request: pytest.FixtureRequest, spark_connect: SparkConnectServer
) -> None:
    """On a Spark Connect server the tasks of a killed driver continue during the next run."""
    feed: Feed = request.getfixturevalue(server)
    feed.use_connect(spark_connect.url)
    kill_at_random(feed, SPARK_KILLS, spark=True)
