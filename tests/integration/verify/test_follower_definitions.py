"""verify of a follower compares rows and table definitions, and names each difference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from integration.followed import Followed
from run_verify import run_verify

from changefeed.model.connection import MysqlConnection
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.table_definition import DefinitionReader
from changefeed.verify.follower_definitions import DefinitionComparison, compare_definitions
from changefeed.verify.report import TableAccount, VerifyReport, summary
from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.sql_server import SqlServer

EVERYTHING = (
    "CREATE TABLE everything (id INT AUTO_INCREMENT, b TINYINT(1) DEFAULT 1, c VARCHAR(20) DEFAULT 'a''b', "
    "d DECIMAL(5,2) DEFAULT 1.5, e ENUM('int(3)', 'y') DEFAULT 'y', "
    "f TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3), "
    "g INT GENERATED ALWAYS AS (b * 2 + 1) VIRTUAL, h VARCHAR(30) GENERATED ALWAYS AS (CONCAT(c, 'x')) STORED, "
    "i JSON, j CHAR(3) CHARACTER SET latin1 COLLATE latin1_bin, k VARCHAR(9) CHARACTER SET utf8, "
    "l INT(5) UNSIGNED ZEROFILL, m BIT(3) DEFAULT b'101', n VARBINARY(4) DEFAULT 'ab', p YEAR, "
    "q INT DEFAULT 5 COMMENT 'it''s', r GEOMETRYCOLLECTION, s POINT NOT NULL, t TEXT, u DOUBLE DEFAULT 1e10, "
    "v DATE DEFAULT '2026-01-01', w SET('a', 'b') DEFAULT 'a,b', x DATETIME DEFAULT '2026-01-01 00:00:00', "
    "PRIMARY KEY (id), UNIQUE KEY uq (c(5), d), KEY ij (j), SPATIAL KEY (s), FULLTEXT KEY ft (t)) "
    "COMMENT 'a table' DEFAULT CHARSET utf8mb4 COLLATE utf8mb4_general_ci"
)
TABLES = (
    EVERYTHING,
    "CREATE TABLE child (id INT PRIMARY KEY, parent INT, a INT, KEY (a), FOREIGN KEY (parent) REFERENCES everything "
    "(id) ON DELETE CASCADE, CONSTRAINT named FOREIGN KEY (a) REFERENCES everything (id)) ROW_FORMAT=COMPRESSED "
    "CHARSET utf8",
    "CREATE TABLE parted (id INT, at DATE, PRIMARY KEY (id, at)) CHARSET latin1 PARTITION BY RANGE (YEAR(at)) "
    "SUBPARTITION BY HASH (id) SUBPARTITIONS 2 (PARTITION p0 VALUES LESS THAN (2020), PARTITION p1 VALUES LESS THAN "
    "MAXVALUE)",
    "CREATE TABLE listed (id INT, PRIMARY KEY (id)) CHARSET latin1 PARTITION BY KEY () PARTITIONS 3",
    "CREATE TABLE hashed (id INT, b BINARY(4) DEFAULT 'ab', c VARBINARY(4) DEFAULT X'0061', PRIMARY KEY (id)) CHARSET "
    "latin1 PARTITION BY RANGE (MOD(id, 9)) SUBPARTITION BY HASH (id + 1) (PARTITION p0 VALUES LESS THAN MAXVALUE)",
)
"""Tables whose definitions are the same in every version."""
NAMES = ("everything", "child", "parted", "listed", "hashed")


@pytest.mark.parametrize(
    ("source", "follower"),
    [
        ("mysql_server", "mysql_server"),
        ("mysql_80_server", "mysql_server"),
        pytest.param("mysql_57_server", "mysql_server", marks=pytest.mark.extended),
        ("mysql_server", "mariadb_server"),
        pytest.param("mysql_57_server", "mariadb_server", marks=pytest.mark.extended),
    ],
)
def test_same_table_definition_in_another_spelling_is_equal(
    source: str, follower: str, unique_name: str, request: pytest.FixtureRequest
) -> None:
    servers: list[SqlServer] = [request.getfixturevalue(name) for name in dict.fromkeys((source, follower))]
    for server in servers:
        server.execute(f"CREATE DATABASE {unique_name} CHARSET utf8mb4 COLLATE utf8mb4_general_ci")
        server.execute(*TABLES, database=unique_name)
    compared = {name: compared_on(servers[0], servers[-1], unique_name, name) for name in NAMES}
    for server in servers:
        server.execute(f"DROP DATABASE {unique_name}")
    assert {name: each for name, each in compared.items() if each != DefinitionComparison((), ())} == {}


def compared_on(source: SqlServer, follower: SqlServer, database: str, table: str) -> DefinitionComparison:
    urls = source.root_url, follower.root_url
    with Session(MysqlConnection.from_uri(urls[0])) as one, Session(MysqlConnection.from_uri(urls[1])) as other:
        mine, its = (DefinitionReader(each).read(database, table) for each in (one, other))
    assert mine is not None
    assert its is not None
    return compare_definitions(mine, its)


_T = "CREATE TABLE t (id INT NOT NULL, s VARCHAR(9)"
OTHERS = {
    "the case of a literal in a default": (f"{_T} DEFAULT (CONCAT('A', 'b')))", f"{_T} DEFAULT (CONCAT('a', 'b')))"),
    "that of a generated column": tuple(f"{_T}, g TEXT AS (CONCAT(s, '{x}')) STORED)" for x in ("X", "x")),
    "that of a check": (f"{_T}, CHECK (s <> 'A'))", f"{_T}, CHECK (s <> 'a'))"),
    "a second check": (f"{_T}, CHECK (s > 'a'))", f"{_T}, CHECK (s > 'a'), CHECK (s > 'a'))"),
    "the second of two keys": (
        f"{_T}, UNIQUE (id), FOREIGN KEY (id) REFERENCES p (id), CONSTRAINT y FOREIGN KEY (id) REFERENCES p (id))",
        f"{_T}, UNIQUE (id), CONSTRAINT y FOREIGN KEY (id) REFERENCES p (id))",
    ),
    "the order of indexes": (f"{_T}, KEY a (id), KEY b (s))", f"{_T}, KEY b (s), KEY a (id))"),
    "bytes after a zero": (f"{_T}, b BINARY(4) DEFAULT X'0001')", f"{_T}, b BINARY(4) DEFAULT X'0002')"),
    "bytes that are no text": (f"{_T}, b BINARY(4) DEFAULT X'00FF')", f"{_T}, b BINARY(4) DEFAULT X'00FE')"),
    "a space in a partition's value": tuple(
        f"{_T}) PARTITION BY LIST COLUMNS (s) (PARTITION p VALUES IN ('{value}'))" for value in ("a b", "ab")
    ),
    "how a key is hashed": tuple(f"{_T}) PARTITION BY KEY {how} (id) PARTITIONS 2" for how in ("", "ALGORITHM=1")),
}  # fmt: skip
OF_PRODUCT = {
    "mysql_server": {
        "the parser of words": (f"{_T}, FULLTEXT (s) WITH PARSER ngram)", f"{_T}, FULLTEXT k (s))"),
        "the case of an index's literal": (f"{_T}, KEY k ((CONCAT(s, 'A'))))", f"{_T}, KEY k ((CONCAT(s, 'a'))))"),
    },
    "mariadb_server": {
        "versions of rows": (f"{_T}) WITH SYSTEM VERSIONING", f"{_T})"),
        "a period": tuple(
            f"{_T}, a DATE, b DATE, PERIOD FOR p (a, b), UNIQUE k (id, {of}))" for of in ("p WITHOUT OVERLAPS", "b, a")
        ),
    },
}


@pytest.mark.parametrize("server", OF_PRODUCT)
def test_difference_only_in_the_text_of_a_table_definition_is_found(
    server: str, unique_name: str, request: pytest.FixtureRequest
) -> None:
    running: SqlServer = request.getfixturevalue(server)
    alike, found = {}, {}
    for what, definitions in (OTHERS | OF_PRODUCT[server]).items():
        tables = []
        for definition in definitions:
            running.execute(f"CREATE DATABASE {unique_name} CHARSET utf8mb4")
            running.execute("SET foreign_key_checks = 0, SESSION sql_mode = ''", definition, database=unique_name)
            with Session(MysqlConnection.from_uri(running.root_url)) as session:
                tables += [DefinitionReader(session).read(unique_name, "t") for _ in range(2)]
            running.execute(f"DROP DATABASE {unique_name}")
        alike[what] = compare_definitions(tables[0], tables[1])
        found[what] = bool(compare_definitions(tables[0], tables[2]).differences)
    assert [what for what, compared in alike.items() if compared.differences] == []
    assert [what for what, differs in found.items() if not differs] == []


@pytest.mark.parametrize("server", OF_PRODUCT)
def test_order_of_triggers_block_size_and_sequences_are_compared(
    server: str, unique_name: str, request: pytest.FixtureRequest
) -> None:
    running: SqlServer = request.getfixturevalue(server)
    tables = []
    trigger = "CREATE TRIGGER {} BEFORE INSERT ON {} FOR EACH ROW {} SET NEW.n = NEW.n {}"
    for block, after, increment in (("KEY_BLOCK_SIZE=8", "", 2), ("", "PRECEDES a", 5)):
        running.execute(
            f"CREATE DATABASE {unique_name} CHARSET utf8mb4",
            f"USE {unique_name}",
            f"CREATE TABLE keyed (id INT, n INT, KEY k (n) {block})",
            "CREATE TABLE watched (id INT, n INT)",
            trigger.format("a", "watched", "", "+ 1"),
            trigger.format("b", "watched", after, "* 2"),
            *([f"CREATE SEQUENCE numbers INCREMENT BY {increment}"] if server == "mariadb_server" else []),
        )
        with Session(MysqlConnection.from_uri(running.root_url)) as session:
            reader = DefinitionReader(session)
            names = ["keyed", "watched", *(["numbers"] if session.is_mariadb else [])]
            tables.append([reader.read(unique_name, name) for name in names])
        running.execute(f"DROP DATABASE {unique_name}")
    compared = [compare_definitions(*pair) for pair in zip(*tables, strict=True)]
    assert [compare_definitions(table, table).differences for table in tables[0]] == [()] * len(names)
    assert [", ".join(map(str, each.differences)) for each in compared] == [
        # InnoDB of MySQL forgets it
        "SHOW CREATE TABLE: KEY `k` (`n`) KEY_BLOCK_SIZE=8 on the source, KEY `k` (`n`) on the follower"
        if server == "mariadb_server"
        else "",
        "order of triggers BEFORE INSERT: `a`, `b` on the source, `b`, `a` on the follower",
        "sequence: increment: 2 on the source, 5 on the follower",
    ][: len(names)]


@pytest.mark.parametrize("server", OF_PRODUCT)
def test_table_text_hidden_from_the_user_is_named_as_not_compared(
    server: str, unique_name: str, request: pytest.FixtureRequest
) -> None:
    running: SqlServer = request.getfixturevalue(server)
    user = f"'{unique_name}'@'%'"
    running.execute(f"CREATE DATABASE {unique_name}", f"CREATE USER {user} IDENTIFIED BY 'aA1!'")
    running.execute(
        "CREATE TABLE parents (id INT PRIMARY KEY)",
        "CREATE TABLE t (id INT PRIMARY KEY, hidden INT, FOREIGN KEY (id) REFERENCES parents (id))",
        "CREATE VIEW v AS SELECT id FROM t",
        f"GRANT SELECT (id) ON t TO {user}",
        f"GRANT SELECT ON v TO {user}",
        database=unique_name,
    )
    reached = MysqlConnection.from_uri(running.root_url)
    with Session(reached) as session, Session(replace(reached, user=unique_name, password="aA1!")) as limited:
        table, view = (DefinitionReader(limited).read(unique_name, name) for name in ("t", "v"))
        complete = DefinitionReader(session).read(unique_name, "t")
    running.execute(f"DROP DATABASE {unique_name}", f"DROP USER {user}")
    assert table is not None
    assert "SHOW CREATE TABLE" in " ".join(compare_definitions(table, table).notes)
    assert compare_definitions(complete, table).differences
    assert any(each.what == "table: engine" for each in compare_definitions(complete, view).differences)


def test_a_sequence_that_a_user_may_not_select_is_named_as_not_compared(
    mariadb_server: SqlServer, unique_name: str
) -> None:
    user = f"'{unique_name}'@'%'"
    mariadb_server.execute(f"CREATE DATABASE {unique_name}", f"CREATE USER {user} IDENTIFIED BY 'aA1!'")
    mariadb_server.execute("CREATE SEQUENCE s", f"GRANT INSERT ON {unique_name}.* TO {user}", database=unique_name)
    reached = MysqlConnection.from_uri(mariadb_server.root_url)
    with Session(reached) as session, Session(replace(reached, user=unique_name, password="aA1!")) as limited:
        complete, hidden = (DefinitionReader(each).read(unique_name, "s") for each in (session, limited))
    mariadb_server.execute(f"DROP DATABASE {unique_name}", f"DROP USER {user}")
    assert complete is not None
    assert hidden is not None
    for pair in ((complete, hidden), (hidden, complete), (hidden, hidden)):
        compared = compare_definitions(*pair)
        assert "may not SELECT it" in " ".join(compared.notes)
        assert not any(each.what.startswith("sequence") for each in compared.differences)


@pytest.fixture(params=["mysql", "mariadb"])
def followed(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> Iterator[Followed]:
    source: SqlServer = request.getfixturevalue(f"source_{request.param}")
    follower: SqlServer = request.getfixturevalue(f"{request.param}_follower")
    made = Followed(unique_name, source, follower, kafka_broker, tmp_path)
    made.uris["follower"] = follower.root_url
    yield made
    made.drop()


SHOP = (
    "CREATE TABLE parents (id INT PRIMARY KEY)",
    "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(20) NOT NULL DEFAULT 'x', b INT DEFAULT 1, "
    "c INT AS (b + 1) VIRTUAL, d DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3), p INT, KEY ia (a), "
    "CONSTRAINT positive CHECK (b > 0), CONSTRAINT fp FOREIGN KEY (p) REFERENCES parents (id))",
    "CREATE TABLE parted (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (100), "
    "PARTITION p1 VALUES LESS THAN (200))",
    "INSERT INTO parents VALUES (1)",
    "INSERT INTO t (b, p) VALUES (1, 1), (2, NULL)",
    "INSERT INTO parted VALUES (1), (101)",
)
DAMAGES = {
    "ALTER TABLE t MODIFY a VARCHAR(21) NOT NULL DEFAULT 'x'": "column `a`: type",
    "ALTER TABLE t MODIFY a VARCHAR(20) COLLATE utf8mb4_bin NOT NULL DEFAULT 'x'": "column `a`: collation",
    "ALTER TABLE t MODIFY a VARCHAR(20) DEFAULT 'x'": "column `a`: NULL",
    "ALTER TABLE t ALTER a SET DEFAULT 'y'": "column `a`: default",
    "ALTER TABLE t MODIFY a VARCHAR(20) NOT NULL DEFAULT 'x' COMMENT 'c'": "column `a`: comment",
    "ALTER TABLE t MODIFY c INT AS (b + 2) VIRTUAL": "column `c`: generation expression",
    "ALTER TABLE t MODIFY d DATETIME(3) DEFAULT NOW(3) ON UPDATE NOW(3)": "column `d`: update",
    "ALTER TABLE t ADD lost INT": "column `lost`",
    "ALTER TABLE t DROP COLUMN d": "column `d`",
    "ALTER TABLE t RENAME COLUMN d TO e": "column `e`",
    "ALTER TABLE t MODIFY b INT DEFAULT 1 FIRST": "columns: order",
    "ALTER TABLE t DROP KEY ia": "index `ia`",
    "ALTER TABLE t DROP KEY ia, ADD UNIQUE KEY ia (a(3), id)": "index `ia`: columns",
    "ALTER TABLE t DROP CONSTRAINT positive": "check `positive`",
    "ALTER TABLE t DROP FOREIGN KEY fp": "foreign key",
    "ALTER TABLE t DROP FOREIGN KEY fp, ADD CONSTRAINT fp2 FOREIGN KEY (p) REFERENCES parents (id) ON DELETE CASCADE": (
        "foreign key"
    ),
    "ALTER TABLE t COMMENT 'other'": "table: comment",
    "ALTER TABLE t ROW_FORMAT=COMPACT": "table: row format",
    "ALTER TABLE t DEFAULT COLLATE latin1_bin": "table: collation",
    "ALTER TABLE parted ENGINE=MyISAM": "table: engine",
    "ALTER TABLE parted DROP PARTITION p1": "partition `p1`",
    "ALTER TABLE parted REMOVE PARTITIONING": "partitioning",
    "CREATE TRIGGER noted BEFORE INSERT ON t FOR EACH ROW SET NEW.b = 5": "trigger `noted`",
    "CREATE TABLE own (id INT PRIMARY KEY)": "table",
}
"""Statements on the follower, and the differences that the report names."""


def account(report: VerifyReport, table: str) -> TableAccount:
    (found,) = [each for each in report.tables if each.name.endswith(f".{table}")]
    return found


def test_difference_of_a_followers_table_definition_is_named_with_both_values(followed: Followed) -> None:
    name = f"{followed.name}_d"
    is_mariadb = isinstance(followed.source, MariadbServer)
    followed.source.execute(f"CREATE DATABASE {name}", "CREATE DATABASE IF NOT EXISTS test")
    followed.source.execute(*SHOP, database=name)
    followed.publish()
    followed.follow()
    report = run_verify(followed.connections, follower="follower", wait_seconds=0)
    assert report.outcome == "equal", summary(report)
    engine_of_partitions = "ALTER TABLE parted ENGINE=MyISAM"
    for statement, what in DAMAGES.items():
        if statement == engine_of_partitions and not is_mariadb:
            continue  # MySQL has partitions of InnoDB only
        with followed.follower.connect(database=name) as connection, connection.cursor() as cursor:
            cursor.execute("SET foreign_key_checks = 0")
            cursor.execute(statement)
        report = run_verify(followed.connections, follower="follower", wait_seconds=0)
        table = statement.split()[2]
        table = "t" if "TRIGGER" in statement else table
        differences = account(report, table).definition
        assert any(each.what.startswith(what) for each in differences), (statement, summary(report))
        assert report.outcome == "differs"
        for each in ("t", "parted", "parents"):
            followed.follower.execute("SET foreign_key_checks = 0", f"DROP TABLE IF EXISTS {name}.{each}")
        followed.follower.execute(f"DROP TABLE IF EXISTS {name}.own")
        followed.follower.execute(*SHOP, database=name)
    kept = VerifyReport.from_json(report.to_json())
    assert kept.tables == report.tables


def test_ddl_still_to_be_applied_is_neither_a_difference_nor_equal(followed: Followed) -> None:
    name = f"{followed.name}_d"
    followed.source.execute(f"CREATE DATABASE {name}")
    followed.source.execute(*SHOP, database=name)
    followed.publish()
    followed.follow()
    followed.source.execute(f"ALTER TABLE {name}.t ADD later INT", f"CREATE TABLE {name}.later (id INT PRIMARY KEY)")
    report = run_verify(followed.connections, follower="follower", wait_seconds=0)
    assert report.outcome == "incomplete", summary(report)
    assert "may be still to be applied" in " ".join(account(report, "t").reasons)
    followed.publish()
    followed.follow()
    report = run_verify(followed.connections, follower="follower", wait_seconds=0)
    assert report.outcome == "equal", summary(report)
    followed.uris["source"] = followed.source.root_url  # a user that may see triggers
    followed.source.execute(
        f"CREATE TRIGGER {name}.noted BEFORE INSERT ON {name}.t FOR EACH ROW SET NEW.b = 5",
    )
    followed.publish()
    followed.follow()
    report = run_verify(followed.connections, follower="follower", wait_seconds=0)
    assert report.outcome == "equal", summary(report)
    virtual, trigger = account(report, "t").notes
    assert virtual.startswith("not compared: c, virtual columns")
    assert "does not have the source's trigger `noted`" in trigger


def test_numbers_that_a_follower_would_give_again_are_named(followed: Followed) -> None:
    name = f"{followed.name}_n"
    followed.source.execute(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.queue (id INT AUTO_INCREMENT PRIMARY KEY, a INT)",
    )
    followed.publish()
    followed.follow()
    followed.source.execute("BEGIN", f"INSERT INTO {name}.queue (a) VALUES (1), (2), (3)", "ROLLBACK")
    followed.source.execute(f"INSERT INTO {name}.queue (a) VALUES (1)", f"DELETE FROM {name}.queue")
    followed.publish()
    followed.follow()
    followed.follower.execute(f"ALTER TABLE {name}.queue AUTO_INCREMENT = 1")
    report = run_verify(followed.connections, follower="follower", wait_seconds=0)
    assert report.outcome == "incomplete", summary(report)
    assert "its next AUTO_INCREMENT is 1 on the follower and 5 on the source" in account(report, "queue").reasons[0]
    followed.follower.execute(f"ALTER TABLE {name}.queue AUTO_INCREMENT = 5")
    assert run_verify(followed.connections, follower="follower", wait_seconds=0).outcome == "equal"


def test_characters_with_two_encodings_are_named_if_the_follower_has_other_bytes(followed: Followed) -> None:
    name = f"{followed.name}_j"
    followed.source.execute(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.t (a VARCHAR(9) CHARACTER SET cp932, n INT)",
        f"INSERT INTO {name}.t VALUES (_cp932 X'8790', 1), (_cp932 X'81E0', 1), (_cp932 X'93FA', 2)",
        f"DELETE FROM {name}.t WHERE HEX(a) = '81E0'",
    )
    followed.publish()
    followed.follow()
    report = run_verify(followed.connections, follower="follower", wait_seconds=0)
    (difference,) = account(report, "t").definition
    assert (difference.what, difference.source[:6]) == ("column `a`: bytes", "1 rows"), summary(report)
    followed.source.execute(f"DELETE FROM {name}.t WHERE n = 1")
    followed.publish()
    followed.follow()
    assert run_verify(followed.connections, follower="follower", wait_seconds=0).outcome == "equal"


def test_sequences_of_a_follower_are_compared_by_verify(
    source_mariadb: SqlServer, mariadb_follower: SqlServer, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> None:
    followed = Followed(unique_name, source_mariadb, mariadb_follower, kafka_broker, tmp_path)
    followed.uris["follower"] = mariadb_follower.root_url
    name = f"{followed.name}_d"
    create = "CREATE SEQUENCE numbers START WITH 10 MINVALUE 2 MAXVALUE 900 INCREMENT BY 2 CACHE 20 NOCYCLE"
    followed.source.execute(f"CREATE DATABASE {name}", "CREATE DATABASE IF NOT EXISTS test")
    followed.source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", create, database=name)
    followed.source.execute("SELECT NEXTVAL(numbers)", database=name)
    try:
        followed.publish()
        followed.follow()
        report = run_verify(followed.connections, follower="follower", wait_seconds=0)
        assert report.outcome == "equal", summary(report)
        of_it = {"tables": [f"{name}.numbers"], "follower": "follower", "wait_seconds": 0}
        report = run_verify(followed.connections, **of_it)
        assert report.outcome == "equal", summary(report)
        for change, what in (
            ("INCREMENT BY 5", "sequence: increment"),
            ("MINVALUE 1", "sequence: minimum value"),
            ("MAXVALUE 800", "sequence: maximum value"),
            ("START WITH 20", "sequence: start value"),
            ("CACHE 30", "sequence: cache size"),
            ("CYCLE", "sequence: cycle option"),
            ("", "table"),
        ):
            alter = f"ALTER SEQUENCE numbers {change}" if change else "DROP SEQUENCE numbers"
            followed.follower.execute(alter, database=name)
            report = run_verify(followed.connections, **of_it)
            assert [each.what for each in account(report, "numbers").definition] == [what], summary(report)
            assert report.outcome == "differs"
            followed.follower.execute("DROP SEQUENCE IF EXISTS numbers", create, database=name)
    finally:
        followed.drop()
