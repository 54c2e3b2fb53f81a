"""DDL that a killed run had begun takes effect once, whether or not it ran before the kill."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import orjson
import pytest

from changefeed.ddl.session import Flavour, Server
from changefeed.errors import BadRecordError, FollowerError, FollowerUnavailableError
from changefeed.formats.style import DEFAULT_STYLE
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.replicate.batch_sessions import BatchSessions
from changefeed.replicate.commits import Commits
from changefeed.replicate.ddl_record import DdlRecord, digest_tables
from changefeed.replicate.ddl_runner import DdlRunner
from changefeed.replicate.filling import Filling
from changefeed.replicate.follower_tables import FollowerTables
from changefeed.replicate.missing_tables import MissingTables
from changefeed.replicate.position_table import BegunDdl, FollowerPosition, PositionTable
from changefeed.replicate.refills import Refills
from changefeed.replicate.scope import Scope
from changefeed.source.mysql.follower_session import FollowerSession
from devstack.sql_server import SqlServer

pytestmark = pytest.mark.extended

AT = BinlogCoordinates("binlog.000001", 4)


@pytest.fixture(params=["mysql", "mariadb"])
def follower(request: pytest.FixtureRequest) -> SqlServer:
    found: SqlServer = request.getfixturevalue(f"{request.param}_follower")
    return found


@pytest.fixture
def session(follower: SqlServer) -> Iterator[FollowerSession]:
    with FollowerSession(MysqlConnection.from_uri(follower.root_url)) as opened:
        yield opened


def record(sql: str, database: str, **session: object) -> bytes:
    return orjson.dumps({"ddl": sql, "databaseName": database, "session": {"timestamp": "1790000000", **session}})


def runner_of(session: FollowerSession, name: str, record: bytes, before: str) -> DdlRunner:
    server = Server(Flavour.MARIADB if session.is_mariadb else Flavour.MYSQL)
    scope = Scope(server)
    positions = PositionTable(session, name)
    if positions.load() is None:
        positions.begin(FollowerPosition(name, "uuid", AT, (), {}))
    position = positions.load()
    assert position is not None
    position = positions.move(position, AT, begun_ddl=BegunDdl(record.decode(), before))
    filling = Filling(session, position.fill, {}, None, position.coordinates, scope)
    commits = Commits(session, BatchSessions(), positions, position, filling)
    tables = FollowerTables(commits, MissingTables(filling), DEFAULT_STYLE, True, lambda *_: True, scope)
    return DdlRunner(commits, tables, server, Refills(commits, tables, lambda _: iter(())))


TABLES = [
    "CREATE TABLE one (id INT PRIMARY KEY, n INT)",
    "CREATE TABLE other LIKE one",
    "CREATE TABLE parted (id INT PRIMARY KEY, n INT) PARTITION BY RANGE (id) "
    "(PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN MAXVALUE)",
    "INSERT INTO one VALUES (1, 1)",
    "INSERT INTO other VALUES (2, 2)",
    "INSERT INTO parted VALUES (5, 5), (50, 50)",
]
STATEMENTS = [
    "RENAME TABLE one TO swap, other TO one, swap TO other",
    "RENAME TABLE one TO new",
    "ALTER TABLE parted EXCHANGE PARTITION p0 WITH TABLE other WITHOUT VALIDATION",
    "ALTER TABLE one ADD COLUMN (m INT DEFAULT 5)",
    "ALTER TABLE one ADD INDEX (n)",
    "ALTER TABLE one AUTO_INCREMENT = 77",
    "ALTER TABLE parted TRUNCATE PARTITION p1",
    "ALTER TABLE one ENGINE = InnoDB",
    "TRUNCATE TABLE one",
    "DROP TABLE one, other",
    "CREATE TABLE new AS SELECT * FROM one",
    "CREATE TABLE IF NOT EXISTS one (other INT)",
    "CREATE TABLE new LIKE one",
    "ALTER TABLE one COMMENT 'it''s 100%'",
    "ALTER DATABASE CHARACTER SET latin1",
]


def show_tables(server: SqlServer, database: str) -> dict[str, object]:
    tables = [row[0] for row in server.execute("SHOW TABLES", database=database)]
    found: dict[str, object] = {
        table: (server.execute(f"SHOW CREATE TABLE {table}", database=database)[0][1],
                server.execute(f"SELECT * FROM {table} ORDER BY 1", database=database))
        for table in tables
    }  # fmt: skip
    return {"": server.execute(f"SHOW CREATE DATABASE {database}")[0][1].replace(database, ""), **found}


@pytest.mark.parametrize("sql", STATEMENTS)
def test_begun_ddl_takes_effect_once_whether_it_ran_or_not(
    follower: SqlServer, session: FollowerSession, unique_name: str, sql: str
) -> None:
    ends = []
    for number, ran in enumerate((True, False)):
        database = f"{unique_name}_{number}"
        follower.execute(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
        follower.execute(*TABLES, database=database)
        value = record(sql, database)
        ddl = DdlRecord.of(value, Server(Flavour.MARIADB if session.is_mariadb else Flavour.MYSQL))
        runner = runner_of(session, database, value, digest_tables(session, ddl))
        if ran:
            ddl.run(session)
        runner.finish_begun_ddl()
        assert (runner.commits.position.coordinates.position, runner.commits.position.begun_ddl) == (5, None)
        ends.append(show_tables(follower, database))
        follower.execute(f"DROP DATABASE {database}")
    assert ends[0] == ends[1]


def test_ddl_runs_in_the_session_of_its_record(follower: SqlServer, session: FollowerSession, unique_name: str) -> None:
    server = Server(Flavour.MARIADB if session.is_mariadb else Flavour.MYSQL)
    follower.execute(f"CREATE DATABASE {unique_name} CHARACTER SET latin1")
    latin1_bin = 47
    for sql, said in (
        ('CREATE TABLE "a" (n INT, d DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6))', {"sql_mode": 4}),
        ("INSERT INTO a (n) VALUES (1)", {}),
        ("ALTER TABLE a ADD COLUMN t DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)",
         {"timestamp": "1790000000.123456", "time_zone": "+02:00", "collation_server": latin1_bin}),
        ("ALTER TABLE a ADD FOREIGN KEY (n) REFERENCES nowhere (id)", {"foreign_key_checks": False}),
    ):  # fmt: skip
        DdlRecord.of(record(sql, unique_name, **said), server).run(session)
    row = follower.execute(f"SELECT CAST(t AS CHAR) FROM {unique_name}.a")
    assert row == [("2026-09-21 16:13:20.123456",)]
    with pytest.raises(FollowerError, match=r"The statement of the source is 'ALTER TABLE a ADD FOREIGN KEY"):
        DdlRecord.of(record("ALTER TABLE a ADD FOREIGN KEY (n) REFERENCES nowhere2 (id)", unique_name), server).run(
            session
        )
    follower.execute(f"DROP DATABASE {unique_name}")


def test_a_record_without_a_session_is_refused() -> None:
    with pytest.raises(BadRecordError, match="is not a record of a schema change"):
        DdlRecord.of(b'{"ddl": "CREATE TABLE t (id INT)", "databaseName": "d"}', Server())


def test_a_follower_that_refuses_the_login_is_named_as_the_follower(mysql_follower: SqlServer) -> None:
    wrong = replace(MysqlConnection.from_uri(mysql_follower.root_url), password="wrong")
    with pytest.raises(FollowerError, match=r"the follower at .*1045"):
        FollowerSession(wrong)


def test_a_follower_that_goes_away_while_it_is_read_can_be_tried_again(mysql_follower: SqlServer) -> None:
    with FollowerSession(MysqlConnection.from_uri(mysql_follower.root_url)) as opened:
        (own,) = opened.row("SELECT CONNECTION_ID()")
        mysql_follower.execute(f"KILL {own}")
        with pytest.raises(FollowerUnavailableError, match="the follower at"):
            opened.rows("SELECT 1")
