"""Runs the complete example: `python examples/fast-reader/run.py`.

It starts MySQL and Kafka in a temporary folder, and stops them at the end.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "include"))

import pymysql  # noqa: E402

from changefeed.binlog.events.framing import EventType  # noqa: E402
from changefeed.model.connection import MysqlConnection  # noqa: E402
from changefeed.source.mysql.dump import DumpStream  # noqa: E402
from changefeed.source.mysql.session import Session  # noqa: E402
from devstack.example_servers import example_servers  # noqa: E402
from devstack.mysql import MysqlServer  # noqa: E402

PARTITIONS = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (1000), PARTITION p1 VALUES LESS THAN MAXVALUE)"
ORDERS = [
    f"CREATE TABLE orders (id INT PRIMARY KEY, buyer LONGTEXT) {PARTITIONS}",
    "INSERT INTO orders VALUES (1, 'Jack'), (2000, 'Jane')",
    "UPDATE orders SET id = 3000 WHERE id = 1",
    "DELETE FROM orders WHERE id = 2000",
]
FILL = """\
CREATE PROCEDURE fill (transactions INT) BEGIN
  DECLARE number INT DEFAULT 0;
  WHILE number < transactions DO
    START TRANSACTION;
    INSERT INTO items (name, price) VALUES (CONCAT('item ', number), number);
    INSERT INTO items (name, price) VALUES (CONCAT('item ', number), number);
    COMMIT;
    SET number = number + 1;
  END WHILE;
END"""
ITEMS = "CREATE TABLE items (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(40), price DECIMAL(8,2))"
TRANSACTIONS, LIMIT = 60_000, 4_000_000


def changefeed(*arguments: str, fails: bool = False) -> str:
    """Run a command that succeeds, or ``fails``; returns its standard output, or then its standard error."""
    print("$ changefeed", *arguments, flush=True)
    command = [str(Path(sys.executable).with_name("changefeed")), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if (done.returncode != 0) != fails:
        sys.exit(done.stdout + done.stderr)
    return done.stderr if fails else done.stdout


def execute(mysql: MysqlServer, *statements: str) -> None:
    """Print statements, and run them in the database `shop`."""
    print(*(f"mysql> {statement};" for statement in statements), sep="\n", flush=True)
    mysql.execute(*statements, database="shop")


@contextmanager
def watch_replicas(mysql: MysqlServer) -> Iterator[set[str]]:
    """Collect ids and names of replicas from SHOW REPLICAS during the block."""
    finished, names = threading.Event(), set()

    def poll() -> None:
        with mysql.connect() as connection, connection.cursor() as cursor:
            while not finished.wait(0.02):
                cursor.execute("SHOW REPLICAS")
                names.update(f"{row[0]} {row[1]}" for row in cursor.fetchall() if row[0])

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield names
    finally:
        finished.set()
        thread.join()


def event_types(mysql: MysqlServer) -> Counter[str]:
    """Number of events by type, as the server lists its binlog."""
    with mysql.connect(cursorclass=pymysql.cursors.SSCursor) as connection, connection.cursor() as cursor:
        cursor.execute(f"SHOW BINLOG EVENTS IN '{mysql.head().split(':')[0]}'")
        return Counter(row[2] for row in cursor)


def heartbeats(mysql: MysqlServer) -> int:
    """Number of heartbeats among the next five events of an idle server, for a reader at the end of the binlog.

    A run reads up to a fixed end, so it never waits at the end of the binlog.
    """
    file, position = mysql.head().split(":")
    session = Session(MysqlConnection.from_uri(mysql.root_url))
    dump = DumpStream(session, file=file, start=int(position), end=1 << 40, server_id=799, heartbeat_seconds=1)
    kinds = []
    with session:
        dump._prepare(session)
        dump._request(session.raw, 0)  # blocking
        for _ in range(5):
            size = int.from_bytes(session.raw._rfile.read(4)[:3], "little")
            kinds.append(session.raw._rfile.read(size)[5])
    return kinds.count(EventType.HEARTBEAT)


def window_of(pipeline: str) -> dict[str, Any]:
    """The manifest of the pipeline's last window."""
    window: dict[str, Any] = json.loads(changefeed("windows", pipeline, "-n", "1", "--json"))[0]
    return window


def read_orders(mysql: MysqlServer) -> None:
    """Show a registered reader with a rate limit, the partitions of rows, and heartbeats of an idle server."""
    execute(mysql, *ORDERS)
    large = [f"INSERT INTO orders VALUES ({number}, REPEAT('x', 200000))" for number in range(100, 160)]
    mysql.execute(*large, database="shop")  # 12 MB
    with watch_replicas(mysql) as replicas:
        print(changefeed("run", "orders"), end="", flush=True)
    print("SHOW REPLICAS while it read:", *sorted(replicas))
    window = window_of("orders")
    rate = window["size_bytes"] / window["seconds"]["ingest"]
    print(f"{'below' if rate < LIMIT else 'above'} {LIMIT:,} bytes a second")
    tail = changefeed("tail", "orders", "--from-beginning", "--no-follow").splitlines()
    for event in [json.loads(line)["value"] for line in tail][:3]:
        partitions = {name: event[name] for name in ("source_partition_id", "partition_id") if name in event}
        print(event["event"], json.dumps(partitions))
    print("heartbeats of the idle server, one a second:", "yes" if heartbeats(mysql) >= 2 else "no")


def change_frozen_schema(mysql: MysqlServer) -> None:
    """Change a table whose schema is frozen, and relearn its schema."""
    execute(mysql, "ALTER TABLE orders ADD paid DATE", "INSERT INTO orders VALUES (1, 'Peter', NULL)")
    print(changefeed("run", "orders", fails=True).strip().splitlines()[-1])
    print(changefeed("schema", "orders", "--relearn", "shop.orders"), end="", flush=True)
    print(changefeed("run", "orders"), end="", flush=True)


def read_items(mysql: MysqlServer) -> None:
    """Read the server's other tables as fast as possible."""
    execute(mysql, ITEMS)
    mysql.execute(FILL, database="shop")
    execute(mysql, f"CALL fill({TRANSACTIONS})")
    print(changefeed("run", "items"), end="", flush=True)
    window = window_of("items")
    listed = event_types(mysql)
    for name in ("Query", "Table_map", "Write_rows", "Update_rows", "Delete_rows", "Xid"):
        print(f"{name}: {listed[name]:,}")
    print(f"all types: {listed.total():,}; read: {window['events']:,}")
    seconds = window["seconds"]["ingest"]
    print(f"read, decoded and published in {seconds} s: {window['events'] / seconds:,.0f} events a second")


def main() -> None:
    """Run the example."""
    with example_servers(HERE) as servers:
        mysql = servers.mysql
        mysql.execute("CREATE DATABASE shop")
        read_orders(mysql)
        change_frozen_schema(mysql)
        read_items(mysql)


if __name__ == "__main__":
    main()
