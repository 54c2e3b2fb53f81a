"""A follower ends as the source is, in its commit order, exactly once, wherever a run dies."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from both_settings import on_both_settings, with_everything
from integration.followed import Followed, Workload
from integration.hostile_settings import set_globals

from changefeed.errors import (
    AccountingError,
    BrokerUnavailableError,
    ChangefeedError,
    FollowerError,
    PipelineBusyError,
    SettingsError,
)
from changefeed.model import fault_point
from changefeed.replicate.run import ReplicationResult
from changefeed.source.mysql.follower_session import FollowerSession
from devstack.kafka import KafkaBroker
from devstack.sql_server import SqlServer


@pytest.fixture(params=["mysql", "mariadb"])
def followed(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> Iterator[Followed]:
    source: SqlServer = request.getfixturevalue(f"source_{request.param}")
    follower: SqlServer = request.getfixturevalue(f"{request.param}_follower")
    made = Followed(unique_name, source, follower, kafka_broker, tmp_path)
    yield made
    made.drop()


@pytest.fixture
def on_mysql(
    source_mysql: SqlServer, mysql_follower: SqlServer, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> Iterator[Followed]:
    made = Followed(unique_name, source_mysql, mysql_follower, kafka_broker, tmp_path)
    yield made
    made.drop()


@pytest.mark.extended
def test_the_fluvio_tutorial_ends_with_both_servers_alike(followed: Followed) -> None:
    name = f"{followed.name}_flvDb"
    script = [
        f"CREATE DATABASE {name}",
        f"USE {name}",
        "CREATE TABLE pet (name VARCHAR(20), owner VARCHAR(20), species VARCHAR(20), sex CHAR(1), birth DATE)",
        "INSERT INTO pet VALUES ('Puffball','Diane','hamster','f','1999-03-30')",
        "INSERT INTO pet VALUES ('Jack','Peter','dog','m','1999-03-30')",
        "UPDATE pet SET birth = '1989-08-31' WHERE name = 'Jack'",
        "ALTER TABLE pet ADD COLUMN last_vaccine DATE",
        "UPDATE pet SET last_vaccine = '2021-06-01' WHERE name = 'Jack'",
        "DELETE FROM pet WHERE name = 'Puffball'",
    ]
    followed.source.execute(*script)
    followed.publish()
    done = followed.follow()
    assert (done.rows, done.definitions, done.tables) == (5, 3, {f"{name}.pet": 5})
    followed.check()
    again = followed.follow()
    assert (again.start, again.rows, again.definitions) == (done.end, 0, 0)


@on_both_settings
@pytest.mark.usefixtures("server_settings")
def test_a_random_workload_in_several_runs_ends_with_both_servers_alike(followed: Followed) -> None:
    work = Workload(followed, random.Random(f"follow:{type(followed.source).__name__}"))
    for transactions in (30, 1, 40):
        work.run(transactions)
        followed.publish()
        followed.follow()
        followed.check()


@pytest.mark.extended
def test_large_transactions_of_several_tables_end_with_both_servers_alike(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks and follower transactions are smaller than a source transaction, or contain several."""
    name, rng = f"{followed.name}_l", random.Random("large")
    columns = (
        "id INT PRIMARY KEY, a BIGINT UNSIGNED, price DECIMAL(12,3), b VARCHAR(60) CHARACTER SET utf8mb4 UNIQUE, "
        "data VARBINARY(30), at DATETIME(6), kind ENUM('x','y'), score DOUBLE"
    )
    followed.source.execute(f"CREATE DATABASE {name}")

    def row(key: int) -> str:
        price = rng.choice(["NULL", "0", "-0.001", "999999999.999", f"{rng.uniform(-9, 9):.3f}"])
        text = rng.choice(["", "é", "'", '\\"', "\\\\", "\t\n", "\x01", "日本"]) + str(key)
        text = text.replace("'", "''")
        data = f"x'{rng.randbytes(rng.randrange(30)).hex()}'"
        moment, score = f"'2026-01-02 03:04:05.{key:06d}'", f"{rng.uniform(-1, 1)!r}e{rng.randrange(-30, 30)}"
        return f"({key}, {(1 << 64) - 1 - key}, {price}, '{text}', {data}, {moment}, {rng.randrange(1, 3)}, {score})"

    for number in range(3):
        table = f"{name}.t{number}"
        rows = ", ".join(row(key) for key in range(1500))
        followed.source.execute(
            f"CREATE TABLE {table} ({columns})",
            f"INSERT INTO {table} (id, a, price, b, data, at, kind, score) VALUES {rows}",
        )
    followed.publish()
    with followed.source.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for round_number in range(6):
            for number in rng.sample(range(3), 2):
                table = f"{name}.t{number}"
                cursor.execute(f"UPDATE {table} SET score = score + 1, price = NULL WHERE id % 5 = {round_number % 5}")
                cursor.execute(f"DELETE FROM {table} WHERE id % 37 = {round_number}")
                cursor.execute(f"UPDATE {table} SET id = id + 10000 WHERE id % 41 = {round_number} ORDER BY id DESC")
                cursor.execute(f"UPDATE {table} SET b = CONCAT('swapped', b) WHERE id % 11 = {round_number}")
            connection.commit()
    followed.publish()
    monkeypatch.setattr("changefeed.replicate.commits.COMMIT_ROWS", 700)
    monkeypatch.setattr("changefeed.replicate.stream.HELD_BYTES", 1)
    followed.follow()
    followed.check()


