"""How fast a follower catches up with its source, against `mysqlbinlog | mysql`: `make bench-replicate`.

Two workloads on the table of `bench_decode.py`: bulk (statements of 500 rows: 200,000 inserted, of which a part is
updated and deleted) and transactions of one row (20,000). Both alternately apply the same binlog to the same, emptied
second server; changefeed reads it from Kafka, where it was published before. Figures are the minimum, median and
maximum of three: row changes a wall second.

CHANGEFEED_BENCH_SCALE=0.1 makes a tenth of the rows.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench_decode import COLUMNS, SCALE, TABLE, random_row, spread
from integration.followed import Followed

from devstack.home import Home
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.process import run_server

REPEATS = 3
BULK = round(400 * SCALE) * 500
SINGLE = round(20_000 * SCALE)


def work(followed: Followed, name: str) -> int:
    """Write to the source; returns the number of row changes."""
    rng = random.Random(name)
    with followed.source.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {followed.name}_d")
        cursor.execute(f"CREATE TABLE {followed.name}_d.t {TABLE}")
        if name == "single":
            for _ in range(SINGLE):
                cursor.execute(f"INSERT INTO {followed.name}_d.t {COLUMNS} VALUES {random_row(rng)}")
            return SINGLE
        for _ in range(BULK // 500):
            rows = ", ".join(random_row(rng) for _ in range(500))
            cursor.execute(f"INSERT INTO {followed.name}_d.t {COLUMNS} VALUES {rows}")
        updated: int = cursor.execute(f"UPDATE {followed.name}_d.t SET a = a + 1 WHERE id % 10 = 0")
        deleted: int = cursor.execute(f"DELETE FROM {followed.name}_d.t WHERE id % 20 = 0")
        return BULK + updated + deleted


def by_mysqlbinlog(followed: Followed, start: str) -> float:
    """Seconds of `mysqlbinlog | mysql` for the same binlog."""
    file, _, position = start.rpartition(":")
    last = followed.source.execute("SHOW BINARY LOGS")[-1][0]
    names = [row[0] for row in followed.source.execute("SHOW BINARY LOGS") if file <= row[0] <= last]
    options = ["--read-from-remote-server", "--skip-gtids", f"--start-position={position}"]
    began = time.monotonic()
    source = subprocess.Popen([*followed.source.client("mysqlbinlog"), *options, *names], stdout=subprocess.PIPE)
    subprocess.run(followed.follower.client("mysql"), stdin=source.stdout, check=True)
    if source.wait() != 0:
        raise SystemExit(f"mysqlbinlog ended with exit code {source.returncode}")
    return time.monotonic() - began


def by_us(followed: Followed) -> float:
    """Seconds of a run that begins where the pipeline began."""
    began = time.monotonic()
    followed.follow()
    return time.monotonic() - began


def emptied(followed: Followed) -> None:
    """The follower without the databases and its position."""
    for database in [*followed.databases(followed.follower), "changefeed"]:
        followed.follower.execute(f"DROP DATABASE IF EXISTS `{database}`")


def main() -> None:
    folder = Home.default().run.parent / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    follower_options = {"skip-log-bin": "ON", "gtid-mode": "OFF", "enforce-gtid-consistency": "OFF", "server-id": 2}
    options = {"binlog_row_metadata": "FULL"}
    with (
        tempfile.TemporaryDirectory(dir=folder) as data,
        run_server(MysqlServer(Path(data) / "a", options=options, owner=ProcessId.own(), quick=True)) as source,
        run_server(
            MysqlServer(Path(data) / "b", options=follower_options, owner=ProcessId.own(), quick=True)
        ) as follower,
        run_server(KafkaBroker(Path(data) / "kafka", owner=ProcessId.own(), quick=True)) as kafka,
    ):
        print(f"{'row changes/s':32}{'min':>12}{'median':>12}{'max':>12}")
        for name in ("bulk", "single"):
            followed = Followed(f"bench_{name}", source, follower, kafka, Path(data))
            changes = work(followed, name)
            followed.publish()
            ours, theirs = [], []
            for _ in range(REPEATS):
                emptied(followed)
                ours.append(changes / by_us(followed))
                checksum = follower.execute(f"CHECKSUM TABLE {followed.name}_d.t")
                emptied(followed)
                theirs.append(changes / by_mysqlbinlog(followed, followed.pipeline.start))
                if follower.execute(f"CHECKSUM TABLE {followed.name}_d.t") != checksum:
                    raise SystemExit("the two did not make the same table")
            print(f"{name + ', replicate':32}{spread(ours)}")
            print(f"{name + ', mysqlbinlog | mysql':32}{spread(theirs)}")
            print(f"{name + ', ratio':32}{spread((our / their for our, their in zip(ours, theirs, strict=True)), 2)}")


if __name__ == "__main__":
    main()
