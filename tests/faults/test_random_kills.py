"""Random kills under a running writer. CHANGEFEED_FAULTS is how many, CHANGEFEED_SEED repeats a run's choices."""

from __future__ import annotations

import os
import random
import threading
import time

import pytest
from both_settings import on_both_settings
from faults.conftest import LONG
from faults.feed import Feed

from devstack.spark_connect import SparkConnectServer

pytestmark = pytest.mark.extended

KILLS = LONG or 4
SPARK_KILLS = LONG // 2 or 2
"""On each server."""
LEFT_ALONE = 0.1
"""So many of the runs are not killed: what is left over from earlier ones grows no further, and a kill late in a run
gets its chance however slow the machine has become."""
PATIENCE_SECONDS = 900


def kill_at_random(feed: Feed, kills: int, *, spark: bool = False) -> None:
    """Runs one after another while a writer writes, until so many were killed; then one that comes to the end."""
    seed = int(os.environ.get("CHANGEFEED_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)
    print(f"\nCHANGEFEED_SEED={seed}, {kills} kills", flush=True)
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
        usual = time.monotonic() - began  # how long a run takes here and now
    writing = threading.Thread(target=writer)
    writing.start()
    killed = 0
    try:
        while killed < kills:
            began = time.monotonic()
            run = feed.begin(spark=spark)
            if chance.random() < LEFT_ALONE:
                run.result(PATIENCE_SECONDS)
                usual = time.monotonic() - began
                continue
            time.sleep(chance.uniform(0, usual * 1.1))
            if run.process.poll() is None:
                run.kill()
                killed += 1
    finally:
        done.set()
        writing.join()
    feed.run_until_current(spark=spark, seconds=PATIENCE_SECONDS)
    feed.check()


@on_both_settings
@pytest.mark.timeout(600 + 60 * KILLS)
def test_random_kills_under_a_running_writer_repeat_nothing_and_lose_nothing(feed: Feed) -> None:
    kill_at_random(feed, KILLS)


@pytest.mark.timeout(600 + 60 * SPARK_KILLS)
@pytest.mark.parametrize("server", ["feed", "mariadb_feed"])
def test_random_kills_of_the_driver_leave_tasks_of_many_slices_that_repeat_nothing_and_lose_nothing(
    server: str, request: pytest.FixtureRequest, spark_connect: SparkConnectServer
) -> None:
    """On a Spark Connect server the tasks of a killed driver live on, while the next run is under way."""
    feed: Feed = request.getfixturevalue(server)
    feed.use_connect(spark_connect.url)
    kill_at_random(feed, SPARK_KILLS, spark=True)
