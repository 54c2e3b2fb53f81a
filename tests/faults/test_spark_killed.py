"""Real Spark at local[2], windows of many slices: its driver, its JVM or a Python worker killed, mysqld restarted.

The run after it, which repeats nothing, is on a Spark Connect server that is up: as real, and started once a session.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest
from faults.conftest import LONG
from faults.feed import Feed, Run, processes_of

from devstack.spark_connect import SparkConnectServer

pytestmark = [pytest.mark.extended, pytest.mark.timeout(900)]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def kill_one(run: Run, what: str) -> None:
    """Kill the driver's Python, the JVM, or all of Spark's Python workers with their daemon."""
    driver = run.process.pid
    others = [pid for pid in processes_of(driver) if pid != driver]
    chosen = {
        "driver": [driver],
        "jvm": [pid for pid in others if "java" in command_of(pid).split(" ")[0]],
        "worker": [pid for pid in others if "pyspark" in command_of(pid) and "java" not in command_of(pid)],
    }[what]
    assert chosen, f"no {what} among {[command_of(pid) for pid in others]}"
    for pid in chosen:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("what", ["driver", "worker", *(["jvm"] if LONG else [])])
def test_a_part_of_spark_killed_while_publishing_repeats_nothing_and_loses_nothing(
    feed: Feed, spark_connect: SparkConnectServer, what: str, tmp_path: Path
) -> None:
    feed.settings["spark"] = {"master": "local[2]", "conf": {"spark.local.dir": str(tmp_path)}}
    feed.configure()
    for _ in range(3):  # three files are three slices: decoded in parallel, then shuffled
        feed.write(25)
        feed.mysql.execute("FLUSH BINARY LOGS")
    feed.write(10)
    run = feed.begin("after_transaction_commit", spark=True)
    assert run.wait_until_held(400), run.text()
    assert [*tmp_path.rglob("batches-*")], "the decoded batches are there"
    jvms = [pid for pid in processes_of(run.process.pid) if "java" in command_of(pid).split(" ")[0]]
    kill_one(run, what)
    if what == "driver":
        assert run.result() != 0
        psutil.wait_procs([psutil.Process(pid) for pid in jvms if psutil.pid_exists(pid)], timeout=240)
        assert not [*tmp_path.rglob("batches-*")], "its JVM has ended, and removed them"
    else:
        run.file.unlink(missing_ok=True)
        assert run.result() != 0
    feed.write(5)
    feed.use_connect(spark_connect.url)
    feed.run(spark=True)
    feed.check()


def test_mysqld_killed_and_restarted_while_publishing_costs_at_most_the_run(
    feed: Feed, spark_connect: SparkConnectServer
) -> None:
    feed.write()
    run = feed.begin("in_decode:2", spark=True)
    assert run.wait_until_held(400), run.text()
    feed.mysql.kill()
    feed.mysql.start()
    run.go_on()
    assert run.result() in (0, 1), run.text()
    feed.write(5)
    feed.use_connect(spark_connect.url)
    feed.run(spark=True)  # its window includes the restart, and ends in the next file
    feed.check()
