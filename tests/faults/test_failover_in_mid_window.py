"""Failover in the middle of a window: the published part is known, or nothing more is published."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from faults.conftest import Pair
from faults.feed import Feed, Runner
from faults.replica import replicate, replication_group, stop_replicating, wait_until_caught_up
from faults.test_changed_between_attempts import add_partitions
from faults.test_failover import kill_at, refusal_of
from kafka.admin import ConfigResource, ConfigResourceType
from long_form import long

from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.topics import TopicSettings, ensure_topics
from changefeed.model.topic_name import commit_log_topic
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.process import run_server
from devstack.spark_connect import SparkConnectServer
from devstack.sql_server import SqlServer

pytestmark = pytest.mark.timeout(900)

MARIADB = pytest.param(MariadbServer, marks=pytest.mark.extended)
SOURCE = "aaaaaaaa-0000-4000-8000-000000000001"
IN_MID_WINDOW = "after_transaction_commit:3"


def fail_over(feed: Feed, source: SqlServer, follower: SqlServer) -> None:
    """Make the follower the pipeline's source, after it has applied everything."""
    wait_until_caught_up(source, follower)
    stop_replicating(follower)
    feed.mysql = follower


def numbers_in(feed: Feed, table: str) -> Counter[int]:
    """By column n, the number of records of each row in the topic of a table without updates."""
    values = [json.loads(record.value) for record in feed.records(table)]
    within = [value.get("data") or value for value in values]
    return Counter((value.get("after") or value)["n"] for value in within)


def require_each_number_once(feed: Feed, table: str) -> None:
    found = numbers_in(feed, table)
    there = Counter(n for (n,) in feed.mysql.execute(f"SELECT n FROM `{feed.name}`.`{table}`"))
    assert (dict(there - found), dict(found - there)) == ({}, {}), "lost, and published more than once"


def insert(server: SqlServer, table: str, numbers: Iterable[int], columns: str = "n") -> None:
    """Run transactions of one to three statements with several rows each."""
    left, chosen = list(numbers), random.Random(7)
    with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        while left:
            for _ in range(chosen.randrange(1, 4)):
                size = chosen.randrange(1, 5)
                rows, left = left[:size], left[size:]
                if rows:
                    cursor.execute(f"INSERT INTO {table} ({columns}) VALUES " + ", ".join(f"({n})" for n in rows))
            connection.commit()


def written_as(server: SqlServer, database: str, numbers: Iterable[int], source: str = SOURCE) -> None:
    """For each number, in this order, run a transaction with the number in its GTID that inserts the account."""
    with server.connect(database=database, autocommit=False) as connection, connection.cursor() as cursor:
        for number in numbers:
            cursor.execute(f"SET GTID_NEXT = '{source}:{number}'")
            cursor.execute(f"INSERT INTO accounts VALUES ({number}, 1, 'x')")
            connection.commit()
        cursor.execute("SET GTID_NEXT = 'AUTOMATIC'")


@pytest.mark.parametrize(
    ("pair", "settings"),
    [
        (MysqlServer, {}),
        *long((MysqlServer, {"format": "maxwell"})),
        pytest.param(MysqlServer, {"topics": {"partitions": 3, "partition_by": ["n"]}}, marks=pytest.mark.extended),
        *long((MysqlServer, {"format": "flat"})),
        *long((MysqlServer, {"format": "cloudevents"})),
        pytest.param(MysqlServer, {"statements": "publish"}, marks=pytest.mark.extended),
        pytest.param(MariadbServer, {}, marks=pytest.mark.extended),
    ],
    indirect=["pair"],
    ids=["null", "maxwell", "partition_by", "flat", "cloudevents", "statements", "mariadb"],
)
def test_rows_without_a_key_are_published_once(pair: Pair, pair_feed: Feed, settings: dict[str, object]) -> None:
    """The replica divides statements into other events, so that rows have other positions in its binlog."""
    source, follower = pair
    pair_feed.settings |= {"topics": {"partitions": 3}, "tables": {"include": [f"{pair_feed.name}.plain"]}, **settings}
    pair_feed.configure()
    source.execute(f"CREATE TABLE `{pair_feed.name}`.plain (n INT)")
    pair_feed.run()
    insert(source, f"`{pair_feed.name}`.plain", range(321))
    kill_at(pair_feed, IN_MID_WINDOW)
    assert 0 < numbers_in(pair_feed, "plain").total() < 321
    fail_over(pair_feed, source, follower)
    insert(follower, f"`{pair_feed.name}`.plain", range(321, 340))
    pair_feed.run()
    require_each_number_once(pair_feed, "plain")
    assert {record.partition for record in pair_feed.records("plain")} == {0, 1, 2}


