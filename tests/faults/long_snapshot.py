"""A snapshot of many rows beside writers that do not wait, killed again and again: `make test-snapshot`.

CHANGEFEED_SNAPSHOT_ROWS are the rows of all tables (1,000,000), CHANGEFEED_SNAPSHOT_KILLS the kills (10). The short
form is in test_snapshot.py.
"""

from __future__ import annotations

import contextlib
import os
import random
import time

import pytest
from faults.existing_rows import TABLES, Writer, begin, check_equal, finish, prepare, snapshot_beside_runs
from seeds import choose_seed

from devstack.spark_connect import SparkConnectServer

ROWS = int(os.environ.get("CHANGEFEED_SNAPSHOT_ROWS", "1000000"))
KILLS = int(os.environ.get("CHANGEFEED_SNAPSHOT_KILLS", "10"))
WRITERS = 3
SECONDS_A_KILL = 7.0

pytestmark = pytest.mark.timeout(3600 + 120 * KILLS)


@pytest.mark.parametrize("server", ["feed", "mariadb_feed"], ids=["mysql", "mariadb"])
def test_many_rows_beside_writers_and_kills_end_as_the_source_is(
    server: str, request: pytest.FixtureRequest, spark_connect: SparkConnectServer
) -> None:
    """The driver is killed; the tasks that it began go on in the Connect server."""
    rows = ROWS // len(TABLES)
    feed = prepare(request.getfixturevalue(server), rows=rows)
    feed.settings["kafka"] = {"connection": "kafka_faults", "lease_seconds": 2}
    feed.use_connect(spark_connect.url)
    seed = choose_seed()
    chance, killed, began = random.Random(seed), 0, time.monotonic()
    arguments = ["--chunk-rows", str(max(300, rows // 4))]
    with contextlib.ExitStack() as stack:
        writers = [Writer(feed.mysql, feed.name, rows, pause_seconds=0, seed=number) for number in range(WRITERS)]
        for writer in writers:
            stack.enter_context(writer)
        stack.enter_context(snapshot_beside_runs(feed, spark=True))
        slowly = str(max(1, round(ROWS / (KILLS + 1) / SECONDS_A_KILL)))
        while killed < KILLS:
            run = begin(feed, *arguments, "--rows-per-second", slowly)
            time.sleep(chance.uniform(2, 2 * SECONDS_A_KILL))
            if run.process.poll() is not None:
                assert run.process.poll() in (0, 1), run.text()[-4000:]
                break
            run.kill()
            killed += 1
        text = finish(feed, *arguments)
        seconds = time.monotonic() - began
        statements = sum(writer.statements for writer in writers)
    print(f"{killed} kills; {statements / seconds:,.0f} statements/s; {text[-300:]}", flush=True)
    feed.run_until_current(spark=True)
    check_equal(feed)
