"""Decoding a binlog through Spark: local[2] against local[1], from files; part of `make bench-decode`.

    python tests/bench/bench_spark_decode.py FOLDER [--rounds N]

FOLDER holds binlog files (an archive). Each round is a new process, with the JVM and Python workers warmed up by
one pass before the timed one; the two masters alternate. Only each slice's report is kept. A slice that cannot be
decoded ends the benchmark with its error.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

TESTS = str(Path(__file__).parents[1])
sys.path.insert(0, TESTS)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (TESTS, os.environ.get("PYTHONPATH"))))  # of Spark's workers

SLICE_BYTES = 32 << 20


def decode_once(folder: Path, master: str) -> dict[str, float]:
    """Seconds and bytes of one reading of all files of ``folder``, after a warm-up."""
    from any_topics import AnyTopics

    from changefeed.ingest.slicing import cut_slices
    from changefeed.model.coordinates import BinlogCoordinates
    from changefeed.model.window import Window, file_slices
    from changefeed.pipeline.connections import PipelineConnections
    from changefeed.settings.pipeline import Pipeline
    from changefeed.settings.pipeline_settings import KafkaSettings, SourceSettings, SparkSettings
    from changefeed.source.archive.archive import Archive
    from changefeed.source.archive.binlogs import ArchivedBinlogs
    from changefeed.spark.session import start_session
    from changefeed.spark.stages.decode import decode_slices
    from changefeed.spark.stages.decode_task import DecodeTask
    from changefeed.spark.stages.messages import (
        IS_BATCH,
        STORED_SCHEMA,
        DecodedSlice,
        Failure,
        messages_of,
        stored_batches,
    )
    from changefeed.spark.target import LocalSpark, rows_of_tasks

    files = ArchivedBinlogs(Archive(str(folder))).files()
    start = BinlogCoordinates(files[0].name, 4)
    head = BinlogCoordinates(files[-1].name, files[-1].size_bytes)
    pipeline = Pipeline(
        name="bench",
        source=SourceSettings(connection="mysql"),
        kafka=KafkaSettings(connection="kafka"),
        reader="kernel",
        spark=SparkSettings(master=master, conf={"spark.driver.memory": "2g"}),
    )
    spark = LocalSpark(start_session(pipeline))
    window = Window("bench", 1, "uuid", start, head, "", "", 0)
    task = DecodeTask(
        connections=PipelineConnections(pipeline, {"mysql": "mysql://-@-", "kafka": "kafka://127.0.0.1:1"}.__getitem__),
        server_uuid="uuid",
        start=start,
        frozen_at_ms=0,
        topics=AnyTopics(),
        identity="bench",
        archive=Archive(str(folder)),
    )
    cuttings = cut_slices(spark, task, list(file_slices(window, files)), SLICE_BYTES)
    slices = [slice for cutting in cuttings for slice in cutting.slices]
    decoded = rows_of_tasks(
        spark.session,
        [[slice] for slice in slices],
        lambda of_task: stored_batches(decode_slices(task, of_task, lambda _: None)),
        STORED_SCHEMA,
    )
    seconds = 0.0
    for _ in range(2):
        began = time.perf_counter()
        messages = messages_of(decoded.where(f"kind <> '{IS_BATCH}'").select("kind", "text").collect())
        seconds = time.perf_counter() - began
        for message in messages:
            if isinstance(message, Failure):
                raise message.error
    spark.session.stop()
    size = sum(message.report.size_bytes for message in messages if isinstance(message, DecodedSlice))
    if size != sum(slice.size_bytes for slice in slices):
        raise SystemExit(f"decoded {size} bytes of {sum(slice.size_bytes for slice in slices)}")
    return {"seconds": seconds, "bytes": float(size), "slices": len(slices)}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--one", help="internal: one pass with this master")
    given = arguments.parse_args()
    if given.one:
        print(json.dumps(decode_once(given.folder.resolve(), given.one)))
        return
    seconds: dict[str, list[float]] = {"local[1]": [], "local[2]": []}
    size = 0.0
    for _ in range(given.rounds):
        for master, taken in seconds.items():
            command = [sys.executable, __file__, str(given.folder), "--one", master]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found = json.loads(done.stdout.splitlines()[-1])
            taken.append(found["seconds"])
            size = found["bytes"]
    for master, taken in seconds.items():
        rates = sorted(size / 1e6 / each for each in taken)
        print(f"{master}: {rates[0]:.0f} / {statistics.median(rates):.0f} / {rates[-1]:.0f} MB/s (min / median / max)")
    ratios = sorted(one / two for one, two in zip(*seconds.values(), strict=True))
    print(f"local[2] against local[1]: {ratios[0]:.2f} / {statistics.median(ratios):.2f} / {ratios[-1]:.2f} x")


if __name__ == "__main__":
    main()