@pytest.mark.long
@pytest.mark.extended
def test_messages_of_an_outbox_without_a_key_are_published_once(pair: Pair, pair_feed: Feed) -> None:
    source, follower = pair
    table = f"`{pair_feed.name}`.events"
    pair_feed.settings |= {
        "topics": {"partitions": 3},
        "tables": {"include": [f"{pair_feed.name}.events"]},
        "outbox": {
            "tables": ["*.events"],
            "table.field.event.id": "n",
            "table.field.event.key": "about",
            "table.field.event.payload": "body",
            "route.by.field": "kind",
            "route.topic.replacement": f"{pair_feed.name}.made",
        },
    }
    pair_feed.configure()
    source.execute(
        f"CREATE TABLE {table} (n INT PRIMARY KEY, kind VARCHAR(9) DEFAULT 'any', about VARCHAR(9), "
        """body VARCHAR(40) DEFAULT '{"n": 0}')"""
    )
    pair_feed.run()
    insert(source, table, range(321))
    kill_at(pair_feed, IN_MID_WINDOW)
    fail_over(pair_feed, source, follower)
    insert(follower, table, range(321, 340))
    pair_feed.run()
    made = [dict(record.headers)["id"] for record in pair_feed.records("made")]
    assert Counter(made) == Counter(b"%d" % n for n in range(340))
    assert {record.key for record in pair_feed.records("made")} == {None}


IN_ORDER = list(range(1, 203))
BLOCKS = [*range(1001, 1080), *range(1, 60), *range(1080, 1110), *range(60, 94)]
SHUFFLED = random.Random(3).sample(IN_ORDER, len(IN_ORDER))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (BLOCKS, BLOCKS),
        *long((SHUFFLED, SHUFFLED)),
        pytest.param(SHUFFLED, IN_ORDER, marks=pytest.mark.extended),
        *long((IN_ORDER, SHUFFLED)),
    ],
    ids=["blocks", "shuffled", "old_shuffled", "new_shuffled"],
)
def test_numbers_of_gtids_need_not_rise_nor_have_one_order(
    pair: Pair, pair_feed: Feed, ours: list[int], theirs: list[int]
) -> None:
    """As with Group Replication, SET GTID_NEXT, and appliers that do not preserve the commit order."""
    source, follower = pair
    pair_feed.run()
    fail_over(pair_feed, source, follower)
    pair_feed.mysql = source
    written_as(source, pair_feed.name, ours)
    kill_at(pair_feed, IN_MID_WINDOW)
    written_as(follower, pair_feed.name, theirs)
    pair_feed.mysql = follower
    pair_feed.write(5)
    pair_feed.run()
    pair_feed.check(one_server=False)


@pytest.mark.extended
def test_a_real_group_gives_gtids_in_blocks(
    tmp_path: Path, kafka_broker: KafkaBroker, unique_name: str, runner: Runner
) -> None:
    with replication_group(tmp_path) as (first, second):
        feed = Feed(unique_name, first, kafka_broker, tmp_path, runner)
        feed.run()
        wait_until_caught_up(first, second)
        for number in range(0, 200, 2):
            for member, row in ((first, number), (second, number + 1)):
                member.execute(f"INSERT INTO `{feed.name}`.accounts VALUES ({row}, 1, 'x')")
        wait_until_caught_up(second, first)
        kill_at(feed, "after_transaction_commit:2")  # of three in a partition
        wait_until_caught_up(first, second)
        first.stop()
        feed.mysql = second
        feed.write(5)
        feed.run()
        feed.check(one_server=False)


@pytest.mark.long
@pytest.mark.extended
def test_transactions_of_several_sources_have_the_old_servers_order(pair: Pair, pair_feed: Feed) -> None:
    source, follower = pair
    pair_feed.run()
    for number in range(1, 160, 2):
        written_as(source, pair_feed.name, [number])
        written_as(source, pair_feed.name, [number + 1], SOURCE[:-1] + "2")
    kill_at(pair_feed, IN_MID_WINDOW)
    fail_over(pair_feed, source, follower)
    pair_feed.write(5)
    pair_feed.run()
    pair_feed.check(one_server=False)


