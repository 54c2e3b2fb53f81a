"""Labels and defaults with four-byte characters, for which information_schema lists `?`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.command import NOTHING_NEW, Command
from integration.command_forks import CommandForks

from changefeed.ddl.names import TableName
from changefeed.ddl.schemas import Schemas
from changefeed.ddl.sql_file import defined_schemas
from changefeed.ddl.table import Table, UnknownTable
from changefeed.model.connection import MysqlConnection
from changefeed.model.table_schema import Default, TableSchema
from changefeed.replicate.ddl_record import DdlRecord, digest_tables
from changefeed.source.mysql.catalog import create_statement, table_schema
from changefeed.source.mysql.follower_session import FollowerSession
from changefeed.source.mysql.preflight import unreadable
from changefeed.source.mysql.server_schemas import current_schemas
from changefeed.source.mysql.session import Session, server_of
from changefeed.source.mysql.side_effects import cascading_keys
from devstack.kafka import KafkaBroker
from devstack.spark_connect import SparkConnectServer
from devstack.sql_server import SqlServer

_SET = ", ".join(f"'s{number}😀'" for number in range(63))
CREATE = f"""CREATE TABLE {{}} (
    id INT PRIMARY KEY,
    e ENUM('a', 'x😀', 'b?c', '🎉''z', '?') DEFAULT 'x😀' COMMENT 'c😀',
    must ENUM('a?', '🎉') NOT NULL DEFAULT '🎉',
    s SET('q', '😀', 'w?') DEFAULT '😀,w?',
    wide ENUM('ü😀', '?') CHARACTER SET utf16 NOT NULL DEFAULT 'ü😀',
    many SET({_SET}, '?') NOT NULL DEFAULT 's1😀,?',
    text VARCHAR(20) DEFAULT 'd😀?',
    expression VARCHAR(20) DEFAULT (CONCAT('ü😀?', 'y')),
    narrow ENUM('?', 'y') CHARACTER SET latin1
) CHARACTER SET utf8mb4"""


@pytest.fixture(params=["mysql_server", "mariadb_server"])
def server(request: pytest.FixtureRequest, unique_name: str) -> Iterator[SqlServer]:
    server: SqlServer = request.getfixturevalue(request.param)
    server.execute(f"CREATE DATABASE `{unique_name}`")
    yield server
    server.execute(f"DROP DATABASE `{unique_name}`", f"DROP USER IF EXISTS '{unique_name}'@'%'")


@pytest.fixture
def session(server: SqlServer) -> Iterator[Session]:
    with Session(MysqlConnection.from_uri(server.url)) as session:
        yield session


def followed(session: Session, database: str, create: str) -> TableSchema:
    """The table as its statement in the binlog says it."""
    schemas = Schemas(server=server_of(session), databases={database: "utf8mb4_general_ci"})
    (table,) = defined_schemas(f"USE `{database}`; {create}", schemas).tables.values()
    assert isinstance(table, Table)
    return table.schema


def test_a_learned_table_is_the_same_as_one_that_was_followed(
    server: SqlServer, session: Session, unique_name: str
) -> None:
    create = CREATE.format("t")
    server.execute(create, database=unique_name)
    learned = table_schema(session, unique_name, "t")
    defined = followed(session, unique_name, create)
    assert learned is not None
    assert [(c.name, c.labels, c.default, c.comment) for c in learned.columns] == [
        (c.name, c.labels, c.default, c.comment) for c in defined.columns
    ]
    entry = current_schemas(session).tables[TableName(unique_name, "t")]
    assert isinstance(entry, Table)
    assert entry.schema.columns == learned.columns
    number = len(learned.columns[1].labels)
    server.execute(
        *(f"INSERT INTO t (id, e, many) VALUES ({n}, {n}, 1 << {n + 58})" for n in range(1, number + 1)),
        database=unique_name,
    )
    rows = server.execute(f"SELECT e, many FROM `{unique_name}`.t ORDER BY id")
    assert [row[0] for row in rows] == list(learned.columns[1].labels)
    assert [row[1] for row in rows] == list(learned.columns[5].labels[-5:])


def test_a_copy_has_the_defaults_of_bytes_that_are_no_text(
    server: SqlServer, session: Session, unique_name: str
) -> None:
    bytes_of = "SELECT HEX(DEFAULT(a)), HEX(DEFAULT(b)), c FROM {} LIMIT 1"
    server.execute(
        "CREATE TABLE t (a BINARY(4) DEFAULT X'00FF', b VARBINARY(9) DEFAULT X'FE275C0A', c TEXT DEFAULT ('é'))",
        "INSERT INTO t VALUES ()",
        database=unique_name,
    )
    create = create_statement(session, unique_name, "t")
    server.execute(create.replace("`t`", "`copy`", 1), "INSERT INTO copy VALUES ()", database=unique_name)
    copied, original = (server.execute(bytes_of.format(table), database=unique_name) for table in ("copy", "t"))
    assert copied == original == [("00FF0000", "FE275C0A", "é")]


BYTES = """CREATE TABLE bytes (
    id INT PRIMARY KEY,
    short BINARY(4) NOT NULL DEFAULT X'00FF',
    zeros BINARY(3) NOT NULL DEFAULT X'000000',
    blank BINARY(3) NOT NULL DEFAULT '',
    ending BINARY(4) NOT NULL DEFAULT X'FF00',
    start VARBINARY(4) NOT NULL DEFAULT X'0041',
    v VARBINARY(9) NOT NULL DEFAULT X'FE275C0A',
    q VARBINARY(9) NOT NULL DEFAULT X'3FC33F',
    t VARBINARY(9) NOT NULL DEFAULT 'a?é',
    none VARBINARY(9) NOT NULL DEFAULT '',
    b BINARY(16) NOT NULL DEFAULT X'C3A9F09F98803F00275C0A1A5C5C2725',
    nothing VARBINARY(9),
    word VARCHAR(9) CHARACTER SET utf8mb4 NOT NULL DEFAULT 'd😀'
    {blob}
)"""


def test_defaults_of_bytes_are_learned_as_they_are(server: SqlServer, session: Session, unique_name: str) -> None:
    blob = ", blob_ BLOB NOT NULL DEFAULT X'80FF00'" if session.is_mariadb else ""
    create = BYTES.format(blob=blob)
    server.execute(create, "INSERT INTO bytes (id) VALUES (1)", database=unique_name)
    learned, defined = table_schema(session, unique_name, "bytes"), followed(session, unique_name, create)
    assert learned is not None
    names = [column.name for column in learned.columns if "bin" in column.data_type or column.data_type == "blob"]
    (row,) = server.execute(f"SELECT {', '.join(f'HEX({name})' for name in names)} FROM `{unique_name}`.bytes")
    assert [(c.name, c.default) for c in learned.columns] == [(c.name, c.default) for c in defined.columns]
    defaults = [column.default for column in learned.columns if column.name in names]
    assert [default and (default.text or "").removeprefix("0x") for default in defaults] == [
        value or "" for value in row
    ]
    entry = current_schemas(session).tables[TableName(unique_name, "bytes")]
    assert isinstance(entry, Table)
    assert entry.schema.columns == learned.columns


def test_bytes_that_are_no_text_stop_nothing_that_looks_at_a_table(server: SqlServer, unique_name: str) -> None:
    child = "CREATE TABLE child (id INT, b BINARY(4) DEFAULT X'00FF', CONSTRAINT own FOREIGN KEY (id) REFERENCES t (id)"
    server.execute("CREATE TABLE t (id INT PRIMARY KEY)", f"{child} ON DELETE CASCADE)", database=unique_name)
    server.execute(
        f"CREATE USER '{unique_name}'@'%' IDENTIFIED BY 'secret'",
        f"GRANT SELECT ON `{unique_name}`.* TO '{unique_name}'@'%'",
    )
    name = TableName(unique_name, "child")
    with Session(MysqlConnection.from_uri(f"mysql://{unique_name}:secret@127.0.0.1:{server.port}")) as limited:
        assert unreadable(limited, [(unique_name, "child")]) == {}
        keys = list(cascading_keys(limited, lambda database, _table: database == unique_name))
        assert keys == [(name, "own")]
        learned = table_schema(limited, unique_name, "child")
    assert learned is not None
    assert (learned.columns[1].default or Default("")).text == "0x00FF0000"
    with FollowerSession(MysqlConnection.from_uri(server.root_url)) as follower:
        record = {"ddl": "ALTER TABLE child ENGINE=InnoDB", "databaseName": unique_name, "session": {}}
        ddl = DdlRecord.of(json.dumps(record).encode(), server_of(follower))
        before = digest_tables(follower, ddl)
        server.execute("ALTER TABLE child ALTER b SET DEFAULT X'00FE'", database=unique_name)
        assert digest_tables(follower, ddl) != before


def test_a_copy_by_show_create_is_the_same_table(server: SqlServer, session: Session, unique_name: str) -> None:
    server.execute(CREATE.format("t"), database=unique_name)
    create = create_statement(session, unique_name, "t")
    server.execute(f"CREATE DATABASE `{unique_name}_copy`", create.replace("`t`", f"`{unique_name}_copy`.t", 1))
    try:
        copied, original = table_schema(session, f"{unique_name}_copy", "t"), table_schema(session, unique_name, "t")
        assert copied is not None
        assert original is not None
        assert copied.columns == original.columns
    finally:
        server.execute(f"DROP DATABASE `{unique_name}_copy`")


def test_a_default_that_mariadb_does_not_say_is_not_known(mariadb_server: SqlServer, unique_name: str) -> None:
    mariadb_server.execute(
        f"CREATE DATABASE `{unique_name}`",
        f"CREATE TABLE `{unique_name}`.t (v VARCHAR(9) CHARACTER SET utf8mb4 NOT NULL DEFAULT 'd😀')",
    )
    with Session(MysqlConnection.from_uri(mariadb_server.url)) as session:
        empty = table_schema(session, unique_name, "t")
        mariadb_server.execute(f"INSERT INTO `{unique_name}`.t VALUES ('x')")
        filled = table_schema(session, unique_name, "t")
    mariadb_server.execute(f"DROP DATABASE `{unique_name}`")
    assert empty is not None
    assert filled is not None
    assert (empty.columns[0].default, filled.columns[0].default) == (None, Default("d😀"))


def test_unreadable_labels_leave_the_table_unknown(server: SqlServer, unique_name: str) -> None:
    server.execute(
        CREATE.format("t"),
        "CREATE TABLE plain (e ENUM('a', 'b'), n ENUM('?') CHARACTER SET latin1)",
        f"CREATE USER '{unique_name}'@'%' IDENTIFIED BY 'pw'",
        f"GRANT INSERT ON `{unique_name}`.* TO '{unique_name}'@'%'",
        database=unique_name,
    )
    url = f"mysql://{unique_name}:pw@{server.url.rpartition('@')[2]}"
    with Session(MysqlConnection.from_uri(url)) as session:
        tables = current_schemas(session).tables
        unknown = tables[TableName(unique_name, "t")]
        assert isinstance(unknown, UnknownTable)
        for words in ("labels of `e`", "question marks", "GRANT", "binlog_row_metadata=FULL", "--define"):
            assert words in unknown.problem
        assert isinstance(tables[TableName(unique_name, "plain")], Table)
    server.execute(f"GRANT SELECT ON `{unique_name}`.* TO '{unique_name}'@'%'")
    with Session(MysqlConnection.from_uri(url)) as session:
        assert isinstance(current_schemas(session).tables[TableName(unique_name, "t")], Table)


@pytest.mark.extended
def test_labels_missing_on_an_old_server_can_be_defined(
    mysql_57_server: SqlServer,
    tmp_path: Path,
    kafka_broker: KafkaBroker,
    unique_name: str,
    server_id: int,
    spark_connect: SparkConnectServer,
    forks: CommandForks,
) -> None:
    server = mysql_57_server
    server.execute(f"CREATE DATABASE `{unique_name}`")
    spark = f"{{connect: '{spark_connect.url}'}}"
    changefeed = Command(tmp_path, unique_name, unique_name, server, kafka_broker, server_id, spark, forks, mask="")
    create = "CREATE TABLE {}t (id INT PRIMARY KEY, e ENUM('x😀', 'y') CHARACTER SET utf8mb4)"
    server.execute(create.format(""), database=unique_name)
    assert changefeed("run", unique_name).exit_code == NOTHING_NEW
    checked = changefeed("check", unique_name)
    assert checked.exit_code == 1, checked
    assert f"what columns {unique_name}.t has is not known: labels of `e`" in checked.out + checked.err
    server.execute("INSERT INTO t VALUES (1, 'x😀')", database=unique_name)
    changefeed("run", unique_name).is_refused("SchemaError", f"{unique_name}.t", "labels of `e`", "--define")
    assert changefeed.records("t") == []
    (tmp_path / "t.sql").write_text(create.format(f"`{unique_name}`."))
    defined = changefeed("schema", unique_name, "--define", str(tmp_path / "t.sql"))
    assert defined.exit_code == 0, defined
    ran = changefeed("run", unique_name)
    assert ran.exit_code == 0, ran
    assert [json.loads(record.value)["after"]["e"] for record in changefeed.records("t")] == ["x😀"]
