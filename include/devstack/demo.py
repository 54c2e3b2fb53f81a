"""`make demo`: runs the shop pipeline on real servers with Airflow, and compares the topics with the tables."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
from collections.abc import Callable
from contextlib import closing
from typing import Any
from urllib.parse import unquote, urlsplit

import pymysql
from kafka import KafkaConsumer, TopicPartition
from rich.console import Console

from devstack.airflow import USER
from devstack.errors import DevstackError
from devstack.shop import DATABASE, TABLES, Connect, ShopWriter, create_shop, shop_rows
from devstack.shop_copy import replicate, verify_copy
from devstack.stack import Stack
from devstack.topics import Record, read_topics, rebuilt_rows

PIPELINE = "shop"
DAG = f"changefeed_ingest__{PIPELINE}"
WINDOW_SECONDS = 600.0
SHOWN = 3
STEPS = 4

_out = Console(soft_wrap=True, highlight=False, markup=False, emoji=False)


class DemoError(DevstackError):
    """A window or checkpoint was not reached in time, or the topics differ from the tables."""


def demo(stack: Stack, *, once: bool) -> None:
    """Run the demo until Ctrl-C or, with *once*, until the topics are verified after the first windows.

    Stops all servers at the end. Raises DemoError if no window is committed in time, or if the topics differ from the
    tables.
    """
    steps = _Steps()
    kernels = subprocess.Popen([sys.executable, "-m", "changefeed.native"])  # beside the downloads and the servers
    try:
        stack.up(steps.begin)
        connect = _connector(stack.mysql_root_url)
        create_shop(connect)
        _run(stack, connect, steps, once=once)
    finally:
        kernels.kill()  # the next process compiles those that are missing
        kernels.wait()
        _out.print("Stopping the servers …")
        stack.stop()


class _Steps:
    """Prints numbered steps, and the duration of each."""

    def __init__(self) -> None:
        self._number = 0
        self._start = self._began = time.monotonic()

    def begin(self, title: str) -> None:
        """Print the duration of the current step, and the title of the next."""
        self.end()
        self._number += 1
        _out.print(f"[{self._number}/{STEPS}] {title} …")

    def end(self) -> None:
        """Print the duration of the current step."""
        now = time.monotonic()
        if self._number:
            _out.print(
                f"[{self._number}/{STEPS}] done in {now - self._began:.0f} s, {now - self._start:.0f} s in total"
            )
        self._began = now


def _run(stack: Stack, connect: Connect, steps: _Steps, *, once: bool) -> None:
    writer = ShopWriter(connect)
    writer.start()
    try:
        steps.begin("Publish the first window")
        show_login(stack)
        # Airflow starts the first run as soon as it has read the DAG.
        how = "runs all the time, with a window a second" if stack.is_continuous else "is scheduled each minute"
        _out.print(f"DAG {DAG} {how}.")
        # Spark waits for kernels that are still being compiled. If that fails, it compiles them, or reports the error.
        _await("the committed window", lambda: _window(stack) >= 1, stack)
        steps.begin("Publish the rest, and compare the topics with the tables")
        writer.stop()
        _out.print("The writer is paused, so that the tables do not change during the comparison.")
        if not stack.is_continuous:
            _await("the next run", lambda: _trigger(stack), stack)
        _await("a checkpoint at the head", lambda: _checkpoint(stack)["coordinates"] == _head(connect), stack)
        records = list(read_topics(stack.bootstrap, [f"{DATABASE}.{table}" for table in TABLES]))
        verify(connect, records)
        if stack.with_follower:
            _out.print(replicate(stack))
            for line in verify_copy(connect, _connector(stack.follower.root_url)):
                _out.print(line)
        steps.end()
        if stack.is_continuous:
            _show_delays(connect, stack.bootstrap)
        _show(records)
        _out.print()
        show_login(stack)
        if not once:
            writer.start()
            _show_next_steps()
            while stack.airflow.any_running:
                time.sleep(1)
            _out.print("The servers were stopped by another process.")
    finally:
        writer.stop()


def _show_next_steps() -> None:
    _out.print(
        f"""\
Open the address, log in, and click Changefeed. The writer changes rows again. In a second terminal in this folder, try:
  eval "$(.venv/bin/python -m devstack env)"     # use these servers
  changefeed status {PIPELINE}
  changefeed tail {PIPELINE} --from-beginning -n 3