@pytest.mark.extended
@pytest.mark.parametrize("pair", [MariadbServer], indirect=True)
def test_mariadbs_domains_have_the_old_servers_order(pair: Pair, pair_feed: Feed) -> None:
    source, follower = pair
    pair_feed.run()
    for number in range(60):
        source.execute(
            f"SET SESSION gtid_domain_id = {number % 3}",
            *[f"INSERT INTO `{pair_feed.name}`.accounts VALUES ({3 * number + row}, 1, 'x')" for row in range(3)],
        )
    kill_at(pair_feed, IN_MID_WINDOW)
    fail_over(pair_feed, source, follower)
    pair_feed.write(5)
    pair_feed.run()
    pair_feed.check(one_server=False)


@pytest.mark.extended
@pytest.mark.parametrize("pair", [MariadbServer], indirect=True)
def test_a_number_of_mariadb_that_does_not_rise_after_a_failover_is_refused(pair: Pair, pair_feed: Feed) -> None:
    """By its sequence number alone it would seem to be published already."""
    source, follower = pair
    pair_feed.write(20)
    pair_feed.run()
    fail_over(pair_feed, source, follower)
    pair_feed.write(2)
    insert = f"INSERT INTO `{pair_feed.name}`.journal (text) VALUES ('any')"
    follower.execute("SET SESSION gtid_seq_no = 3", insert, "SET SESSION gtid_seq_no = 1000", insert)
    refusal_of(pair_feed, "AccountingError", "0-2-3", "gtid_strict_mode", "Nothing was published", "Seek")


def test_a_transaction_without_a_gtid_that_may_follow_the_checkpoint_is_refused(pair: Pair, pair_feed: Feed) -> None:
    """gtid_mode=ON_PERMISSIVE: it is not known whether the transaction was published."""
    source, follower = pair
    pair_feed.write(10)
    pair_feed.run()
    fail_over(pair_feed, source, follower)
    follower.execute("SET GLOBAL gtid_mode = ON_PERMISSIVE", "FLUSH BINARY LOGS")
    for number in range(100, 105):
        follower.execute(
            "SET GTID_NEXT = 'ANONYMOUS'",
            f"INSERT INTO `{pair_feed.name}`.accounts VALUES ({number}, 1, 'x')",
            "SET GTID_NEXT = 'AUTOMATIC'",
        )
    follower.execute("FLUSH BINARY LOGS")
    refusal_of(pair_feed, "BinlogGoneError", "has no GTID", "gtid_mode", "Nothing was published", "seek")
    written_as(follower, pair_feed.name, range(201, 206))
    refusal_of(pair_feed, "BinlogGoneError", "has no GTID", "gtid_mode", "Nothing was published", "seek")


@pytest.mark.extended
def test_huge_and_partly_published_transactions_are_published_once(
    pair: Pair, pair_feed: Feed, spark_connect: SparkConnectServer
) -> None:
    """Slices begin inside the transaction, at other positions on each server."""
    source, follower = pair
    pair_feed.settings |= {"topics": {"partitions": 3}, "spark": {"master": "local[2]", "slice_bytes": 65536}}
    pair_feed.configure()
    source.execute(f"CREATE TABLE `{pair_feed.name}`.plain (n INT, text VARCHAR(2000))")
    pair_feed.run()
    with source.connect(database=pair_feed.name, autocommit=False) as connection, connection.cursor() as cursor:
        for first in range(0, 600, 20):
            rows = ", ".join(f"({n}, REPEAT('x', 2000))" for n in range(first, first + 20))
            cursor.execute(f"INSERT INTO plain VALUES {rows}")
        connection.commit()
    kill_at(pair_feed, IN_MID_WINDOW)
    assert 0 < numbers_in(pair_feed, "plain").total() < 600
    change_follower_logging(follower)
    fail_over(pair_feed, source, follower)
    pair_feed.settings["spark"] = {"connect": spark_connect.url, "slice_bytes": 65536}
    pair_feed.configure()
    pair_feed.run(spark=True)
    require_each_number_once(pair_feed, "plain")


