"""Tables with rows from before a pipeline's start, a concurrent writer, and checks of what a consumer gets."""

from __future__ import annotations

import base64
import contextlib
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from faults.feed import Feed, Run
from integration.topic_rows import event_ids, records_of, select_rows
from pymysql.constants import ER
from pymysql.err import OperationalError

from devstack.mariadb import MariadbServer
from devstack.sql_server import SqlServer

TABLES = {
    # table: columns of its key; how a key is made of a number
    "numbers": ("id INT", "id", lambda n: f"{n - 500}"),
    "names": (
        "name VARCHAR(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        "name",
        lambda n: f"'{'Ää' if n % 2 else 'b'}{n:05} '",
    ),
    "pairs": ("a SMALLINT, b CHAR(12) CHARACTER SET latin1", "b, a", lambda n: f"{n % 7}, 'k{n:06}'"),
    "amounts": ("amount DECIMAL(12, 3)", "amount", lambda n: f"{n - 300}.{n % 10}"),
    "states": (
        "number BIGINT UNSIGNED, state ENUM('sent', 'new', 'paid')",
        "state, number",
        lambda n: f"{2**63 + n}, '{('new', 'paid', 'sent')[n % 3]}'",
    ),
    "twins": ("a INT, b INT", "a, b", lambda n: f"{n // 50}, {n % 50}"),
    "codes": ("code VARBINARY(8)", "code", lambda n: f"x'{n * 2654435761 % 2**40:010x}'"),
}
KEYLESS = "log"
ROWS = 1_200


def make_tables(server: SqlServer, database: str, rows: int) -> None:
    """Create the tables, each with ``rows`` rows."""
    for table, (columns, key, value) in TABLES.items():
        server.execute(
            f"CREATE TABLE `{database}`.{table} ({columns}, version INT NOT NULL, text VARCHAR(60), "
            f"PRIMARY KEY ({key}))"
        )
        for at in range(0, rows, 500):
            numbers = range(at, min(rows, at + 500))
            values = ", ".join(f"({value(number)}, 1, 'row {number}')" for number in numbers)
            server.execute(f"INSERT INTO `{database}`.{table} VALUES {values}")
    server.execute(f"CREATE TABLE `{database}`.{KEYLESS} (line VARCHAR(30), again INT)")
    server.execute(f"INSERT INTO `{database}`.{KEYLESS} VALUES {', '.join(f'({n % 40}, 0)' for n in range(400))}")


