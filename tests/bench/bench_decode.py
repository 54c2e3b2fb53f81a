"""How fast the kernel decodes, against mysql-replication: `make bench-decode`.

Two pinned workloads, written by a real MySQL into one binlog file each, kept in `.devstack/bench`:

- bulk: 1,000,000 rows, 2,000 INSERTs of 500 rows over 20 tables of 11 columns;
- oltp: 100,000 autocommit statements on the same tables, a third each INSERT, UPDATE, DELETE by key.

Both read the same file with one core. The kernel's figure is row images (an update has two) to finished Debezium
messages: key, value, partition, in blocks. mysql-replication's is row images to its own Python objects, without
any message. They run alternately; each figure is the minimum, median and maximum of five runs, in CPU seconds.

Last comes a 1 GB file, the bulk workload's transactions again and again, through Spark at local[1] and local[2]
(`bench_spark_decode.py`, wall seconds).

CHANGEFEED_BENCH_SCALE=0.1 makes a tenth of all that, for a try; `--spark-mb 0` omits Spark.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pymysql.protocol import MysqlPacket
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from changefeed.binlog.events.framing import HEADER
from changefeed.formats.debezium import DebeziumFormat
from changefeed.formats.format import RowFormat
from changefeed.model.column_rules import ALL_SHOWN, ColumnRules
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.route import Route
from changefeed.model.slice_report import SliceReport
from changefeed.model.window import Slice
from changefeed.records.block import MessageBlock
from devstack.home import Home
from devstack.identity import ProcessId
from devstack.mysql import MysqlServer
from devstack.process import run_server

SCALE = float(os.environ.get("CHANGEFEED_BENCH_SCALE", "1"))
REPEATS = 5
_ROTATE, _GTID, _ANONYMOUS_GTID = 4, 33, 34
REFERENCE_IMAGES = 60_000
"""The row images after which mysql-replication stops: its rate does not depend on the file's size."""

TABLE = (
    "(id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, a INT, status ENUM('new', 'paid', 'sent', 'done'), "
    "price DECIMAL(12,2), qty SMALLINT UNSIGNED, note VARCHAR(200) CHARACTER SET utf8mb4, doc JSON, flag TINYINT(1), "
    "score DOUBLE, created DATETIME(6), updated TIMESTAMP(3) NULL)"
)
COLUMNS = "(a, status, price, qty, note, doc, flag, score, created, updated)"
WORDS = tuple("lorem ipsum dolor sit amet consectetur größe Straße 東京 adipiscing elit sed do".split())  # noqa: SIM905


def random_row(rng: random.Random) -> str:
    note = " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 8)))
    document = json.dumps({"k": rng.randrange(1000), "tag": rng.choice(WORDS[:5]), "ok": rng.random() < 0.5})
    quantity = "NULL" if rng.random() < 0.1 else rng.randrange(65536)
    day = f"2026-{rng.randrange(1, 13):02d}-{rng.randrange(1, 29):02d}"
    clock = f"{rng.randrange(3, 24):02d}:{rng.randrange(60):02d}:{rng.randrange(60):02d}.{rng.randrange(10**6):06d}"
    return (
        f"({rng.randrange(-(2**31), 2**31)}, '{rng.choice(['new', 'paid', 'sent', 'done'])}', "
        f"{rng.uniform(-1e6, 1e6):.2f}, {quantity}, '{note}', '{document}', {rng.randrange(2)}, "
        f"{rng.uniform(-1e3, 1e3)!r}, '{day} {clock}', '{day} {clock}')"
    )


def workloads(folder: Path) -> dict[str, Path]:
    """The two files, created if they are missing."""
    paths = {name: folder / f"{name}-{SCALE:g}.000001" for name in ("bulk", "oltp")}
    if all(path.exists() for path in paths.values()):
        return paths
    folder.mkdir(parents=True, exist_ok=True)
    options = {"binlog_row_metadata": "FULL", "max_binlog_size": 1 << 30, "sync_binlog": 0}
    with (
        tempfile.TemporaryDirectory(dir=folder) as data,
        run_server(MysqlServer(Path(data) / "mysql", options=options, owner=ProcessId.own())) as server,
    ):
        _write(server, paths)
    return paths