def change_follower_logging(follower: SqlServer) -> None:
    """Begin a new binlog file, so that the follower's files begin at other transactions."""
    follower.execute("FLUSH BINARY LOGS")


@pytest.mark.long
@pytest.mark.extended
def test_a_second_failover_in_mid_window_is_refused_and_failing_back_too(pair: Pair, pair_feed: Feed) -> None:
    """The second server has published a part too, so only it can continue, and it does."""
    source, follower = pair
    pair_feed.write(20)
    pair_feed.run()
    pair_feed.write(60)
    kill_at(pair_feed, IN_MID_WINDOW)
    fail_over(pair_feed, source, follower)
    kill_at(pair_feed, "after_transaction_commit:1")
    pair_feed.mysql = source
    refusal_of(pair_feed, "AccountingError", "Nothing was published", "Point the connection at server")
    pair_feed.mysql = follower
    pair_feed.run()
    pair_feed.check(one_server=False)
    replicate(follower, source)
    fail_over(pair_feed, follower, source)
    pair_feed.write(5)
    pair_feed.run()
    pair_feed.check(one_server=False)


@pytest.mark.extended
def test_a_server_that_dies_in_its_first_window_after_a_failover_is_named(
    tmp_path: Path, pair: Pair, pair_feed: Feed
) -> None:
    """The checkpoint belongs to another server than the one that can end the window."""
    first, second = pair
    with run_server(MysqlServer(tmp_path / "c", options={"server_id": 3}, owner=ProcessId.own(), quick=True)) as third:
        replicate(second, third)
        pair_feed.write(20)
        pair_feed.run()
        fail_over(pair_feed, first, second)
        pair_feed.write(60)
        kill_at(pair_feed, "after_transaction_commit:2")
        ((uuid,),) = second.execute("SELECT @@server_uuid")
        fail_over(pair_feed, second, third)
        refusal_of(
            pair_feed, "AccountingError", f"Point the connection at server {uuid} again", "Nothing was published"
        )
        pair_feed.mysql = second
        pair_feed.run()
        pair_feed.check(one_server=False)


@pytest.mark.long
@pytest.mark.extended
def test_a_transform_that_drops_and_keys_rows_otherwise_is_published_once(pair: Pair, pair_feed: Feed) -> None:
    source, follower = pair
    folder = pair_feed.folder / "transforms"
    folder.mkdir(exist_ok=True)
    (folder / "some.py").write_text(
        "def transform(change):\n"
        "    if change.after['n'] % 5 == 0:\n"
        "        return None\n"
        "    change.after['twice'] = 2 * change.after['n']\n"
        "    return change\n"
    )
    pair_feed.settings |= {"topics": {"partitions": 3}, "transforms": [{"function": "some", "tables": "*.plain"}]}
    pair_feed.settings["tables"] = {"include": [f"{pair_feed.name}.plain"]}
    pair_feed.configure()
    source.execute(f"CREATE TABLE `{pair_feed.name}`.plain (n INT)")
    pair_feed.run()
    insert(source, f"`{pair_feed.name}`.plain", range(321))
    kill_at(pair_feed, IN_MID_WINDOW)
    add_partitions(pair_feed, "plain", 5)
    fail_over(pair_feed, source, follower)
    pair_feed.run()
    assert numbers_in(pair_feed, "plain") == Counter(n for n in range(321) if n % 5)


@pytest.mark.long
@pytest.mark.extended
def test_changed_rows_of_mysqls_tables_without_a_primary_key_are_refused(pair: Pair, pair_feed: Feed) -> None:
    """The replica finds them by HASH_SCAN, and logs them in the order of its table instead of the source's order."""
    source, follower = pair
    pair_feed.settings |= {"topics": {"partitions": 3}, "tables": {"include": [f"{pair_feed.name}.plain"]}}
    pair_feed.configure()
    table = f"`{pair_feed.name}`.plain"
    source.execute(f"CREATE TABLE {table} (n INT, v INT)")
    source.execute(f"INSERT INTO {table} VALUES " + ", ".join(f"({n}, 0)" for n in range(300)))
    pair_feed.run()
    for first in range(0, 300, 60):
        source.execute(f"UPDATE {table} SET v = 1 WHERE n >= {first} AND n < {first + 60} ORDER BY n DESC")
    kill_at(pair_feed, IN_MID_WINDOW)
    fail_over(pair_feed, source, follower)
    refusal_of(pair_feed, "AccountingError", f"{pair_feed.name}.plain", "primary key", "Nothing was published")
    pair_feed.mysql = source
    pair_feed.run()
    assert numbers_in(pair_feed, "plain") == Counter(2 * list(range(300)))


