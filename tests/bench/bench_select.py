"""How fast rows of a SELECT become messages, against mysqldump: `make bench-select`.

300,000 rows of the table of `bench_decode.py`. Both read them over TCP, alternately; mysqldump writes a file with
--single-transaction, ours makes finished Debezium messages in blocks. Figures are the minimum, median and maximum of
five: rows a wall second, and rows a CPU second of the client.

CHANGEFEED_BENCH_SCALE=0.1 makes a tenth of the rows.
"""

from __future__ import annotations

import random
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench_decode import COLUMNS, SCALE, TABLE, random_row, spread

from changefeed.binlog.programs.result_columns import select_list
from changefeed.binlog.row_reader import AsOf, RowReader
from changefeed.formats.debezium import DebeziumFormat
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.origin import Chunk
from changefeed.model.route import Route
from changefeed.records.block import MessageBlock
from changefeed.source.mysql.catalog import table_schema
from changefeed.source.mysql.result_set import ResultSet
from changefeed.source.mysql.session import Session
from devstack.home import Home
from devstack.identity import ProcessId
from devstack.mysql import MysqlServer
from devstack.process import run_server

REPEATS = 5
ROWS = round(600 * SCALE) * 500


def fill(server: MysqlServer) -> None:
    """Make the table."""
    rng = random.Random(1)
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 0")
        cursor.execute("CREATE DATABASE bench")
        cursor.execute(f"CREATE TABLE bench.t {TABLE}")
        for _ in range(ROWS // 500):
            cursor.execute(f"INSERT INTO bench.t {COLUMNS} VALUES {', '.join(random_row(rng) for _ in range(500))}")


def messages(session: Session) -> Callable[[], None]:
    """One reading of the table into blocks."""
    schema = table_schema(session, "bench", "t")
    assert schema is not None
    reader = RowReader(lambda *_: Route("t", 3), DebeziumFormat("bench", 0), "3e11fa47-71ca-11e1-9e33-c80aa9429562")
    as_of = AsOf(BinlogCoordinates("binlog.000001", 4), 0, 1)

    def run() -> None:
        with ResultSet(session, f"SELECT {select_list(schema)} FROM bench.t") as rows:
            items = reader.read(schema, rows, Chunk("bench", "t", 0), as_of)
            assert sum(item.message_count for item in items if isinstance(item, MessageBlock)) == ROWS

    return run


def dump(server: MysqlServer, path: Path) -> None:
    """One mysqldump of the table."""
    command = [*server.client("mysqldump"), "--single-transaction", "--set-gtid-purged=OFF", "bench", "t"]
    with path.open("wb") as file:
        subprocess.run(command, stdout=file, check=True)


def rates(run: Callable[[], None]) -> tuple[float, float]:
    """Rows a wall second, and a CPU second of this process and its children."""
    begun, cpu = time.monotonic(), _cpu()
    run()
    return ROWS / (time.monotonic() - begun), ROWS / (_cpu() - cpu)


def _cpu() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def main() -> None:
    folder = Home.default().run.parent / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=folder) as data,
        run_server(MysqlServer(Path(data) / "mysql", owner=ProcessId.own())) as server,
        Session(MysqlConnection.from_uri(server.root_url)) as session,
    ):
        fill(server)
        ours = messages(session)
        ours()  # the kernels, and the server's pages
        pairs = [(rates(ours), rates(lambda: dump(server, folder / "dump.sql"))) for _ in range(REPEATS)]
    print(f"{'':24}{'min':>12}{'median':>12}{'max':>12}")
    for number, what in enumerate(("rows/s", "rows/CPU s")):
        print(f"{what + ', messages':24}{spread(our[number] for our, _ in pairs)}")
        print(f"{what + ', mysqldump':24}{spread(their[number] for _, their in pairs)}")
        print(f"{what + ', ratio':24}{spread((our[number] / their[number] for our, their in pairs), 2)}")


if __name__ == "__main__":
    main()
