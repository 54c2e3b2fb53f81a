"""Statement-format changes have the same effect on a follower as on the source, or stop it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from both_settings import with_everything
from integration.followed import Followed

from changefeed.errors import FollowerError, SettingsError
from changefeed.source.mysql.follower_session import FollowerSession
from devstack.kafka import KafkaBroker
from devstack.sql_server import SqlServer

pytestmark = pytest.mark.extended

STATEMENT = "SET SESSION binlog_format = STATEMENT"
ROW = "SET SESSION binlog_format = ROW"
MIXED = "SET SESSION binlog_format = MIXED"
MODE = "SET sql_mode = {}"


@pytest.fixture(params=["mysql", "mariadb"])
def followed(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> Iterator[Followed]:
    source: SqlServer = request.getfixturevalue(f"source_{request.param}")
    follower: SqlServer = request.getfixturevalue(f"{request.param}_follower")
    made = Followed(unique_name, source, follower, kafka_broker, tmp_path, {"statements": "publish"})
    made.source.execute(
        f"CREATE DATABASE {unique_name}",
        f"USE {unique_name}",
        "CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, n BIGINT, d DECIMAL(30,12), r DOUBLE, v VARCHAR(80), "
        "b VARBINARY(80), at DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6), "
        "ts TIMESTAMP NULL, u INT UNIQUE, g BIGINT AS (n * 2) STORED) DEFAULT CHARSET utf8mb4",
        "CREATE TABLE parent (id INT PRIMARY KEY)",
        "CREATE TABLE child (id INT PRIMARY KEY, parent INT, "
        "FOREIGN KEY (parent) REFERENCES parent (id) ON DELETE CASCADE ON UPDATE CASCADE)",
        "CREATE TABLE keyless (a INT, b VARCHAR(20))",
        "CREATE TABLE `odd name` (`a b` INT PRIMARY KEY, c VARCHAR(9))",
        "CREATE TABLE m (id INT PRIMARY KEY) ENGINE = MyISAM",
    )
    made.publish()
    made.follow()
    yield made
    made.drop()


SCRIPT = [
    STATEMENT,
    "SET time_zone = '+05:30', timestamp = 1700000000.25",
    "INSERT INTO t (n, v, at, ts) VALUES (1, 'one', NOW(6), NOW()), (2, 'two ''quoted'' \\\\ é €', '2020-01-02', NULL)",
    "SET timestamp = DEFAULT, time_zone = '+00:00'",
    "INSERT INTO t (n, r) VALUES (LAST_INSERT_ID(), RAND()), (LAST_INSERT_ID() + 1, RAND())",
    "SET @text = 'Grüße ''€''', @none = NULL, @whole = -5, @big = 18446744073709551615, @part = 1.5e-7, "
    "@`odd name` = -12345678901.000000000123, @small = 0.5, @bytes = x'00ff27'",
    "INSERT INTO t (v, n, d, r, b) VALUES (@text, @whole, @`odd name`, @part, @bytes), "
    "(@none, @none, @small, 0, @text)",
    "UPDATE t SET v = CONCAT(v, @text, @big), d = d + @`odd name` WHERE n >= @whole",
    "SET NAMES latin1",
    "INSERT INTO t (v, b) VALUES ('\u00e9\u00df', '\u00e9\u00df')",
    "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
    "UPDATE t SET n = 77 WHERE v = 'ONE' OR 'a' = 'A'",
    "SET NAMES utf8mb4",
    MODE.format("''"),
    "INSERT INTO t (n, v) VALUES ('12 and more', REPEAT('x', 90))",
    MODE.format("'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'"),
    "INSERT INTO \"odd name\" (\"a b\", c) VALUES (1, 'x\\' || 'y')",
    MODE.format("DEFAULT"),
    "SET auto_increment_increment = 7, auto_increment_offset = 3",
    "INSERT INTO t (n) VALUES (1), (2), (3)",
    "SET auto_increment_increment = 1, auto_increment_offset = 1",
    "INSERT INTO t (u, n) VALUES (5, 5)",
    "REPLACE INTO t SET u = 5, n = 6, id = 900",
    "DELETE FROM t WHERE n = 2",
    "INSERT INTO keyless VALUES (1, 'a'), (1, 'a'), (2, 'b')",
    "UPDATE keyless SET b = CONCAT(b, a) WHERE a = 1",
    "INSERT INTO parent VALUES (1), (2), (3)",
    "INSERT INTO child VALUES (1, 1), (2, 1), (3, 2)",
    "UPDATE parent SET id = id + 10 WHERE id = 1",
    "DELETE FROM parent WHERE id = 2",
    MIXED,
    "BEGIN",
    "INSERT INTO keyless VALUES (3, 'c')",
    "INSERT INTO keyless VALUES (4, LEFT(UUID(), 5))",
    "UPDATE t SET n = n + 1, b = UUID() ORDER BY id LIMIT 3",
    "UPDATE keyless SET a = a * 10 WHERE a > 2",
    "COMMIT",
    "BEGIN",
    "UPDATE keyless SET a = 0",
    "ROLLBACK",
    "INSERT INTO parent VALUES (40) ON DUPLICATE KEY UPDATE id = 41",
    "INSERT INTO parent VALUES (40) ON DUPLICATE KEY UPDATE id = VALUES(id) + 1",
    ROW,
    "INSERT INTO child VALUES (9, 41)",
    "UPDATE t SET v = 'last' WHERE id = 1",
]
"""Each form of statement that is run; the ALTER TABLE of a test follows."""


def play(followed: Followed, *statements: str) -> None:
    """Run the script in one session of the source, in its own database."""
    followed.source.execute(f"USE {followed.name}", *statements)


def test_statements_in_their_sessions_end_with_both_servers_alike(followed: Followed) -> None:
    play(
        followed,
        *SCRIPT,
        "ALTER TABLE t ADD COLUMN more INT DEFAULT 3",
        STATEMENT,
        "UPDATE t SET more = n WHERE id < 5",
    )
    followed.publish()
    done = followed.follow(runs_statements=True)
    assert done.statements == 23
    followed.check()
    again = followed.follow(runs_statements=True)
    assert (again.start, again.rows, again.statements) == (done.end, 0, 0)


class KilledError(Exception):
    """Simulates SIGKILL: no code of ours runs after it."""


@with_everything
@pytest.mark.usefixtures("server_settings")
def test_follower_killed_between_statements_runs_each_once(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The effect of these statements shows how often they ran."""
    play(followed, MIXED, "INSERT INTO keyless VALUES (1, 'a')")
    for number in range(20):
        changes = [f"UPDATE keyless SET a = a + {number + 1}", f"INSERT INTO t (n) VALUES ({number})"]
        changes.append("INSERT INTO keyless VALUES (0, LEFT(UUID(), 5))")  # its row
        random.Random(number).shuffle(changes)
        play(followed, MIXED, "BEGIN", *changes, "COMMIT")
    followed.publish()
    rng = random.Random(f"statements:{type(followed.source).__name__}")
    write = FollowerSession.write
    left = 0

    def killed(session: FollowerSession, sql: str | bytes) -> int:
        nonlocal left
        left -= 1
        if left == 0:
            session.raw._force_close()
            raise KilledError
        return write(session, sql)

    monkeypatch.setattr(FollowerSession, "write", killed)
    monkeypatch.setattr("changefeed.replicate.commits.COMMIT_ROWS", 3)
    kills = 0
    for _ in range(200):
        left = rng.randrange(10, 60)
        try:
            followed.follow(runs_statements=True)
        except KilledError:
            kills += 1
            continue
        if left > 0:
            break
    assert kills > 1
    followed.check()


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        (["INSERT INTO keyless SELECT id, v FROM t"], "it reads other tables"),
        (["UPDATE t, keyless SET t.v = keyless.b WHERE t.id = keyless.a"], "it reads other tables"),
        (["UPDATE t SET v = UUID()"], "it calls 'UUID'"),
        (["DELETE FROM keyless LIMIT 1"], "depends on their order"),
        (["INSERT INTO t (id, u) VALUES (1, 1) ON DUPLICATE KEY UPDATE n = 1"], "the order of its table's keys"),
        (["INSERT INTO m VALUES (1)"], "engine MyISAM, which cannot roll back"),
        (["CREATE FUNCTION f() RETURNS INT DETERMINISTIC RETURN 1", "UPDATE t SET n = f()"], "it calls"),
        (
            [
                "CREATE TRIGGER x BEFORE INSERT ON keyless FOR EACH ROW SET NEW.b = 'x'",
                "INSERT INTO keyless VALUES (1, 'a')",
            ],
            "has the trigger 'x'",
        ),
    ],
)
def test_a_statement_that_may_do_something_else_stops_the_follower(
    followed: Followed, statements: list[str], reason: str
) -> None:
    followed.source.execute(f"GRANT TRIGGER ON `{followed.name}`.* TO changefeed@'%'")
    play(followed, "INSERT INTO t (n) VALUES (1)", STATEMENT, *statements)
    followed.publish()
    with pytest.raises((SettingsError, FollowerError), match=reason):
        followed.follow(runs_statements=True)
    assert followed.follower.execute(f"SELECT COUNT(*) FROM {followed.name}.keyless") == [(0,)]


def test_statements_are_not_run_without_the_option(followed: Followed) -> None:
    play(followed, STATEMENT, "INSERT INTO t (n) VALUES (1)")
    followed.publish()
    with pytest.raises(SettingsError, match="triggers and functions of the source may have taken part"):
        followed.follow()
    followed.follow(runs_statements=True)
    followed.check()
