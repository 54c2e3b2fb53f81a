"""Snapshots of random tables beside random changes and DDL, in all formats, with random settings and kills.

`make test-snapshot` has the long form: CHANGEFEED_RUNS runs on each server. CHANGEFEED_SEED repeats a run.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import SerializationContext
from faults.conftest import Pair
from faults.feed import Feed, Run, Runner
from faults.replica import stop_replicating, wait_until_caught_up
from integration.hostile_settings import choose_hostile_settings, set_globals
from integration.random_source import KEYLESS, RandomSource, Table
from integration.random_topics import (
    Avro,
    Change,
    Consumed,
    Unknown,
    changes_of,
    columns_of,
    fluvio_rows,
    keyless_rows,
    read_value,
    selected,
)
from integration.topic_rows import records_of

from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.schema_registry import SchemaRegistry
from devstack.sql_server import SqlServer

RUNS = int(os.environ.get("CHANGEFEED_RUNS", "0"))
"""Runs on each server; 0 is the short form: one run of a seed that is known to end equal."""
SEED = int(os.environ.get("CHANGEFEED_SEED", "0"))
SHORT_SEED = 9
STEPS = 12 if RUNS else 4

pytestmark = [pytest.mark.extended, pytest.mark.timeout(600 + 300 * RUNS)]

SERVERS = ["mysql_server", "mariadb_server"]
LONG_SERVERS = ["everything_mysql_server", "everything_mariadb_server"]

DEBEZIUM = {"name": "debezium", "skipped.operations": "none"}
FORMATS: list[dict[str, Any]] = [
    DEBEZIUM,
    {**DEBEZIUM, "schemas": True},
    {"name": "flat"},
    {"name": "flat", "delete.tombstone.handling.mode": "rewrite-with-tombstone"},
    {"name": "cloudevents", "data": DEBEZIUM},
    {"name": "cloudevents", "data": {"name": "flat", "delete.tombstone.handling.mode": "rewrite"}},
    {"name": "maxwell", "kafka_key_format": "array"},
    {"name": "avro", "registry": "registry"},
    {"name": "fluvio"},
]
VALUES = {"decimal": "string", "temporal": "iso", "binary": "base64", "bigint_unsigned": "number"}
SECRET = "a key of masks that is longer than 32 characters"
SNAPSHOT_STAGES = ("in_decode", "after_decode", "in_open_transaction", "before_log_write:3", "before_log_write:5")
WINDOW_STAGES = (
    "after_plan",
    "in_decode",
    "after_decode",
    "after_take_over",
    "in_open_transaction",
    "after_transaction_commit",
    "before_seal",
    "after_seal",
    "in_checkpoint_write",
)
FULL_DISKS = (200, 2_000, 20_000)
"""Limit of the file size of a snapshot's process, to simulate a full disk."""
WITHOUT_KEYS = (
    "create",
    "add",
    "drop_column",
    "rename_column",
    "modify",
    "place",
    "like",
    "index",
    "comment",
    "charset",
)
"""DDL after which a key's rows still belong to one table; TRUNCATE if the format has it."""


@dataclass
class Plan:
    """What a seed chose for a run."""

    format: dict[str, Any]
    mask: str = ""
    hidden: str = ""
    where: str = ""
    partitions: int = 2

    @property
    def inner(self) -> dict[str, Any]:
        data = self.format.get("data")
        return data if isinstance(data, dict) else self.format

    @property
    def tells_before(self) -> bool:
        return self.inner["name"] in ("debezium", "avro")


@dataclass
class Totals:
    kills: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    records: int = 0
    tables: int = 0
    statements: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)


