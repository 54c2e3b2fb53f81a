"""Random kills under a running writer. CHANGEFEED_FAULTS is how many, CHANGEFEED_SEED repeats a run's choices."""

from __future__ import annotations

import os
import random
import threading
import time

import pytest
from faults.conftest import LONG
from faults.feed import Feed

KILLS = LONG or 4


@pytest.mark.timeout(600 + 60 * KILLS)
def test_random_kills_under_a_running_writer_repeat_nothing_and_lose_nothing(feed: Feed) -> None:
    seed = int(os.environ.get("CHANGEFEED_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)
    print(f"\nCHANGEFEED_SEED={seed}, {KILLS} kills", flush=True)
    chance = random.Random(seed)
    feed.random = random.Random(seed + 1)
    done = threading.Event()

    def writer() -> None:
        while not done.is_set():
            feed.write(8)
            time.sleep(0.1)

    writing = threading.Thread(target=writer)
    usual = 0.0
    for _ in range(2):  # the first may compile the kernels
        feed.write()
        began = time.monotonic()
        feed.begin().result()
        usual = time.monotonic() - began  # how long a run takes here and now
    writing.start()
    killed = 0
    try:
        while killed < KILLS:
            run = feed.begin()
            time.sleep(chance.uniform(0, usual * 1.1))
            if run.process.poll() is None:
                run.kill()
                killed += 1
    finally:
        done.set()
        writing.join()
    feed.run_until_current()
    feed.check()