class Writer:
    """Changes rows of all tables until it is stopped: inserts, updates, deletes, and changes of a key's case."""

    def __init__(
        self, server: SqlServer, database: str, rows: int, *, pause_seconds: float = 0.005, seed: int = 0
    ) -> None:
        self._server, self._database, self._rows, self._pause = server, database, rows, pause_seconds
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.statements = 0
        self.error: BaseException | None = None

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(240)
        assert self.error is None, self.error

    def _run(self) -> None:
        try:
            with self._server.connect(database=self._database, autocommit=False) as connection:
                while not self._stop.is_set():
                    try:
                        with connection.cursor() as cursor:
                            for _ in range(self._random.randrange(1, 9)):
                                self._change(cursor)
                                self.statements += 1
                        connection.commit()
                    except OperationalError as error:
                        if error.args[0] != ER.LOCK_DEADLOCK:  # of two writers
                            raise
                        connection.rollback()
                    time.sleep(self._pause)
        except BaseException as error:
            self.error = error

    def _change(self, cursor: Any) -> None:
        table = self._random.choice([*TABLES, KEYLESS])
        if table == KEYLESS:
            cursor.execute("INSERT INTO log VALUES (%s, 1)", (self._random.randrange(40),))
            return
        _, key, value = TABLES[table]
        number = self._random.randrange(self._rows + self._rows // 10)
        pairs = zip(sorted(key.split(", ")), value(number).split(", "), strict=True)
        row = " AND ".join(f"{column} = {literal}" for column, literal in pairs)  # MariaDB finds no (a, b) = (1, 2)
        match self._random.randrange(6):
            case 0:
                cursor.execute(f"DELETE FROM {table} WHERE {row}")
            case 1 if table == "names":
                cursor.execute(f"UPDATE names SET name = UPPER(name) WHERE name = {value(number)}")
            case 2 if table == "numbers":  # another key, in the range of another chunk
                cursor.execute(f"UPDATE IGNORE numbers SET id = id + 100000 WHERE id = {value(number)}")
            case _:
                cursor.execute(
                    f"INSERT INTO {table} VALUES ({value(number)}, 1, 'é') "
                    "ON DUPLICATE KEY UPDATE version = version + 1"
                )


def row_from_records(records: list[Any]) -> dict[bytes, dict[str, Any]]:
    """The rows of a consumer that reads the topic from its beginning.

    Fails if a record does not fit the earlier ones: a row of the snapshot that is older or newer than the changes
    before it, a change whose before image is not the row, a row that the snapshot read twice.
    """
    rows: dict[bytes, dict[str, Any]] = {}
    known: set[bytes] = set()
    reads: Counter[bytes] = Counter()
    last: dict[bytes, tuple[int, int]] = {}
    for record in records:
        if record.value is None:
            continue
        change = json.loads(record.value)
        key, source = record.key, change["source"]
        at = (int(source["file"].rpartition(".")[2]), int(source["pos"]))
        assert last.get(key, at) <= at, f"{change['op']} of {key} at {at}, after {last[key]}"
        last[key] = at
        if change["op"] == "r":
            reads[key] += 1
            assert key not in known or rows.get(key) == change["after"], f"r of {key} is not the row"
        elif key in known:
            assert rows.get(key) == change["before"], f"{change['op']} of {key}: the before image is not the row"
        known.add(key)
        if change["after"] is None:
            rows.pop(key, None)
        else:
            rows[key] = change["after"]
    assert not [key for key, count in reads.items() if count > 1]
    return rows


def check_equal(feed: Feed) -> None:
    """Check that the topics have each event once, in order, and the rows of the source."""
    for table in TABLES:
        records = feed.records(table)
        ids = Counter(event_ids(records))
        assert not [event for event, count in ids.items() if count > 1], table
        rows = row_from_records(records)
        for row in rows.values():
            if "code" in row:
                row["code"] = str(base64.b64decode(row["code"]))
        expected = select_rows(feed.mysql, feed.name, table)
        assert len(rows) == len(expected), table
        assert sorted(map(str, rows.values())) == sorted(map(str, expected.values())), table
    check_keyless(feed)


def check_keyless(feed: Feed) -> None:
    """Check a table without a key: the rows of the snapshot, and all changes at or after their coordinates."""
    found: Counter[tuple[Any, Any]] = Counter()
    changes = [json.loads(record.value) for record in records_of(feed.kafka.bootstrap, f"{feed.name}.{KEYLESS}")]
    (begin,) = {_at(change) for change in changes if change["op"] == "r"}
    for change in changes:
        if change["op"] == "r" or _at(change) >= begin:
            assert change["op"] in "rc"
            found[change["after"]["line"], change["after"]["again"]] += 1
    assert found == Counter(feed.mysql.execute(f"SELECT line, again FROM `{feed.name}`.{KEYLESS}"))


def _at(change: dict[str, Any]) -> tuple[int, int]:
    return int(change["source"]["file"].rpartition(".")[2]), int(change["source"]["pos"])


@contextlib.contextmanager
def snapshot_beside_runs(feed: Feed, *, spark: bool = False) -> Iterator[None]:
    """Start runs of the pipeline one after another, as a scheduler does, until the end of the block."""
    stop = threading.Event()
    failed: list[str] = []

    def run() -> None:
        while not stop.is_set():
            run = feed.begin(spark=spark)
            code = run.result(240)
            if code not in (0, 1, 3):
                failed.append(run.text())
            stop.wait(1.0)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(240)
    assert not failed, failed[0][-3000:]


def is_mariadb(server: SqlServer) -> bool:
    return isinstance(server, MariadbServer)


def prepare(feed: Feed, *tables: str, rows: int = ROWS) -> Feed:
    """Create tables with rows, and run a pipeline over them."""
    make_tables(feed.mysql, feed.name, rows)
    configure(feed, *tables)
    feed.run_until_current()  # its first checkpoint: of two runs that would make one, one stops
    return feed


def configure(feed: Feed, *tables: str, start: str = "latest") -> None:
    """Write the pipeline's file for ``tables``, by default all."""
    plain = {"decimal": "string", "temporal": "iso", "binary": "base64", "bigint_unsigned": "number"}
    feed.settings |= {
        "start": start,
        "values": plain,
        "format": {"name": "debezium", "skipped.operations": "none"},
    }
    # three chunks a transaction
    feed.settings["kafka"] = {"connection": "kafka_faults", "transaction_rows": 1000, "lease_seconds": 2}
    feed.settings["tables"] = {"include": [f"{feed.name}.{name}" for name in tables or (*TABLES, "log")]}
    feed.configure()


def begin(feed: Feed, *arguments: str, fault: str = "", spark: bool = False) -> Run:
    """Begin a snapshot: on the feed's Connect server if it has one, with its own ``spark``, or in one process."""
    begin = feed.begin_command if spark else feed.fork_command
    chunks = () if "--chunk-rows" in arguments else ("--chunk-rows", "300")
    return begin(fault, "snapshot", feed.name, "--run-id", "first", *chunks, *arguments)


def finish(feed: Feed, *arguments: str, spark: bool = False) -> str:
    run = begin(feed, *arguments, spark=spark)
    code = run.result(600)
    assert code == 0, run.text()[-6000:]
    return run.text()


def reads(feed: Feed, table: str) -> list[dict[str, Any]]:
    changes = [json.loads(record.value) for record in feed.records(table) if record.value is not None]
    return [change["after"] for change in changes if change["op"] == "r"]


def wait_for(feed: Feed, run: Run) -> None:
    """Run the pipeline until the snapshot is done."""
    with snapshot_beside_runs(feed):
        code = run.result(600)
    assert code == 0, run.text()[-6000:]