class RandomRun:
    """One seed's run on one server."""

    def __init__(self, feed: Feed, seed: int, avro: Avro, registry: str, totals: Totals) -> None:
        self.feed, self.rng, self.avro, self.totals = feed, random.Random(seed), avro, totals
        self.database = f"{feed.name}_r"
        self.wrong: list[str] = []
        self.heads: list[str] = []
        """Ends of windows, to which a seek may go back."""
        self.seeks, self.failed_over = 0, False
        rng = self.rng
        format = FORMATS[seed % len(FORMATS)]
        self.plan = Plan(
            format,
            mask=rng.choice(["", "", "text", "hmac_sha256"]),
            where=rng.choice(["", "", "n < 40"]),
            partitions=rng.choice([1, 3]),
        )
        if self.plan.inner["name"] == "maxwell":  # it has one record for a changed key, in the new partition
            self.plan.partitions = 1
        if self.plan.inner["name"] == "fluvio":
            self.plan.mask, self.plan.partitions = "", 1
        if not self.plan.where and rng.random() < 0.3:
            self.plan.hidden = "n"
        feed.connections |= {"REGISTRY": registry, "MASK_KEY": f"generic://:{SECRET.replace(' ', '%20')}@"}

    def configure(self) -> None:
        feed, plan = self.feed, self.plan
        name = plan.inner["name"]
        feed.settings |= {
            "start": "latest",
            "format": plan.format | ({"topic.prefix": feed.name} if plan.format["name"] == "avro" else {}),
            "tables": {"include": [f"{self.database}.*"]},
            "topics": {"partitions": plan.partitions},
        }
        if name not in ("maxwell", "fluvio", "avro"):
            feed.settings["values"] = VALUES
        columns: dict[str, Any] = {}
        if plan.mask:
            value: Any = {"text": "***"} if plan.mask == "text" else {"hmac_sha256": {"connection": "mask_key"}}
            columns["mask"] = {"*.*.version": value}
        if plan.hidden:
            columns["exclude"] = [f"*.*.{plan.hidden}"]
        if columns:
            feed.settings["columns"] = columns
        if plan.where:
            feed.settings["rows"] = {f"{self.database}.*": plan.where}
        # a snapshot waits until the broker has ended the open transaction of a killed one
        feed.configure(
            transaction_rows=self.rng.choice([10, 40, 1000]), transaction_seconds=5, transaction_timeout_seconds=10
        )

    def run(self, replaced: Callable[[], SqlServer] | None = None) -> None:
        """Run; halfway, ``replaced`` makes another server the source."""
        rng = self.rng
        definitions = set(WITHOUT_KEYS)
        if self.plan.inner["name"] == "avro":
            definitions -= {"add", "drop_column", "rename_column", "modify", "place"}  # the registry's rules
        if self.plan.inner.get("skipped.operations") and self.plan.partitions == 1:
            definitions.add("truncate")
        self.work = RandomSource(
            self.feed.mysql, self.database, rng, frozenset(definitions), rows=rng.choice([30, 80]), of_topics=True
        )
        self.configure()
        self.window()
        for step in range(STEPS):
            if replaced is not None and step == STEPS // 2:
                self.work.server = self.feed.mysql = replaced()
                self.failed_over = True
                self.windows_to_the_end()
            self.step()
        self.snapshot_to_its_end("first")
        self.windows_to_the_end()
        self.compare(altered=True)
        self.snapshot_to_its_end("second")
        self.windows_to_the_end()
        self.compare(altered=False)
        self.totals.statements += self.work.counts

    # --- steps

    def step(self) -> None:
        rng = self.rng
        self.work.run(rng.randrange(1, 4))
        match rng.randrange(8):
            case 0 | 1 | 2:
                stage = rng.choice(SNAPSHOT_STAGES)
                run = self.begin("first", fault=stage)
                window = self.beside(run)
                if run.process.poll() is None:
                    self.work.run(rng.randrange(3))
                    if rng.random() < 0.6 and stage.endswith("decode"):  # later it has the pipeline's lease
                        self.window()
                    if rng.random() < 0.8 or window is not None:
                        self.kill(run, "snapshots")
                    else:
                        run.go_on()
                        window = self.beside(run)
                self.finish_process(run, window)
            case 3:
                run = self.begin("first")
                time.sleep(rng.uniform(0.1, 2.5))
                self.kill(run, "snapshots")
            case 4:
                stage = rng.choice(WINDOW_STAGES)
                run = self.feed.begin(stage)
                if run.wait_until_held():
                    self.work.run(rng.randrange(2))
                    self.kill(run, "windows")
                self.finish_process(run, None)
            case 5:
                self.feed.connections["FILE_BYTES"] = str(rng.choice(FULL_DISKS))
                run = self.begin("first")
                del self.feed.connections["FILE_BYTES"]
                window = self.beside(run)
                self.totals.kills["full disks"] += run.process.poll() != 0
                self.finish_process(run, window)
            case 6 if self.heads and not self.failed_over:
                to = rng.choice(self.heads)
                done = self.feed.fork_command("", "seek", self.feed.name, to, "--why", "a test", "--yes")
                if done.result() == 0:
                    self.seeks += 1
                else:
                    self.note(done)
            case _:
                self.window()

    def begin(self, run: str, fault: str = "") -> Run:
        rows = str(self.rng.choice([7, 30, 300]))
        return self.feed.fork_command(fault, "snapshot", self.feed.name, "--run-id", run, "--chunk-rows", rows)

    def beside(self, run: Run) -> Run | None:
        """Wait until a snapshot ends or is held at its stage, with windows beside it, for which it may wait.

        Returns the running window: it waits for the lease of the held run.
        """
        window, begin_at, deadline = None, time.monotonic() + 2, time.monotonic() + 180
        while run.process.poll() is None and not run.file.exists():
            assert time.monotonic() < deadline, f"neither its stage nor its end is reached:\n{run.text()[-2000:]}"
            if window is None and time.monotonic() > begin_at:
                window = self.feed.begin()
            if window is not None and window.process.poll() is not None:
                window, begin_at = None, time.monotonic() + 1
            time.sleep(0.02)
        return window

    def kill(self, run: Run, what: str) -> None:
        if run.process.poll() is None:
            run.kill()
            self.totals.kills[what] += 1

    def finish_process(self, run: Run, window: Run | None) -> None:
        for each in filter(None, (run, window)):
            if each.result(240) in (1, 2):
                self.note(each)

    def note(self, run: Run) -> None:
        """Note the message of a refused run."""
        lines = [line for line in run.text().splitlines() if "Error: " in line or "error: " in line]
        self.totals.refusals[(lines or run.text().splitlines() or [""])[-1][:300]] += 1

    def window(self) -> None:
        head = self.feed.mysql.head()
        run = self.feed.begin()
        code = run.result(240)
        if code == 1:
            self.note(run)
        assert code in (0, 1, 3), run.text()[-3000:]
        if code == 0:
            self.heads.append(head)

    def windows_to_the_end(self) -> None:
        self.feed.run_until_current()

    def snapshot_to_its_end(self, name: str) -> None:
        for _ in range(6):
            run = self.begin(name)
            self.finish_process(run, self.beside(run))
            if run.process.poll() == 0:
                return
            self.window()
        raise AssertionError(f"the snapshot does not end:\n{run.text()[-3000:]}")

    # --- comparing

    def compare(self, *, altered: bool) -> None:
        """Compare each table's topic with SELECT; ``altered``: rows may be older than their table's columns."""
        for table in self.work.tables.values():
            try:
                self._compare(table, altered=altered)
            except (AssertionError, KeyError, TypeError, ValueError) as error:
                self.wrong.append(f"{table.name}: {type(error).__name__}: {error}")

    def _compare(self, table: Table, *, altered: bool) -> None:
        plan = self.plan
        self.totals.tables += 1
        columns, key = columns_of(self.feed.mysql, self.database, table.name)
        records = records_of(self.feed.kafka.bootstrap, f"{self.database}.{table.name}")
        self.totals.records += len(records)
        changes = list(changes_of(plan.format, records, self.avro))
        expected = selected(self.feed.mysql, self.database, table.name, columns, plan.where)
        self.totals.rows += len(expected)
        shown = [column for column in columns if column.name != plan.hidden]
        for row in expected:
            row.pop(plan.hidden, None)
            if plan.mask:
                row["version"] = "***" if plan.mask == "text" else _digest(row["version"])
        if table.kind == KEYLESS:
            if self.seeks + self.failed_over:
                return
            if plan.inner["name"] == "debezium" and not (altered and table.modified):
                rows = keyless_rows([change for change in changes if change is not None])
                assert rows.total() == len(expected), f"{rows.total()} rows, {len(expected)} in the table"
            return
        if plan.inner["name"] == "fluvio":
            found = fluvio_rows(changes, key)
        else:
            row_from_records = Consumed(repeats=self.seeks > 0, one_server=not self.failed_over)
            row_from_records.take(_join_key_changes(changes, plan.format), frozenset(table.modified))
            self.wrong += [f"{table.name}: {wrong}" for wrong in row_from_records.wrong[:5]]
            found = row_from_records.rows
        assert len(found) == len(expected), f"{len(found)} rows in the topic, {len(expected)} in the table"
        unlike = table.modified if altered else set()
        images = [
            self._image([column for column in shown if column.name not in unlike], image) for image in found.values()
        ]
        if any(isinstance(image[name], Unknown) for image in images for name in key):
            return  # keys whose form is the format's own: as many as there are
        by_key = {_place(key, image): image for image in images}
        for row in expected:
            image = by_key.get(_place(key, row))
            assert image is not None, f"the topic misses {_place(key, row)}"
            for name, value in row.items():
                if altered and (name not in image or name in table.modified):
                    continue
                found_value = image.get(name, "no such column")
                assert found_value == value, f"{name} of {_place(key, row)}: topic {found_value!r}, table {value!r}"

    def _image(self, columns: list[Any], image: dict[str, Any]) -> dict[str, Any]:
        masked = "version" if self.plan.mask else ""
        if self.plan.format["name"] == "avro":  # names are made legal there
            legal = {re.sub(r"\W", "_", column.name, flags=re.ASCII): column.name for column in columns}
            image = {legal.get(name, name): value for name, value in image.items()}
        return {
            column.name: image[column.name]
            if column.name == masked
            else read_value(self.plan.format, column, image[column.name])
            for column in columns
            if column.name in image
        }