def _write(server: MysqlServer, paths: dict[str, Path]) -> None:
    rng = random.Random(1)
    inserts, statements = round(2000 * SCALE), round(100_000 * SCALE)
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE bench")
        for number in range(20):
            cursor.execute(f"CREATE TABLE bench.t{number} {TABLE}")
        cursor.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 0")

        def into(path: Path, work: Iterator[str]) -> None:
            cursor.execute("FLUSH BINARY LOGS")
            cursor.execute("SHOW BINARY LOG STATUS")
            name = cursor.fetchone()[0]
            for statement in work:
                cursor.execute(statement)
            cursor.execute("FLUSH BINARY LOGS")
            path.write_bytes((server.data / name).read_bytes())

        def bulk() -> Iterator[str]:
            for number in range(inserts):
                rows = ", ".join(random_row(rng) for _ in range(500))
                yield f"INSERT INTO bench.t{number % 20} {COLUMNS} VALUES {rows}"

        def oltp() -> Iterator[str]:
            keys = max(2, inserts * 25)
            for number in range(statements):
                table = f"bench.t{rng.randrange(20)}"
                key = rng.randrange(1, keys)
                yield (
                    f"INSERT INTO {table} {COLUMNS} VALUES {random_row(rng)}",
                    f"UPDATE {table} SET a = {number}, score = {rng.random()!r} WHERE id = {key}",
                    f"DELETE FROM {table} WHERE id = {key}",
                )[number % 3]

        into(paths["bulk"], bulk())
        into(paths["oltp"], oltp())


def kernel_items(
    path: Path, format: RowFormat | None = None, columns: ColumnRules = ALL_SHOWN, **more: Any
) -> Callable[[], Iterator[MessageBlock | SliceReport]]:
    """A function that decodes the file with the kernel at each call: yields its blocks, and last its report.

    ``more`` are fields of the route (``rows``), a ``finisher``, and the ``size_bytes`` of the file to read.
    """
    from changefeed.binlog.decoder import KernelDecoder

    data = path.read_bytes()[: more.pop("size_bytes", None)]
    finisher = more.pop("finisher", None)
    decoder = KernelDecoder(
        lambda database, table: Route(f"{database}.{table}", 3, **more),
        lambda _database, _table: None,
        format or DebeziumFormat("bench", 0),
        "3e11fa47-71ca-11e1-9e33-c80aa9429562",
        columns=columns,
        finisher=finisher,
    )

    def run() -> Iterator[MessageBlock | SliceReport]:
        chunks = (memoryview(data)[at : at + (1 << 20)] for at in range(FIRST_POSITION, len(data), 1 << 20))
        return decoder.decode(chunks, Slice(0, path.name, FIRST_POSITION, len(data)))

    return run


def kernel_images(
    path: Path, format: RowFormat | None = None, columns: ColumnRules = ALL_SHOWN, **more: Any
) -> Callable[[], int]:
    """One decoding of the file by the kernel: its row images. ``more`` is as for `kernel_items`."""
    items = kernel_items(path, format, columns, **more)

    def run() -> int:
        images = 0
        for item in items():
            if not isinstance(item, MessageBlock):
                images = sum(ops.get("c", 0) + 2 * ops.get("u", 0) + ops.get("d", 0) for ops in item.rows.values())
        return images

    return run