class KilledError(Exception):
    """Simulates SIGKILL: no code of ours runs after it."""


@pytest.mark.extended
@on_both_settings
@pytest.mark.usefixtures("server_settings")
def test_follower_killed_between_statements_leaves_no_gap_and_repeats_nothing(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random("killed")
    work = Workload(followed, rng)
    work.run(12)
    followed.publish()
    write = FollowerSession.write
    left = 0

    def killed(session: FollowerSession, sql: str) -> int:
        nonlocal left
        left -= 1
        if left == 0:
            session.raw._force_close()
            raise KilledError
        written = write(session, sql)
        if left == 1 and rng.random() < 0.5:  # it ran, but its result was lost
            session.raw._force_close()
            raise KilledError
        return written

    monkeypatch.setattr(FollowerSession, "write", killed)
    monkeypatch.setattr("changefeed.replicate.commits.COMMIT_ROWS", 7)
    kills = 0
    for _ in range(400):
        left = rng.randrange(8, 60)
        try:
            followed.follow()
        except KilledError:
            kills += 1
            continue
        if left > 0:
            break
    assert kills > 1
    followed.check()


@pytest.mark.extended
@with_everything
def test_a_reader_sees_only_what_the_source_was_at_some_commit(on_mysql: Followed) -> None:
    """Each transaction moves 1 from a table to another: no reader may see another sum."""
    name = f"{on_mysql.name}_p"
    on_mysql.source.execute(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.one (id INT PRIMARY KEY, n INT)",
        f"CREATE TABLE {name}.other (id INT PRIMARY KEY, n INT)",
        f"INSERT INTO {name}.one VALUES (1, 1000)",
        f"INSERT INTO {name}.other VALUES (1, 0)",
    )
    on_mysql.publish()
    on_mysql.follow()
    with on_mysql.source.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for _ in range(200):
            cursor.execute(f"UPDATE {name}.one SET n = n - 1")
            cursor.execute(f"UPDATE {name}.other SET n = n + 1")
            connection.commit()
    on_mysql.publish()
    seen: set[int] = set()
    write = FollowerSession.write

    def watched(session: FollowerSession, sql: str) -> int:
        written = write(session, sql)
        (one,), (other,) = on_mysql.follower.execute(f"SELECT n FROM {name}.one UNION ALL SELECT n FROM {name}.other")
        assert one + other == 1000
        seen.add(other)
        return written

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FollowerSession, "write", watched)
        patch.setattr("changefeed.replicate.commits.COMMIT_ROWS", 20)
        on_mysql.follow()
    assert len(seen) > 10
    on_mysql.check()