Next: docs/tutorial.md adds a pipeline of your own; so does New pipeline on the page, with the connections that
.devstack/servers/site.yaml allows (docs/reference/site-settings.md).
To end the demo, press Ctrl-C here, or run `make stop` in another terminal."""
    )


def show_login(stack: Stack) -> None:
    """Print the address and login of the Airflow of *stack*."""
    _out.print(f"Airflow: {stack.airflow.url}  user: {USER}  password: {stack.airflow.password}")


def show_exports(stack: Stack) -> None:
    """Print the shell lines with which the command `changefeed` uses the servers of *stack*."""
    _out.print(f"To use the same servers in another shell, for example with `changefeed status {PIPELINE}`:")
    for line in stack.exports:
        _out.print(f"  {line}")


def _connector(url: str) -> Connect:
    parts = urlsplit(url)

    def connect() -> pymysql.Connection[Any]:
        return pymysql.connect(
            host=parts.hostname or "127.0.0.1",
            port=parts.port or 3306,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            charset="utf8mb4",
            autocommit=True,
        )

    return connect


def verify(connect: Connect, records: list[Record]) -> None:
    """Raise DemoError unless the rows rebuilt from the topics equal the tables' rows, and no event is repeated."""
    ids = [record.event_id for record in records]
    if len(ids) != len(set(ids)):
        raise DemoError(f"expected each event once, found {len(ids) - len(set(ids))} repeated records among {len(ids)}")
    rebuilt = rebuilt_rows(records)
    for table in TABLES:
        expected = shop_rows(connect, table)
        published = {
            "".join(str(part) for part in json.loads(key).values()): _texts(row)
            for key, row in rebuilt.get(f"{DATABASE}.{table}", {}).items()
        }
        if expected != published:
            different = sorted(
                key for key in expected.keys() | published.keys() if expected.get(key) != published.get(key)
            )
            key = different[0]
            raise DemoError(
                f"{DATABASE}.{table}: {len(different)} rows differ, the first with key {key}: the table has "
                f"{expected.get(key)}, the topic {published.get(key)}"
            )
        _out.print(f"{DATABASE}.{table}: {len(expected)} rows, equal to those rebuilt from the topic")


def _texts(row: dict[str, Any]) -> dict[str, str | None]:
    """A record's values in the text form of SELECT: a space instead of ISO's T, and no Z."""
    return {name: None if value is None else _text(value) for name, value in row.items()}


def _text(value: Any) -> str:
    text = str(value)
    return text.replace("T", " ").rstrip("Z") if len(text) > 18 and text[4:5] == "-" and text[10:11] == "T" else text


def _show(records: list[Record]) -> None:
    _out.print(f"\nThe last {SHOWN} of {len(records)} records:")
    for record in records[-SHOWN:]:
        _out.print(f"  {record.topic} partition {record.partition} offset {record.offset} id {record.event_id}")
        _out.print(f"  {json.dumps(record.key, ensure_ascii=False)} {json.dumps(record.value, ensure_ascii=False)}")


def _show_delays(connect: Connect, bootstrap: str) -> None:
    """Insert some rows, and print how long after its commit each is in its topic."""
    topic = f"{DATABASE}.customers"
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed", group_id=None)
    consumer.assign([TopicPartition(topic, partition) for partition in consumer.partitions_for_topic(topic) or ()])
    consumer.seek_to_end()
    consumer.poll(timeout_ms=0)  # finds the ends
    delays = []
    with closing(consumer), connect() as connection, connection.cursor() as cursor:
        for name in ("Ida", "Jan", "Kim"):
            time.sleep(1)
            cursor.execute(f"INSERT INTO {topic} (name, tags) VALUES (%s, 'new')", (name,))
            committed = time.monotonic()
            if not consumer.poll(timeout_ms=int(WINDOW_SECONDS * 1000)):
                raise DemoError(f"expected the new row of {topic} within {WINDOW_SECONDS:g} seconds")
            delays.append(time.monotonic() - committed)
    _out.print(
        f"Three new rows were in their topic {', '.join(f'{delay:.1f}' for delay in delays)} s after their commit"
    )


def _await(what: str, reached: Callable[[], bool], stack: Stack) -> None:
    _out.print(f"Waiting for {what} …")
    deadline = time.monotonic() + WINDOW_SECONDS
    while not reached():
        if time.monotonic() > deadline:
            raise DemoError(
                f"expected {what} within {WINDOW_SECONDS:g} seconds, found "
                f"{_checkpoint(stack) or 'no checkpoint'}. See the "
                f"DAG's runs at {stack.airflow.url}, and the logs below {stack.airflow.directory}"
            )
        time.sleep(1)


def _trigger(stack: Stack) -> bool:
    """Start a run; False if Airflow could not, as when a task wrote to SQLite's database at the same time."""
    try:
        return stack.airflow.trigger(DAG)
    except urllib.error.HTTPError as error:
        if error.code < 500:
            raise
    except (TimeoutError, urllib.error.URLError):
        pass
    return False


def _checkpoint(stack: Stack) -> dict[str, Any]:
    """The pipeline's checkpoint from its Airflow Variable, read by REST; {} before the first."""
    try:
        variable = stack.airflow.read(f"/api/v2/variables/changefeed_checkpoint__{PIPELINE}")
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return {}
        raise
    checkpoint: dict[str, Any] = json.loads(variable["value"])
    return checkpoint


def _window(stack: Stack) -> int:
    return int(_checkpoint(stack).get("window", 0))


def _head(connect: Connect) -> str:
    with connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@version")
        (version,) = cursor.fetchone() or ("",)
        cursor.execute("SHOW MASTER STATUS" if "MariaDB" in version else "SHOW BINARY LOG STATUS")
        file, position, *_ = cursor.fetchone() or ("", 0)
    return f"{file}:{position}"