def reference_images(path: Path) -> Callable[[], int]:
    """One decoding by mysql-replication, fed from the file: the number of row images."""
    data = path.read_bytes()

    def packets() -> Iterator[MysqlPacket]:
        at = FIRST_POSITION
        while at < len(data):
            size = HEADER.unpack_from(data, at)[3]
            yield MysqlPacket(b"\0" + data[at : at + size], "utf8mb4")
            at += size
        yield MysqlPacket(b"\xfe\0\0\0\0", "utf8mb4")

    def run() -> int:
        stream = packets()
        reader: Any = BinLogStreamReader(
            connection_settings={}, server_id=1, only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent]
        )
        connection = SimpleNamespace(
            _read_packet=lambda: next(stream), close=lambda: None, charset="utf8mb4", _get_dbms=lambda: "mysql"
        )
        for name, value in {
            "_stream_connection": connection,
            "_ctl_connection": connection,
            "_BinLogStreamReader__connected_stream": True,
            "_BinLogStreamReader__connected_ctl": True,
            "_BinLogStreamReader__use_checksum": True,
            "_BinLogStreamReader__optional_meta_data": True,
            "mysql_version": (9, 7, 4),
        }.items():
            setattr(reader, name, value)
        images = 0
        for event in reader:
            images += len(event.rows) * (2 if isinstance(event, UpdateRowsEvent) else 1)
            if images >= REFERENCE_IMAGES * min(1, SCALE * 10):
                break
        return images

    return run


def rate(run: Callable[[], int]) -> float:
    """Row images per CPU second."""
    gc.collect()
    begun = time.process_time()
    images = run()
    return images / (time.process_time() - begun)


def spread(figures: Iterable[float], digits: int = 0) -> str:
    """Minimum, median and maximum."""
    found = sorted(figures)
    return "".join(f"{figure:12,.{digits}f}" for figure in (found[0], statistics.median(found), found[-1]))


def start_seconds(cache: str) -> float:
    """Seconds from the start of Python to a loaded kernel."""
    begun = time.monotonic()
    subprocess.run(
        [sys.executable, "-c", "import changefeed.binlog.decoder"],
        check=True,
        env={**os.environ, "CHANGEFEED_KERNEL_CACHE": cache, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return time.monotonic() - begun


def long_file(bulk: Path, path: Path, size: int) -> None:
    """Write a binlog of about ``size`` bytes: the file's begin, and its transactions until it is that long."""
    data = bulk.read_bytes()
    at, first, end = FIRST_POSITION, 0, len(data)
    while at < len(data):
        kind, event_size = data[at + 4], HEADER.unpack_from(data, at)[3]
        if kind in (_GTID, _ANONYMOUS_GTID) and not first:
            first = at
        if kind == _ROTATE:
            end = at
        at += event_size
    transactions = memoryview(data)[first:end]
    with path.open("wb") as file:
        file.write(data[:first])
        while file.tell() < size:
            file.write(transactions)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--spark-mb", type=int, default=round(1024 * SCALE), help="size of Spark's file; 0: none")
    arguments.add_argument("--spark-rounds", type=int, default=REPEATS)
    given = arguments.parse_args()
    folder = Home.default().run.parent / "bench"
    paths = workloads(folder)
    print(f"{'images per CPU second':24}{'min':>12}{'median':>12}{'max':>12}")
    for name, path in paths.items():
        ours = kernel_images(path)
        ours()  # programs, and the pages of buffers
        theirs = reference_images(path)
        pairs = [(rate(ours), rate(theirs)) for _ in range(REPEATS)]  # alternately: the machine's own speed changes
        print(f"{name + ' kernel':24}{spread(our for our, _ in pairs)}")
        print(f"{name + ' mysql-replication':24}{spread(their for _, their in pairs)}")
        print(f"{name + ' ratio':24}{spread((our / their for our, their in pairs), 1)}\n", flush=True)
    with tempfile.TemporaryDirectory() as cache:
        cold, warm = start_seconds(cache), min(itertools.starmap(start_seconds, [(cache,)] * 3))
    print(f"start: {cold:.1f} s with nothing compiled, {warm:.1f} s with a cache", flush=True)
    if given.spark_mb:
        with tempfile.TemporaryDirectory(dir=folder) as archive:
            long_file(paths["bulk"], Path(archive) / "bulk.000001", given.spark_mb << 20)
            script = str(Path(__file__).with_name("bench_spark_decode.py"))
            subprocess.run([sys.executable, script, archive, "--rounds", str(given.spark_rounds)], check=True)


if __name__ == "__main__":
    main()
