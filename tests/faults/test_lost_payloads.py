"""A file with decoded batches is missing, truncated or damaged before they are published."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from faults.feed import Feed, processes_of
from faults.test_spark_killed import command_of

from devstack.spark_connect import SparkConnectServer

pytestmark = [pytest.mark.extended, pytest.mark.timeout(900)]


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1)


def damage_last_byte(file: Path) -> None:
    """Damage the last payload's coordinates or record batch, which changes no length."""
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


@pytest.mark.long
def test_lost_payload_file_fails_the_run_and_the_next_run_publishes_all(
    feed: Feed, spark_connect: SparkConnectServer, tmp_path: Path
) -> None:
    blocks = tmp_path / "blocks"
    blocks.mkdir()
    feed.settings["spark"] = {"master": "local[2]", "conf": {"spark.local.dir": str(blocks)}}
    feed.configure()
    for _ in range(4):  # four files are four slices
        feed.write(20)
        feed.mysql.execute("FLUSH BINARY LOGS")
    damages: list[tuple[Callable[[Path], None], str]] = [
        (Path.unlink, "No such file or directory"),
        (cut, "bytes of a decoded batch at"),
        (damage_last_byte, "the file was damaged since it was written"),
    ]
    for damage, words in damages:
        run = feed.begin("after_decode", spark=True)
        assert run.wait_until_held(400), run.text()
        files = [file for file in blocks.rglob("batches-*") if file.stat().st_size]
        assert files, run.text()
        for file in files:
            damage(file)
        jvms = [psutil.Process(pid) for pid in processes_of(run.process.pid) if "java" in command_of(pid).split(" ")[0]]
        run.go_on()
        assert run.result() == 1, run.text()
        assert words in run.text(), run.text()
        psutil.wait_procs(jvms, timeout=240)  # the JVM ends after its driver, and removes them
        assert not list(blocks.rglob("batches-*")), "a run that ends leaves none"
    feed.use_connect(spark_connect.url)
    feed.run(spark=True)
    feed.check()
