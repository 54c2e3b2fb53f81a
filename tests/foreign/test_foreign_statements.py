"""Test statements of MySQL and MariaDB: followed schemas equal information_schema, and records equal SELECT.

A sample of `make test-foreign`: files of MariaDB's suite, most of which are MySQL's too, on both servers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import pymysql
import pytest
from foreign import comparer
from foreign.suites import reference_of
from foreign.trial import Arena, Trial, TrialResult

from changefeed.ddl import Schemas
from devstack.home import Home
from devstack.identity import ProcessId
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.mysqltest import MARIADB_TESTS
from devstack.process import run_server
from devstack.sql_server import SqlServer

pytestmark = pytest.mark.extended

NAMES = (
    "auto_increment create_select invisible_field olap replace truncate type_bit type_blob type_enum type_ranges "
    "type_set"
)
SAMPLE = [f"main/{name}.test" for name in NAMES.split()]
"""Files with many statements for their time, which are equal on both servers."""


@pytest.fixture(scope="module", params=[MysqlServer, MariadbServer], ids=["mysql", "mariadb"])
def server(request: pytest.FixtureRequest, session_folder: Path) -> Iterator[SqlServer]:
    """Its own server with default settings: all databases and binlogs are dropped between two files."""
    made: SqlServer = request.param(
        session_folder / f"foreign-{request.param.product}", owner=ProcessId.own(), quick=True
    )
    with run_server(made) as server:
        yield server


@pytest.fixture(scope="module")
def arena(server: SqlServer) -> Arena:
    return Arena(server, reference_of(server))


def trial(arena: Arena, tmp_path: Path, text: str) -> Trial:
    """The trial of a script of our own."""
    path = tmp_path / "own.test"
    path.write_text(text)
    return arena.run(path, tmp_path)


def test_a_sample_of_foreign_files_is_followed_and_rebuilt(arena: Arena) -> None:
    folder = MARIADB_TESTS.fetch(Home.default())
    trials = [arena.run(folder / name, folder) for name in SAMPLE]
    wrong = [
        (each.script, each.reason, *each.observations.differences)
        for each in trials
        if each.result is not TrialResult.EQUAL
    ]
    assert wrong == []
    assert sum(each.observations.schemas for each in trials) > 300
    assert sum(each.observations.tables for each in trials) > 200


LANGUAGE = """
--disable_warnings
drop table if exists t1;
--enable_warnings
# a comment; with a delimiter
--error ER_NO_SUCH_TABLE
insert into t1 values (1);
create table t1 (id int primary key, note varchar(20)); # behind it
let $rows = 5;
while ($rows)
{
  eval insert into t1 values ($rows, concat('it''s; ', '$rows'));
  dec $rows;
}
if (`select count(*) = 5 from t1`)
{
  insert into t1 values (100, 'yes');
}
if (!$rows) { insert into t1 values (101, 'none left'); }
if ($rows > 0)
{
  insert into t1 values (102, 'not so');
}
delimiter //;
create procedure p() begin insert into t1 values (103, 'p; q'); update t1 set note = null where id = 3; end//
call p()//
delimiter ;//
--connect (other,localhost,root,,)
begin;
delete from t1 where id = 1;
--connection default
update t1 set id = 200 where id = 2;
connection other;
commit;
--perl
insert into t1 values (999, 'not SQL');
EOF
disconnect other;
connection default;
"""


def test_the_language_of_the_files_is_read_as_far_as_their_statements_need(
    arena: Arena, server: SqlServer, tmp_path: Path
) -> None:
    run = trial(arena, tmp_path, LANGUAGE)
    assert run.result is TrialResult.EQUAL, run
    rows = server.execute("SELECT id FROM test.t1 WHERE note IS NOT NULL ORDER BY id")
    assert [row[0] for row in rows] == [4, 5, 100, 101, 103, 200]
    assert server.execute("SELECT note FROM test.t1 WHERE id = 4") == [("it's; 4",)]


def test_files_for_other_servers_and_files_without_changes_are_reported(arena: Arena, tmp_path: Path) -> None:
    replicated = trial(arena, tmp_path, "--source include/master-slave.inc\ncreate table t (a int);\n")
    silent = trial(arena, tmp_path, "select 1;\nshow tables;\nexec mysqldump;\n")
    assert (replicated.result, replicated.reason) == (TrialResult.NOT_COMPARABLE, "it wants master-slave.inc")
    assert (silent.result, silent.reason) == (
        TrialResult.NOT_COMPARABLE,
        "it changes nothing that is logged: left out exec",
    )


def test_a_table_that_changed_without_the_binlog_is_the_servers_fault(
    arena: Arena, server: SqlServer, tmp_path: Path
) -> None:
    run = trial(
        arena,
        tmp_path,
        """create table parent (id int primary key);
        create table child (id int primary key, p int, foreign key (p) references parent (id) on delete cascade);
        insert into parent values (1), (2); insert into child values (1, 1), (2, 2);
        create table other (a int);
        delete from parent where id = 1; insert into child values (3, 2);""",
    )
    assert run.result is (TrialResult.EQUAL if isinstance(server, MysqlServer) else TrialResult.SERVERS), run


def test_older_value_of_virtual_column_in_binlog_is_the_servers_fault(
    arena: Arena, server: SqlServer, tmp_path: Path
) -> None:
    run = trial(
        arena,
        tmp_path,
        """create table t (a int not null, b int not null, c int not null, g mediumtext as ((a <> b)) virtual,
        unique key (a), unique key (g(78)));
        replace into t (a, b, c) values (1, 8, 9); replace into t (a, b, c) values (0, 0, 10);
        replace into t (a, b, c) values (4, 4, 11); replace into t (a, b, c) values (0, 7, 12);
        replace into t (a, b, c) values (0, 0, 13);""",
    )
    assert run.result is (TrialResult.SERVERS if isinstance(server, MysqlServer) else TrialResult.EQUAL), run


def test_rolled_back_row_is_not_compared(arena: Arena, tmp_path: Path) -> None:
    run = trial(
        arena,
        tmp_path,
        """create table t (a int) engine=innodb; create table m (a int) engine=myisam; insert into t values (1);
        begin; insert into t values (2); savepoint s; insert into t values (3); create temporary table u (b int);
        rollback to s; commit; begin; insert into m values (1); insert into t values (4); rollback;
        insert into t values (5);""",
    )
    assert run.result is TrialResult.EQUAL, run


def test_difference_of_our_decoder_is_not_the_servers_fault(
    arena: Arena, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "create table t (a int, b varchar(9)); insert into t values (1, 'x'), (2, 'y'); update t set a = a + 5;"
    assert trial(arena, tmp_path, text).result is TrialResult.EQUAL

    def wrong(text: bytes) -> object:
        return {"a": 7, "b": "x"} if text == b'{"a":6,"b":"x"}' else loads(text)

    loads = orjson.loads
    with monkeypatch.context() as patch:
        patch.setattr(comparer, "image_of", wrong)
        (difference,) = trial(arena, tmp_path, text).observations.differences
        assert (difference.what, difference.is_servers) == ("rows", False)
        assert "records  (7, 'x')" in difference.text
        assert "table    (6, 'x')" in difference.text
    with monkeypatch.context() as patch:
        patch.setattr(Schemas, "apply", lambda schemas, _statement: schemas)
        first, *_ = trial(arena, tmp_path, text).observations.differences
        assert (first.what, first.is_servers) == ("schema", False)


def test_a_server_that_ends_is_started_for_the_next_file(arena: Arena, server: SqlServer, tmp_path: Path) -> None:
    server.kill()
    assert trial(arena, tmp_path, "create table t (a int); insert into t values (1);").result is TrialResult.EQUAL
    with pytest.raises(pymysql.MySQLError):
        server.execute("SELECT * FROM test.none")
