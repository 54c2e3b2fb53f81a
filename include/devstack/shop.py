"""The sample database of the demo, and a writer that changes it continuously."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pymysql
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_when_event_set,
    wait_fixed,
)

DATABASE = "shop"
TABLES = ("customers", "products", "orders")
WRITE_EVERY_SECONDS = 0.2
RECONNECT_EVERY_SECONDS = 1.0

_SCHEMA = (
    "CREATE DATABASE IF NOT EXISTS shop CHARACTER SET utf8mb4",  # MariaDB's own default is latin1 up to 11.5
    """CREATE TABLE IF NOT EXISTS shop.customers (
        id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, name VARCHAR(80) NOT NULL, email VARCHAR(120),
        tags SET('new','loyal','vip'), created_at TIMESTAMP(3) DEFAULT CURRENT_TIMESTAMP(3))""",
    """CREATE TABLE IF NOT EXISTS shop.products (
        sku CHAR(8) PRIMARY KEY, title VARCHAR(80) NOT NULL, price DECIMAL(10,2) NOT NULL, details LONGTEXT)""",
    """CREATE TABLE IF NOT EXISTS shop.orders (
        id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, customer BIGINT UNSIGNED NOT NULL, sku CHAR(8) NOT NULL,
        quantity SMALLINT UNSIGNED NOT NULL, status ENUM('new','paid','sent') NOT NULL DEFAULT 'new',
        total DECIMAL(12,2), placed_at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6))""",
)
_NAMES = ("Ada", "Björn", "Chloé", "Đorđe", "Eun-ji", "Fátima", "Grete", "花子")

Connect = Callable[[], "pymysql.Connection[Any]"]


def create_shop(connect: Connect) -> None:
    """Create the database and its tables if they do not exist, and insert a few rows."""
    with connect() as connection, connection.cursor() as cursor:
        for statement in _SCHEMA:
            cursor.execute(statement)
        cursor.execute("SELECT COUNT(*) FROM shop.products")
        (count,) = cursor.fetchone() or (0,)
        if count:
            return
        products = [(f"SKU{n:05}", f"Thing no. {n}", f"{n}.90", f'{{"weight_g": {n * 10}}}') for n in range(1, 21)]
        cursor.executemany("INSERT INTO shop.products VALUES (%s, %s, %s, %s)", products)
        customers = [(name, f"{number}@example.org", "new") for number, name in enumerate(_NAMES)]
        cursor.executemany("INSERT INTO shop.customers (name, email, tags) VALUES (%s, %s, %s)", customers)


class ShopWriter:
    """Inserts, updates and deletes a few rows a second in a thread, until it is stopped.

    If the connection is lost, it prints a message, and reconnects when the server is available again.
    """

    def __init__(self, connect: Connect, seed: int = 1) -> None:
        self._connect = connect
        self._random = random.Random(seed)
        self._stopped = threading.Event()
        self._waits = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start writing in a new thread."""
        self._stopped.clear()
        self._thread = threading.Thread(target=self._write, name="shop writer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop writing; returns when the last transaction is committed."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _write(self) -> None:
        Retrying(
            retry=retry_if_exception_type((pymysql.MySQLError, OSError)),
            wait=wait_fixed(RECONNECT_EVERY_SECONDS),
            sleep=sleep_using_event(self._stopped),
            stop=stop_when_event_set(self._stopped),
            before_sleep=self._log_waiting,
            retry_error_callback=lambda _: None,  # the writer was stopped while the server was unavailable
        )(self._write_until_stopped)

    def _write_until_stopped(self) -> None:
        with self._connect() as connection, connection.cursor() as cursor:
            if self._waits:
                print("The writer is connected again.", flush=True)
                self._waits = False
            while not self._stopped.wait(WRITE_EVERY_SECONDS):
                self._change(cursor)

    def _log_waiting(self, state: RetryCallState) -> None:
        if not self._waits and state.outcome is not None:
            print(f"The writer waits for MySQL: {state.outcome.exception()}", flush=True)
        self._waits = True

    def _change(self, cursor: Any) -> None:
        pick = self._random
        match pick.randrange(6):
            case 0 | 1 | 2:
                cursor.execute(
                    "INSERT INTO shop.orders (customer, sku, quantity, total) "
                    "SELECT %s, sku, %s, price * %s FROM shop.products ORDER BY RAND() LIMIT 1",
                    (pick.randint(1, len(_NAMES)), count := pick.randint(1, 9), count),
                )
            case 3:
                cursor.execute("UPDATE shop.orders SET status = status + 1 WHERE status < 3 ORDER BY RAND() LIMIT 2")
            case 4:
                cursor.execute("UPDATE shop.products SET price = price + 0.10 ORDER BY RAND() LIMIT 1")
            case 5:
                cursor.execute("DELETE FROM shop.orders WHERE status = 'sent' ORDER BY id LIMIT 1")


def shop_rows(connect: Connect, table: str) -> dict[str, dict[str, str | None]]:
    """A table's rows by the text of their primary key; each row is texts by column, in the form of `SELECT`."""
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(f"SHOW COLUMNS FROM {DATABASE}.{table}")
        columns = cursor.fetchall()
        names = [str(column[0]) for column in columns]
        key = next(str(column[0]) for column in columns if column[3] == "PRI")
        cursor.execute(f"SELECT {', '.join(f'CAST({name} AS CHAR)' for name in names)} FROM {DATABASE}.{table}")
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return {str(row[key]): row for row in rows}
