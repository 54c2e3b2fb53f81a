"""Decoding a binlog through Spark: local[2] against local[1], from files; part of `make bench-decode`.

    python tests/bench/bench_spark_decode.py FOLDER [--rounds N]

FOLDER holds binlog files (an archive). Each round is a process of its own with the JVM and Python workers warmed up by
one pass before the one that is timed; the two masters take turns. Of what is decoded only each slice's report is kept:
a slice that could not be decoded ends the benchmark with its error.
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
    """Seconds and bytes of one pass over all files of ``folder``, after a warm-up."""
    from any_topics import AnyTopics

    from changefeed.archive.archive import Archive
    from changefeed.archive.binlogs import ArchivedBinlogs
    from changefeed.coordinates import BinlogCoordinates
    from changefeed.endpoints.endpoints import Endpoints
    from changefeed.pipelines.pipeline import KafkaSettings, Pipeline, SourceSettings, SparkSettings
    from changefeed.spark import frame
    from changefeed.spark.cutting import cut
    from changefeed.spark.decode import decode_batches
    from changefeed.spark.job import IngestJob
    from changefeed.spark.session import local_session
    from changefeed.spark.slices import over_tasks
    from changefeed.window import Window, whole_file_slices

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
    spark = local_session(pipeline)
    job = IngestJob(
        endpoints=Endpoints(pipeline, {"mysql": "mysql://-@-", "kafka": "kafka://127.0.0.1:1"}.__getitem__),
        window=Window("bench", 1, "uuid", start, head, "", "", 0),
        topics=AnyTopics(),
        attempt="",
        identity="bench",
        archive=Archive(str(folder)),
    )
    cuttings = cut(spark, job, list(whole_file_slices(job.window, files)), SLICE_BYTES)
    slices = [piece for cutting in cuttings for piece in cutting.slices]
    decoded = over_tasks(
        spark,
        [[piece] for piece in slices],
        lambda of_task: decode_batches(job, of_task, lambda _: None),
        frame.DECODED_SCHEMA,
    )
    seconds = 0.0
    for _ in range(2):
        began = time.perf_counter()
        told = decoded.where("kind in ('error', 'report')").select("kind", "text").collect()
        seconds = time.perf_counter() - began
        for row in told:
            if row.kind == "error":
                raise frame.error_from(row.text)
    spark.stop()
    size = sum(frame.report_from(row.text).size_bytes for row in told if row.kind == "report")
    if size != sum(piece.size_bytes for piece in slices):
        raise SystemExit(f"decoded {size} bytes of {sum(piece.size_bytes for piece in slices)}")
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