def _place(key: list[str], row: dict[str, Any]) -> str:
    return repr([str(row[name]) for name in key])


def _digest(value: Any) -> str:
    return hmac.new(SECRET.encode(), str(value).encode(), hashlib.sha256).hexdigest()


def _join_key_changes(changes: list[Change | None], format: dict[str, Any]) -> list[Change | None]:
    """Add a delete of the old key before each change of a key in `maxwell`, which has one record for both."""
    if format["name"] != "maxwell":
        return changes
    result: list[Change | None] = []
    for change in changes:
        if change is not None and change.old:
            database, table, columns = json.loads(change.key)
            before = [{name: change.old.get(name, value)} for each in columns for name, value in each.items()]
            if before != columns:
                old = json.dumps([database, table, before], ensure_ascii=False, separators=(",", ":"))
                result.append(Change("gone", old, change.partition))
        result.append(change)
    return result


def avro_reader(url: str) -> Avro:
    read = AvroDeserializer(SchemaRegistryClient({"url": url}))
    return lambda topic, part, data: read(data, SerializationContext(topic, part))


@pytest.mark.long
@pytest.mark.parametrize("server", SERVERS + (LONG_SERVERS if RUNS else []))
def test_random_tables_beside_random_changes_end_as_the_source_is(
    server: str,
    request: pytest.FixtureRequest,
    kafka_broker: KafkaBroker,
    schema_registry: SchemaRegistry,
    runner: Runner,
    unique_name: str,
    tmp_path: Path,
) -> None:
    """The records of each key form a chain, and the last one is the row of SELECT."""
    source: SqlServer = request.getfixturevalue(server)
    first = SEED or (random.SystemRandom().randrange(1, 10**9) if RUNS else SHORT_SEED)
    totals, failed = Totals(), list[str]()
    began = time.monotonic()
    for number in range(RUNS or 1):
        seed = first + number
        settings = choose_hostile_settings(random.Random(seed), 25)
        folder = tmp_path / str(number)
        folder.mkdir()
        begun = time.monotonic()
        with set_globals(source, settings) as taken:
            feed = Feed(f"{unique_name}s{number}", source, kafka_broker, folder, runner)
            run = RandomRun(feed, seed, avro_reader(schema_registry.url), schema_registry.url, totals)
            try:
                run.run()
            except Exception as error:
                run.wrong.append(f"{type(error).__name__}: {str(error)[-3000:]}")
        said = f"CHANGEFEED_SEED={seed} {server} {run.plan}: {'differs' if run.wrong else 'equal'}"
        print(f"{said}, {time.monotonic() - begun:.0f} s", flush=True)
        if run.wrong:
            failed.append(said + "".join(f"\n  {wrong[:3000]}" for wrong in run.wrong[:8]) + f"\n  under {taken}")
            print(failed[-1], flush=True)
        with contextlib.suppress(Exception):
            source.execute(f"DROP DATABASE `{feed.name}`", f"DROP DATABASE `{run.database}`")
    print(
        f"{server}: {RUNS or 1} runs from seed {first}, {len(failed)} differ, kills {dict(totals.kills)}, "
        f"{totals.tables} tables with {totals.rows} rows and {totals.records} records compared, "
        f"{time.monotonic() - began:.0f} s; "
        f"{dict(totals.statements)}; refused: {dict(totals.refusals)}",
        flush=True,
    )
    assert not failed, "\n".join(failed)


if RUNS:

    @pytest.mark.parametrize("pair", [MysqlServer, MariadbServer], indirect=True, ids=["mysql", "mariadb"])
    def test_random_tables_whose_source_is_replaced_end_as_the_new_source_is(
        pair: Pair, pair_feed: Feed, schema_registry: SchemaRegistry
    ) -> None:
        """During a snapshot and changes, a replica becomes the source."""
        source, other = pair

        def replaced() -> SqlServer:
            wait_until_caught_up(source, other)
            source.stop()
            stop_replicating(other)
            return other

        seed = SEED or random.SystemRandom().randrange(1, 10**9)
        totals = Totals()
        run = RandomRun(pair_feed, seed, avro_reader(schema_registry.url), schema_registry.url, totals)
        print(f"CHANGEFEED_SEED={seed} failover, {run.plan}", flush=True)
        run.run(replaced)
        print(f"failover: kills {dict(totals.kills)}, {totals.tables} tables, {totals.records} records", flush=True)
        assert run.wrong == []