def mixed_transactions(server: SqlServer, name: str) -> None:
    """Run transactions with XA that end later or never, savepoints, triggers, tags and DDL, and rolled-back ones."""
    numbers = itertools.count()

    def insert_into(table: str, rows: int) -> str:
        return f"INSERT INTO `{name}`.{table} (n) VALUES " + ", ".join(f"({next(numbers)})" for _ in range(rows))

    for each in range(4):
        plain, more, keyed = insert_into("plain", 7), insert_into("plain", 3), insert_into("keyed", 4)
        server.execute(f"XA START 'x{each}'", plain, more, f"XA END 'x{each}'", f"XA PREPARE 'x{each}'")
        server.execute("BEGIN", keyed, "SAVEPOINT a", insert_into("plain", 3), "ROLLBACK TO a", "COMMIT")
        server.execute(f"ALTER TABLE `{name}`.triggers ADD c{each} INT", insert_into("triggers", 4))
        server.execute("BEGIN", insert_into("plain", 5), f"UPDATE `{name}`.keyed SET n = n + 500000 LIMIT 3", "COMMIT")
        server.execute(f"XA {'ROLLBACK' if each == 2 else 'COMMIT'} 'x{each}'")
        if isinstance(server, MariadbServer):
            temporary = f"CREATE TEMPORARY TABLE `{name}`.held (n INT)"
            server.execute("BEGIN", temporary, insert_into("plain", 2), "ROLLBACK")  # the server logs them
        else:
            server.execute("SET gtid_next = 'AUTOMATIC:tagged'", insert_into("plain", 5), insert_into("keyed", 3))
        server.execute(insert_into("excluded", 3), insert_into("myisam", 3), insert_into("plain", 8))


@pytest.mark.extended
@pytest.mark.parametrize("pair", [MysqlServer, MARIADB], indirect=True, ids=["mysql", "mariadb"])
def test_transactions_of_all_kinds_that_the_new_server_compresses_are_published_once(
    pair: Pair, pair_feed: Feed
) -> None:
    """MariaDB's replica does not log what the source logged and rolled back."""
    source, follower = pair
    tables = ("plain", "keyed", "triggers", "triggered", "myisam")
    database = f"`{pair_feed.name}`"
    pair_feed.settings |= {
        "topics": {"partitions": 3},
        "format": {"name": "debezium", "provide.transaction.metadata": True},
        "tables": {"include": [f"{pair_feed.name}.{table}" for table in tables]},
    }
    pair_feed.configure(transaction_rows=15)
    source.execute(
        *(f"CREATE TABLE {database}.{table} (n INT, text CHAR(200) DEFAULT 'text')" for table in ("plain", "excluded")),
        *(f"CREATE TABLE {database}.{table} (n INT PRIMARY KEY)" for table in ("keyed", "triggers")),
        f"CREATE TABLE {database}.triggered (n INT)",
        f"CREATE TABLE {database}.myisam (n INT) ENGINE=MyISAM",
        f"CREATE TRIGGER {database}.first_one AFTER INSERT ON {database}.triggers FOR EACH ROW "
        f"INSERT INTO {database}.triggered VALUES (NEW.n), (NEW.n + 1000000)",
        f"CREATE TRIGGER {database}.second_one AFTER INSERT ON {database}.triggers FOR EACH ROW "
        f"INSERT INTO {database}.excluded (n) VALUES (NEW.n)",
    )
    pair_feed.run()
    if isinstance(source, MariadbServer):
        compress = ("SET GLOBAL log_bin_compress = ON", "SET GLOBAL log_bin_compress_min_len = 10")
        follower.execute("STOP SLAVE", *compress, "START SLAVE")
    else:
        follower.execute("STOP REPLICA", "SET GLOBAL binlog_transaction_compression = ON", "START REPLICA")
    mixed_transactions(source, pair_feed.name)
    kill_at(pair_feed, IN_MID_WINDOW)
    fail_over(pair_feed, source, follower)
    pair_feed.run()
    for table in tables:
        left, seen = Counter[int](), Counter[object]()
        for record in pair_feed.records(table):
            value = json.loads(record.value) if record.value else {}
            seen[
                dict(record.headers)["changefeed.gtid"], record.key, str(value.get("before")), str(value.get("after"))
            ] += 1
            left.update(image["n"] for image in [value.get("after")] if image)
            left.subtract(image["n"] for image in [value.get("before")] if image)
        assert max(seen.values()) == 1, table
        assert +left == Counter(n for (n,) in follower.execute(f"SELECT n FROM {database}.{table}")), table
    ends = Counter(
        (value["status"], value["id"])
        for value in (json.loads(each.value) for each in pair_feed.records("transaction"))
    )
    assert set(ends.values()) == {1}
    assert {gtid for status, gtid in ends if status == "BEGIN"} == {gtid for status, gtid in ends if status == "END"}


