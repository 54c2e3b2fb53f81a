"""Forged records in a pipeline's topics can change captured tables of a follower, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from confluent_kafka import Producer
from integration.followed import Followed

from changefeed.ddl.session import Flavour, Server
from changefeed.errors import BadRecordError, ChangefeedError, FollowerError, SettingsError
from changefeed.formats.reader import Envelope
from changefeed.formats.style import DEFAULT_STYLE
from changefeed.kafka.commit_log.read_tables import AllReadRecord, TableReadRecord
from changefeed.kafka.commit_log.records import LogRecord
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.topic_name import commit_log_topic
from changefeed.replicate.batch_sessions import BatchSessions
from changefeed.replicate.commits import Commits
from changefeed.replicate.ddl_record import DdlRecord
from changefeed.replicate.ddl_runner import DdlRunner
from changefeed.replicate.filling import Filling
from changefeed.replicate.follower_tables import FollowerTables
from changefeed.replicate.missing_tables import MissingTables
from changefeed.replicate.position_table import FollowerPosition, PositionTable
from changefeed.replicate.refills import Refills
from changefeed.replicate.scope import Scope
from changefeed.replicate.statements import Statements
from changefeed.settings.pipeline_settings import TableSettings
from changefeed.source.mysql.follower_session import FollowerSession
from devstack.kafka import KafkaBroker
from devstack.sql_server import SqlServer

pytestmark = pytest.mark.extended

AT = BinlogCoordinates("binlog.000001", 4)


@pytest.fixture(params=["mysql", "mariadb"])
def follower(request: pytest.FixtureRequest) -> SqlServer:
    server: SqlServer = request.getfixturevalue(f"{request.param}_follower")
    return server


@pytest.fixture
def session(follower: SqlServer) -> Iterator[FollowerSession]:
    with FollowerSession(MysqlConnection.from_uri(follower.root_url)) as opened:
        yield opened


@pytest.fixture
def payroll(follower: SqlServer, unique_name: str) -> Iterator[str]:
    """A database on the follower that the pipeline does not capture."""
    name = f"payroll_{unique_name}"
    follower.execute(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.salaries (id INT PRIMARY KEY, amount INT)",
        f"INSERT INTO {name}.salaries VALUES (1, 100)",
    )
    yield name
    follower.execute(f"DROP DATABASE IF EXISTS {name}", f"DROP USER IF EXISTS forged_{unique_name}")


def is_untouched(follower: SqlServer, payroll: str, name: str) -> bool:
    """Whether no attack has succeeded."""
    users = follower.execute(f"SELECT 1 FROM mysql.user WHERE user = 'forged_{name}'")
    wrote = follower.execute("SELECT @@GLOBAL.init_connect")[0][0]
    amount = follower.execute(f"SELECT amount FROM {payroll}.salaries")
    tables = follower.execute(f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{payroll}'")
    return (list(users), wrote, list(amount), list(tables)) == ([], "", [(100,)], [("salaries",)])


# --- the commit log


@pytest.fixture
def followed(
    request: pytest.FixtureRequest, follower: SqlServer, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> Iterator[Followed]:
    kind = "mysql" if "mysql" in request.node.name else "mariadb"
    source: SqlServer = request.getfixturevalue(f"{kind}_server")
    pipeline = Followed(unique_name, source, follower, kafka_broker, tmp_path, {"start": "snapshot"})
    yield pipeline
    pipeline.drop()


def forge(followed: Followed, *records: LogRecord) -> None:
    producer = Producer({"bootstrap.servers": followed.kafka.bootstrap})
    for record in records:
        producer.produce(commit_log_topic(followed.name), record.value(), record.key(followed.name), 0)
    producer.flush(20)


def test_a_forged_table_of_a_snapshot_runs_nothing_but_its_creation(
    followed: Followed, follower: SqlServer, payroll: str
) -> None:
    name = followed.name
    followed.source.execute(f"CREATE DATABASE {name}_a", f"CREATE TABLE {name}_a.orders (id INT PRIMARY KEY)")
    followed.publish()
    followed.source.execute(f"INSERT INTO {name}_a.orders VALUES (1)")
    followed.publish()
    seals = followed.connections.commit_log().read().seals
    at = str(seals[max(seals)].window.head)
    create = "CREATE TABLE `orders` (`id` int NOT NULL, PRIMARY KEY (`id`)) ENGINE=InnoDB"
    database = f"CREATE DATABASE `{name}_a`"
    hostile = [
        (database, f"CREATE USER forged_{name} IDENTIFIED BY 'x'"),
        (database, f"DROP DATABASE {payroll}"),
        (f"DROP DATABASE {payroll}", create),
        (f"CREATE DATABASE `{name}_a`; DROP DATABASE {payroll}", create),
        (database, f"CREATE TABLE {payroll}.orders (id INT PRIMARY KEY)"),
        (database, f"CREATE TABLE orders (id INT PRIMARY KEY) SELECT * FROM {payroll}.salaries"),
        (database, "CREATE TABLE orders (id INT PRIMARY KEY) ENGINE=FEDERATED CONNECTION='mysql://u@10.0.0.1/d/t'"),
        (database, "CREATE TABLE orders (id INT PRIMARY KEY) DATA DIRECTORY='/tmp'"),
        (database, "CREATE TABLE orders (id INT PRIMARY KEY, s TEXT DEFAULT (LOAD_FILE('/etc/passwd')))"),
        (f"SET GLOBAL init_connect = 'DROP DATABASE {payroll}'", create),
    ]
    for create_database, create_table in hostile:
        record = TableReadRecord(
            f"{name}_a.orders", "s", at, create_database, create_table, True, f"{name}_a.orders", 0
        )
        forge(followed, record)
        with pytest.raises(ChangefeedError, match="is refused"):
            followed.follow()
        assert is_untouched(follower, payroll, name), (create_database, create_table)
    forge(followed, AllReadRecord(at, {f"{name}_a": f"DROP DATABASE {payroll}"}))
    with pytest.raises(ChangefeedError, match="is refused"):
        followed.follow()
    assert is_untouched(follower, payroll, name)


# --- the topic of schema changes


def runner_of(session: FollowerSession, name: str, *include: str) -> DdlRunner:
    server = Server(Flavour.MARIADB, (11, 4, 0)) if session.is_mariadb else Server()
    scope = Scope(server, include)
    positions = PositionTable(session, name)
    position = FollowerPosition(name, "uuid", AT, (), {})
    if positions.load() is None:
        positions.begin(position)
    filling = Filling(session, position.fill, {}, None, AT, scope)
    commits = Commits(session, BatchSessions(), positions, position, filling)
    tables = FollowerTables(commits, MissingTables(filling), DEFAULT_STYLE, True, lambda *_: True, scope)
    return DdlRunner(commits, tables, server, Refills(commits, tables, lambda _: iter(())))


def record(sql: str, database: str, **session: object) -> bytes:
    return orjson.dumps({"ddl": sql, "databaseName": database, "session": {"timestamp": "1790000000", **session}})


def test_forged_ddl_changes_captured_tables_only(
    follower: SqlServer, session: FollowerSession, payroll: str, unique_name: str
) -> None:
    shop, is_mariadb = f"{unique_name}_a", session.is_mariadb
    follower.execute(f"CREATE DATABASE {shop}", f"CREATE TABLE {shop}.orders (id INT PRIMARY KEY)")
    executable = "/*M!100100" if is_mariadb else "/*!80000"
    hostile = [
        f"CREATE USER forged_{unique_name} IDENTIFIED BY 'x'",
        f"GRANT ALL ON *.* TO forged_{unique_name}",
        f"DROP DATABASE {payroll}",
        f"DROP TABLE {payroll}.salaries",
        f"DROP TABLE {shop}.others",
        f"TRUNCATE {payroll}.salaries",
        f"RENAME TABLE {payroll}.salaries TO {shop}.orders2",
        f"RENAME TABLE {shop}.orders TO mysql.orders",
        f"ALTER TABLE {shop}.orders RENAME TO {payroll}.orders",
        f"ALTER TABLE {shop}.orders COMMENT 'x'; DROP DATABASE {payroll}",
        f"ALTER TABLE {shop}.orders ENGINE = FEDERATED CONNECTION = 'mysql://u@10.0.0.1/d/t'",
        f"ALTER TABLE {shop}.orders ADD COLUMN engine INT, ENGINE CONNECT",
        f"ALTER TABLE {shop}.orders ADD s TEXT DEFAULT (LOAD_FILE('/etc/passwd'))",
        f"ALTER TABLE {shop}.orders PARTITION BY HASH (id) (PARTITION p DATA DIRECTORY '/tmp')",
        f"CREATE TABLE {shop}.orders_2 (id INT) ENGINE='MERGE' UNION=({shop}.orders)",
        f"CREATE TABLE {shop}.orders_2 (id INT) {executable} ENGINE=FEDERATED */ CONNECTION='mysql://u@10.0.0.1/d/t'",
        f"CREATE TABLE {shop}.orders_2 (id INT) DATA DIRECTORY = '/tmp'",
        f"CREATE TABLE {shop}.orders_2 LIKE {payroll}.salaries",
        f"CREATE TABLE {shop}.orders_2 AS SELECT * FROM {payroll}.salaries",
        f"CREATE TABLE {shop}.orders_2 (id INT CHECK (id < (SELECT 1)))",
        f"CREATE TRIGGER {shop}.t AFTER INSERT ON {shop}.orders FOR EACH ROW DELETE FROM {payroll}.salaries",
        f"CREATE DEFINER=root@localhost VIEW {shop}.v AS SELECT * FROM {payroll}.salaries",
        f"CREATE EVENT {shop}.e ON SCHEDULE EVERY 1 SECOND DO DROP DATABASE {payroll}",
        f"SET GLOBAL init_connect = 'DROP DATABASE {payroll}'",
        f"DELETE FROM {payroll}.salaries",
        "INSTALL PLUGIN x SONAME 'x.so'",
        f"ALTER TABLE {shop}.orders ADD FOREIGN KEY (id) REFERENCES {payroll}.salaries (id)",
        f"CREATE TABLE {shop}.orders_2 (a INT) /*!999999 /* /* */ */ ENGINE=FEDERATED COMMENT '*/'",
        f"CREATE TABLE {shop}.orders_2 (a INT, /*!９９９９９９ INT) ENGINE=MERGE COMMENT='*/ b INT) -- ' */",
        f"CREATE TABLE {shop}.orders_2 (a INT DEFAULT (1 --\x7f'\n)) ENGINE=MERGE --\x7f'))",
    ]
    if is_mariadb:
        hostile += [
            f"SET STATEMENT default_storage_engine = 'FEDERATED' FOR CREATE TABLE {shop}.orders_2 (id INT)",
            f"CREATE OR REPLACE TABLE {payroll}.salaries (id INT)",
            f"ALTER TABLE {shop}.orders ADD n INT DEFAULT (SETVAL({payroll}.numbers, 1000))",
        ]
    runner = runner_of(session, unique_name, f"{shop}.orders*")
    before = follower.execute(f"SHOW CREATE TABLE {shop}.orders")
    for sql in hostile:
        with pytest.raises(ChangefeedError, match=r"is refused|cannot be read from its text|statement format"):
            runner.run_record(record(sql, shop), AT)
        assert is_untouched(follower, payroll, unique_name), sql
        assert list(follower.execute(f"SHOW CREATE TABLE {shop}.orders")) == list(before), sql
        assert [row[0] for row in follower.execute(f"SHOW TABLES FROM {shop}")] == ["orders"], sql
    follower.execute(f"DROP DATABASE {shop}", f"DELETE FROM changefeed.followed WHERE pipeline = '{unique_name}'")


def test_forged_drop_drops_captured_tables_only(
    follower: SqlServer, session: FollowerSession, payroll: str, unique_name: str
) -> None:
    shop = f"{unique_name}_a"
    executable = "/*M!100100" if session.is_mariadb else "/*!80000"
    follower.execute(f"CREATE DATABASE {shop}")
    for others in (f", {payroll}.salaries", f"{executable} , {payroll}.salaries */"):
        sql = f"DROP TABLE {shop}.orders {others}"
        follower.execute(f"CREATE TABLE {shop}.orders (id INT)")
        runner = runner_of(session, unique_name, f"{shop}.orders*")
        with FollowerSession(session.connection) as writing, runner.commits.batches.running([writing]):
            runner.run_record(record(sql, shop), AT)
        assert not list(follower.execute(f"SHOW TABLES FROM {shop}")), sql
        assert is_untouched(follower, payroll, unique_name), sql
        follower.execute(f"DELETE FROM changefeed.followed WHERE pipeline = '{unique_name}'")
    follower.execute(f"DROP DATABASE {shop}")


def test_a_database_is_dropped_with_captured_tables_only(
    follower: SqlServer, session: FollowerSession, unique_name: str
) -> None:
    shop = f"{unique_name}_a"
    follower.execute(f"CREATE DATABASE {shop}", *(f"CREATE TABLE {shop}.{name} (id INT)" for name in ("orders", "own")))
    runner = runner_of(session, unique_name, f"{shop}.orders")
    statements = [f"DROP DATABASE {shop}"] + [f"CREATE OR REPLACE DATABASE {shop}"] * session.is_mariadb
    for sql in statements:
        with pytest.raises(FollowerError, match="'own' and 0 more tables that the pipeline does not capture"):
            runner.run_record(record(sql, shop), AT)
        assert [row[0] for row in follower.execute(f"SHOW TABLES FROM {shop}")] == ["orders", "own"], sql
    follower.execute(f"DROP TABLE {shop}.own")
    with FollowerSession(session.connection) as writing, runner.commits.batches.running([writing]):
        assert runner.run_record(record(statements[0], shop), AT)
    assert not list(follower.execute(f"SHOW DATABASES LIKE '{shop}'"))
    follower.execute(f"DELETE FROM changefeed.followed WHERE pipeline = '{unique_name}'")


def test_forged_ddl_session_sets_nothing_else(
    follower: SqlServer, session: FollowerSession, payroll: str, unique_name: str
) -> None:
    shop = f"{unique_name}_a"
    follower.execute(f"CREATE DATABASE {shop}")
    runner = runner_of(session, unique_name, f"{shop}.*")
    hostile: list[dict[str, object]] = [
        {"insert_id": f"1, GLOBAL init_connect = 'DROP DATABASE {payroll}'"},
        {"timestamp": f"1, GLOBAL init_connect = 'DROP DATABASE {payroll}'"},
        {"user_variables": [{"name": "a", "type": "integer", "value": "1, GLOBAL init_connect = 'x'"}]},
        {"user_variables": [{"name": "a", "type": "string", "collation": 45, "value": "', GLOBAL init_connect = 'x"}]},
        {"sql_log_bin": False},
        {"default_storage_engine": "BLACKHOLE"},
        {"sql_mode": "ANSI_QUOTES"},
    ]
    for values in hostile:
        with pytest.raises(BadRecordError, match="no source logs"):
            runner.run_record(record("CREATE TABLE t (id INT)", shop, **values), AT)
        assert is_untouched(follower, payroll, unique_name), values
        assert not list(follower.execute(f"SHOW TABLES FROM {shop}"))
    ansi = 512 if session.is_mariadb else 1 << 18  # modes that include ANSI_QUOTES
    forged = DdlRecord.of(record('CREATE TABLE t (id INT) COMMENT "a"', shop, sql_mode=ansi), runner.server)
    with pytest.raises(ChangefeedError, match=r"quotes and backslashes"):
        forged.run(session)
    follower.execute(f"DROP DATABASE {shop}", f"DELETE FROM changefeed.followed WHERE pipeline = '{unique_name}'")


# --- the topics of tables


def test_a_forged_row_changes_no_table_that_is_not_captured(
    session: FollowerSession, payroll: str, unique_name: str
) -> None:
    tables = runner_of(session, unique_name, f"{unique_name}_a.*").tables
    for database, table in ((payroll, "salaries"), ("mysql", "global_priv" if session.is_mariadb else "user")):
        with pytest.raises(ChangefeedError, match="does not match"):
            tables.changes_of(database, table)


def test_a_forged_statement_writes_the_table_of_its_record_only(
    session: FollowerSession, payroll: str, unique_name: str
) -> None:
    runner = runner_of(session, unique_name, "shop.*")
    captures = TableSettings(include=["shop.*"]).matches
    statements = Statements(BatchSessions(), runner.server, True, captures, runner.refills)
    fields = {
        "sql": f"UPDATE {payroll}.salaries SET amount = 0",
        "database": payroll,
        "tables": [f"{payroll}.salaries"],
        "thread_specific": False,
        "error_code": 0,
        "doubt": "",
        "session": {"timestamp": "1790000000"},
    }
    forged = Envelope("q", "shop", "orders", None, None, "binlog.000001", 4, "", fields)
    with pytest.raises(SettingsError, match="writes another table"):
        statements.check(forged)