@pytest.mark.extended
@pytest.mark.parametrize("kinds", [("mysql", "mariadb"), ("mariadb", "mysql")], ids=["mysql", "mariadb"])
def test_a_follower_of_the_other_kind_is_refused_before_anything_is_applied(
    kinds: tuple[str, str], request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> None:
    source, follower = (request.getfixturevalue(f"{kind}_server") for kind in kinds)
    made = Followed(unique_name, source, follower, kafka_broker, tmp_path)
    source.execute(f"CREATE DATABASE {unique_name}", f"CREATE TABLE {unique_name}.t (id INT PRIMARY KEY)")
    made.publish()
    with pytest.raises(FollowerError, match="neither runs all DDL of the other"):
        made.follow()
    assert made.databases(follower) == []
    source.execute(f"DROP DATABASE {unique_name}")


@pytest.mark.extended
def test_ddl_of_mysql_5_7_runs_on_a_server_without_some_of_its_modes(
    mysql_57_server: SqlServer, mysql_follower: SqlServer, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> None:
    """Its default sql_mode has NO_AUTO_CREATE_USER, which a newer server refuses."""
    made = Followed(unique_name, mysql_57_server, mysql_follower, kafka_broker, tmp_path)
    made.source.execute(
        f"CREATE DATABASE {unique_name} CHARACTER SET latin1",
        f"CREATE TABLE {unique_name}.t (id INT PRIMARY KEY, text VARCHAR(9))",
        f"INSERT INTO {unique_name}.t VALUES (1, 'é')",
    )
    made.publish()
    assert made.follow().definitions == 2
    assert made.follower.execute(f"SELECT id, text FROM {unique_name}.t") == [(1, "é")]
    made.drop()


@pytest.mark.extended
def test_a_table_without_an_engine_is_of_innodb_whatever_the_follower_defaults_to(followed: Followed) -> None:
    """A table of MyISAM would keep the rows of a run that was killed before its position moved."""
    name = f"{followed.name}_e"
    with set_globals(followed.follower, {"default_storage_engine": "MyISAM"}):
        followed.source.execute(f"CREATE DATABASE {name}", f"CREATE TABLE {name}.t (id INT PRIMARY KEY)")
        followed.publish()
        followed.follow()
    followed.check()


@pytest.mark.extended
def test_changes_of_an_unsealed_window_come_with_the_run_after_the_seal(
    on_mysql: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records are in the topics when a run reads to their end; the next run begins with them."""
    followed = on_mysql
    database = f"{followed.name}_d"
    followed.source.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (id INT AUTO_INCREMENT PRIMARY KEY, n INT)",
        f"INSERT INTO {database}.t (n) VALUES (1), (2), (3)",
    )
    followed.publish()
    followed.source.execute(f"INSERT INTO {database}.t (n) VALUES (4), (5), (6), (7)")

    def stopped(stage: str) -> None:
        if stage == "before_seal":
            raise BrokerUnavailableError("the broker is away before the window is sealed")

    with monkeypatch.context() as patch:
        patch.setattr(fault_point, "reach", stopped)
        with pytest.raises(BrokerUnavailableError):
            followed.publish()
    assert followed.follow().rows == 3
    followed.publish()
    assert followed.follow().rows == 4
    followed.check()


@pytest.mark.extended
def test_a_follower_of_some_databases_has_those_and_no_others(on_mysql: Followed) -> None:
    Workload(on_mysql, random.Random("some")).run(5)
    other = f"{on_mysql.name}_b"
    on_mysql.source.execute(f"CREATE TABLE {other}.more (id INT PRIMARY KEY)", f"INSERT INTO {other}.more VALUES (1)")
    on_mysql.publish()
    on_mysql.follow(databases=[f"{on_mysql.name}_b"])
    assert on_mysql.databases(on_mysql.follower) == [other]
    expected = {name: shown for name, shown in on_mysql.tables(on_mysql.source).items() if other in name}
    assert on_mysql.tables(on_mysql.follower) == expected
    with pytest.raises(SettingsError, match="Name the same databases"):
        on_mysql.follow()


@pytest.mark.extended
def test_a_follower_that_begins_as_a_copy_goes_on_from_its_coordinates(on_mysql: Followed) -> None:
    name = f"{on_mysql.name}_d"
    create = [f"CREATE DATABASE {name}", f"CREATE TABLE {name}.t (id INT PRIMARY KEY)"]
    on_mysql.source.execute(*create, f"INSERT INTO {name}.t VALUES (1)")
    on_mysql.publish()
    on_mysql.follower.execute(*create, f"INSERT INTO {name}.t VALUES (1)")
    state = on_mysql.connections.commit_log().read()
    at = state.seals[1].window.head
    on_mysql.source.execute(f"INSERT INTO {name}.t VALUES (2)")
    on_mysql.publish()
    done = on_mysql.follow(start=at)
    assert (done.start, done.rows, done.definitions) == (at, 1, 0)
    on_mysql.check()


@pytest.mark.extended
def test_missing_row_stops_follower_and_rolls_its_transaction_back(on_mysql: Followed) -> None:
    name = f"{on_mysql.name}_e"
    on_mysql.source.execute(
        f"CREATE DATABASE {name}",
        f"CREATE TABLE {name}.t (id INT PRIMARY KEY, n INT)",
        f"INSERT INTO {name}.t VALUES (1, 1), (2, 2)",
    )
    on_mysql.publish()
    on_mysql.follow()
    on_mysql.follower.execute(f"DELETE FROM {name}.t WHERE id = 2")
    on_mysql.source.execute(f"INSERT INTO {name}.t VALUES (3, 3)", f"UPDATE {name}.t SET n = 0 WHERE id < 3")
    on_mysql.publish()
    with pytest.raises(AccountingError, match="misses 1 of 2 rows"):
        on_mysql.follow()
    assert on_mysql.follower.execute(f"SELECT id, n FROM {name}.t") == [(1, 1)]
    on_mysql.follower.execute(f"INSERT INTO {name}.t VALUES (2, 2)")
    on_mysql.follow()
    on_mysql.check()


@pytest.mark.extended
def test_unsupported_changes_are_refused_with_the_reason(on_mysql: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"{on_mysql.name}_r"
    on_mysql.source.execute(f"CREATE DATABASE {name}", f"CREATE TABLE {name}.t (id INT PRIMARY KEY)")
    assert on_mysql.follow() == ReplicationResult(None, None)  # it is kept before anything is published
    on_mysql.publish()
    on_mysql.follow()
    on_mysql.follower.execute(f"CREATE TRIGGER {name}.x AFTER INSERT ON {name}.t FOR EACH ROW SET @x = 1")
    on_mysql.source.execute(f"INSERT INTO {name}.t VALUES (1)")
    on_mysql.publish()
    with pytest.raises(FollowerError, match=r"has a trigger 'x'.*would be made twice"):
        on_mysql.follow()
    on_mysql.follower.execute(f"DROP TRIGGER {name}.x")
    with on_mysql.follower.connect() as holder, holder.cursor() as cursor:
        cursor.execute(f"SELECT GET_LOCK('changefeed.{on_mysql.name}', 0)")
        monkeypatch.setattr("changefeed.source.mysql.follower_session._LOCK_SECONDS", 0)
        with pytest.raises(PipelineBusyError, match="another run applies"):
            on_mysql.follow()
    on_mysql.follow()
    on_mysql.check()


@pytest.mark.extended
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"columns": {"mask": {"*.*.a": {"text": "***"}}}}, "columns.mask"),
        ({"columns": {"exclude": ["*.*.a"]}}, "columns.exclude"),
        ({"publish_ddl": "off"}, "publish_ddl: off"),
        ({"skip": ["d"]}, "`skip` leaves out d"),
        ({"rows": {"*.*": "id > 5"}}, "`rows` removes rows"),
        ({"format": "maxwell", "values": {}}, "format 'maxwell' are not read back"),
        ({"topics": {"table_field": "t"}}, "table_field"),
    ],
)
def test_pipeline_with_incomplete_topics_is_refused(
    settings: dict[str, object],
    reason: str,
    mysql_server: SqlServer,
    mysql_follower: SqlServer,
    kafka_broker: KafkaBroker,
    unique_name: str,
    tmp_path: Path,
) -> None:
    made = Followed(unique_name, mysql_server, mysql_follower, kafka_broker, tmp_path, settings)
    with pytest.raises(ChangefeedError, match=reason):
        made.follow()
