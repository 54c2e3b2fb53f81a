"""Damaged binlogs are refused with coordinates: no crash, no hang, no read or write outside.

CHANGEFEED_FUZZ_CASES is how many, CHANGEFEED_FUZZ_SEED which: `make test-fuzz`.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from integration.random_tables import random_table

from changefeed.binlog.search.schema_scan import TableCounts, count_rows
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.window import Slice
from devstack.mariadb import MariadbServer
from devstack.sql_server import SqlServer

ROOT = Path(__file__).parents[3]
CASES = int(os.environ.get("CHANGEFEED_FUZZ_CASES", "8000"))
SLOW_CASES = max(200, CASES // 500)
SEED = os.environ.get("CHANGEFEED_FUZZ_SEED", "seed")
SECONDS = 300 + CASES // 100


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Small files of both servers: all column types, plain, compressed, minimal, partial and prepared transactions."""
    folder = tmp_path_factory.mktemp("corpus")
    for kind in ("full_mysql_server", "full_mariadb_server"):
        server: SqlServer = request.getfixturevalue(kind)
        mariadb = isinstance(server, MariadbServer)
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE IF NOT EXISTS fuzz")
            cursor.execute("USE fuzz")
            cursor.execute("SET sql_mode = ''")
            for number in range(14):
                rng = random.Random(number)
                table = random_table(rng, "fuzz", f"t{number}", mariadb)
                cursor.execute("FLUSH BINARY LOGS")
                cursor.execute("SHOW MASTER STATUS" if mariadb else "SHOW BINARY LOG STATUS")
                name = cursor.fetchone()[0]
                cursor.execute(table.create())
                for setting in _settings(number, mariadb):
                    cursor.execute(setting)
                for row in range(3):
                    cursor.execute(f"INSERT INTO {table.qualified} VALUES ({row}, {', '.join(table.literals(rng))})")
                cursor.execute(f"UPDATE {table.qualified} SET id = id + 10")
                if number == 5 and not mariadb:
                    cursor.execute("CREATE TABLE p (id INT PRIMARY KEY, j JSON)")
                    cursor.execute("""INSERT INTO p VALUES (1, '{"a": [1, 2, {"b": "long long long long"}]}')""")
                    cursor.execute("UPDATE p SET j = JSON_SET(j, '$.a[2].b', 'short', '$.c', 1.5)")
                if number == 6:
                    for statement in (
                        "XA START 'x'",
                        "DELETE FROM t6",
                        "XA END 'x'",
                        "XA PREPARE 'x'",
                        "XA COMMIT 'x'",
                    ):
                        cursor.execute(statement)
                cursor.execute("FLUSH BINARY LOGS")
                shutil.copy(server.data / name, folder / f"{kind}-{number}")
            if mariadb:
                cursor.execute("SET GLOBAL log_bin_compress = OFF")
    return folder


def _settings(number: int, mariadb: bool) -> list[str]:
    settings = [f"SET binlog_row_image = {('FULL', 'MINIMAL', 'NOBLOB', 'FULL')[number % 4]}"]
    if mariadb:
        return [*settings, f"SET GLOBAL log_bin_compress = {int(number % 3 == 1)}, log_bin_compress_min_len = 10"]
    settings.append(f"SET binlog_transaction_compression = {int(number % 5 == 1)}")
    settings.append(f"SET binlog_row_value_options = '{'PARTIAL_JSON' if number == 5 else ''}'")
    return [*settings, f"SET binlog_rows_query_log_events = {int(number % 2)}"]


def test_rows_of_each_table_are_counted_without_decoding(corpus: Path) -> None:
    for file in sorted(corpus.iterdir()):
        _, _, number = file.name.partition("-")
        data = file.read_bytes()
        counts: dict[str, TableCounts] = {}
        count_rows([data[FIRST_POSITION:]], counts, Slice(0, "b.000001", FIRST_POSITION, len(data)))
        rows = {f"fuzz.t{number}": 9 if number == "6" else 6}
        if file.name == "full_mysql_server-5":
            rows["fuzz.p"] = 2
        assert {table: count.rows for table, count in counts.items()} == rows, file.name


def _fuzz(corpus: Path, cases: int, **environment: str) -> tuple[int, int]:
    """How many cases were run, and how many of them refused; one process for each core."""
    paths = f"{ROOT / 'include'}{os.pathsep}{ROOT / 'tests'}"
    flags = {"PYTHONPATH": paths, "PYTHONWARNINGS": "ignore", **environment}
    # Compiles the kernels where no run has before, once and not in each process.
    subprocess.run([sys.executable, "-c", "import changefeed.binlog.decoder"], env={**os.environ, **flags}, check=True)
    processes = min(4, len(os.sched_getaffinity(0)))
    bounds = [cases * number // processes for number in range(processes + 1)]
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "integration.decode_fuzz", str(corpus), str(first), str(end), SEED, str(SECONDS)],
            env={**os.environ, **flags},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for first, end in pairwise(bounds)
    ]
    ran = refused = 0
    try:
        for process in running:
            output, complaints = process.communicate(timeout=SECONDS + 600)
            assert process.returncode == 0, complaints[-4000:]
            ran += int(output.split()[0])
            refused += int(output.split()[2])
    finally:
        for process in running:
            process.kill()
            process.wait()
    return ran, refused


@pytest.mark.extended
@pytest.mark.timeout(SECONDS + 900)
def test_damaged_binlogs_are_refused_with_bounds_checks_on(corpus: Path) -> None:
    ran, refused = _fuzz(corpus, CASES, NUMBA_BOUNDSCHECK="1")
    assert ran == CASES
    assert ran / 4 < refused < ran, "most damage is seen, and some of it changes only a value"


@pytest.mark.long
@pytest.mark.extended
@pytest.mark.timeout(SECONDS + 900)
def test_damaged_binlogs_are_refused_with_the_jit_off(corpus: Path) -> None:
    ran, _ = _fuzz(corpus, SLOW_CASES, NUMBA_DISABLE_JIT="1")
    assert ran == SLOW_CASES