@pytest.mark.extended
def test_a_new_server_with_other_rows_under_the_same_gtids_is_refused(pair: Pair, pair_feed: Feed) -> None:
    """Messages are counted by topic-partition before anything is published."""
    source, follower = pair
    pair_feed.run()
    fail_over(pair_feed, source, follower)
    pair_feed.mysql = source
    written_as(source, pair_feed.name, IN_ORDER)
    kill_at(pair_feed, IN_MID_WINDOW)
    with follower.connect(database=pair_feed.name, autocommit=False) as connection, connection.cursor() as cursor:
        for number in IN_ORDER:
            cursor.execute(f"SET GTID_NEXT = '{SOURCE}:{number}'")
            if number > 20:
                cursor.execute(f"INSERT INTO accounts VALUES ({number}, 1, 'x')")
            connection.commit()
        cursor.execute("SET GTID_NEXT = 'AUTOMATIC'")
    pair_feed.mysql = follower
    refusal_of(pair_feed, "AccountingError", "do not have the same rows", "Nothing was published")


@pytest.mark.extended
def test_order_that_the_commit_log_does_not_take_stops_the_run_until_it_does(pair: Pair, pair_feed: Feed) -> None:
    source, follower = pair
    log = commit_log_topic(pair_feed.name)
    connection = KafkaConnection(pair_feed.kafka.bootstrap)
    limit = {"cleanup.policy": "compact", "max.message.bytes": "6000"}
    ensure_topics(connection, {log: TopicSettings(1, 1, limit)})
    pair_feed.run()
    fail_over(pair_feed, source, follower)
    pair_feed.mysql = source
    numbers = random.Random(3).sample(range(1, 1201), 1200)
    written_as(source, pair_feed.name, numbers)
    refusal_of(pair_feed, log, "max.message.bytes")
    with connection.admin() as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, log, {**limit, "max.message.bytes": "1000000"})])
    kill_at(pair_feed, IN_MID_WINDOW)
    written_as(follower, pair_feed.name, numbers)
    pair_feed.mysql = follower
    pair_feed.run()
    pair_feed.check(one_server=False)


@pytest.mark.extended
def test_failover_without_gtids_of_rows_without_a_key_in_mid_window_is_refused(
    tmp_path: Path, kafka_broker: KafkaBroker, unique_name: str, runner: Runner
) -> None:
    """Without GTIDs it is not known that the two servers have the same transactions."""
    off = {"gtid-mode": "OFF", "enforce-gtid-consistency": "OFF"}
    ours, theirs = (MysqlServer(tmp_path / name, options=off, owner=ProcessId.own(), quick=True) for name in "ab")
    with run_server(ours) as source, run_server(theirs) as other:
        feed = Feed(unique_name, source, kafka_broker, tmp_path, runner)
        table = f"`{unique_name}`.plain"
        other.execute(f"CREATE DATABASE `{unique_name}`")
        for server in (source, other):
            server.execute(f"CREATE TABLE {table} (n INT)")
        feed.run()
        for server in (source, other):
            insert(server, table, range(200))
        kill_at(feed, "after_transaction_commit:2")
        feed.mysql = other
        refusal_of(feed, "without GTIDs the position cannot be found again", "gtid_mode=ON")
        feed.mysql = source
        feed.run()
        require_each_number_once(feed, "plain")
