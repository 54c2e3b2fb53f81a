"""Maxwell's `xid`, `xoffset` and `commit`: what only the end of a transaction says, in the rows before it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from integration.binlog_of import logged

from changefeed.binlog.decoder import KernelDecoder
from changefeed.binlog.kernel.commit_info import MOST_MESSAGES
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.window import Slice
from changefeed.records.block import MessageBlock
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import compile_routes
from changefeed.transforms.finisher import TransformFinisher
from devstack.mysql import MysqlServer

MAXWELL = {"name": "maxwell", "output_binlog_position": False}


def pipeline_of(**settings: Any) -> Pipeline:
    plain = {"name": "p", "source": {"connection": "s"}, "kafka": {"connection": "k"}, "format": MAXWELL}
    return Pipeline.model_validate({**plain, **settings})


class Logged:
    """What statements logged in a file of their own."""

    def __init__(self, server: MysqlServer, database: str, *statements: str) -> None:
        self.name, self.data = logged(server, *statements, before=[f"USE {database}"])
        self.events = server.execute(f"SHOW BINLOG EVENTS IN '{self.name}'")

    @property
    def xids(self) -> list[int]:
        """The numbers of the transactions, as the server itself lists them."""
        return [int(match[1]) for event in self.events if (match := re.search(r"COMMIT /\* xid=(\d+)", str(event[5])))]

    def messages(self, pipeline: Pipeline, *slices: Slice, chunk: int = 1 << 30) -> list[bytes]:
        def route(database: str, table: str) -> Any:
            found = compile_routes(pipeline).of(database, table)
            return found.route if found else None

        format, calls = compile_routes(pipeline).format(0), pipeline.transform_calls({}.__getitem__)
        rules = pipeline.column_rules({}.__getitem__)
        finisher = TransformFinisher(calls, format, rules, lambda _topic: 3) if calls else None
        decoder = KernelDecoder(route, lambda *_: None, format, "uuid", finisher=finisher)
        made = []
        for window_slice in slices or (Slice(0, self.name, FIRST_POSITION, len(self.data)),):
            description = self.data[FIRST_POSITION : int.from_bytes(self.data[17:21], "little")]
            data = (description if window_slice.start != FIRST_POSITION else b"") + self.data[
                window_slice.start : window_slice.end
            ]
            chunks = (data[at : at + chunk] for at in range(0, len(data), chunk))
            for item in decoder.decode(chunks, window_slice):
                if isinstance(item, MessageBlock):
                    made += [(message.position, message.sequence, message.value or b"") for message in item.messages()]
        return [value for _, _, value in sorted(made)]

    def transaction_fields(self, pipeline: Pipeline, *slices: Slice) -> list[tuple[Any, ...]]:
        """Of each row its table, xid, xoffset and commit."""
        values = [json.loads(value) for value in self.messages(pipeline, *slices) if value]
        return [tuple(value.get(name) for name in ("table", "xid", "xoffset", "commit")) for value in values]


def tables(server: MysqlServer, database: str) -> None:
    server.execute(
        "CREATE TABLE a (id INT PRIMARY KEY, t TEXT)",
        "CREATE TABLE b (id INT PRIMARY KEY)",
        "CREATE TABLE old (id INT PRIMARY KEY) ENGINE=MyISAM",
        database=database,
    )


TRANSACTIONS = (
    *("BEGIN", "INSERT INTO a VALUES (1, 'x'), (2, 'y')", "INSERT INTO b VALUES (1)", "UPDATE a SET t = 'z'", "COMMIT"),
    "INSERT INTO b VALUES (2)",
    *("BEGIN", "DELETE FROM b", "COMMIT"),
    "INSERT INTO old VALUES (1), (2)",
    "UPDATE a SET id = 3 WHERE id = 2",
)


def expected_fields(xids: list[int], *lengths: tuple[bool, str]) -> Iterator[tuple[Any, ...]]:
    """For each transaction, of rows of these tables and with an XID or without one, what its rows say."""
    left = iter(xids)
    for has_xid, names in lengths:
        xid = next(left) if has_xid else None
        for number, name in enumerate(names.split()):
            is_last = number == len(names.split()) - 1
            yield name, xid, None if is_last else number, True if is_last else None


ALL = ((True, "a a b a a"), (True, "b"), (True, "b b"), (False, "old old"), (True, "a"))


@pytest.mark.parametrize("compressed", [False, True])
def test_rows_have_the_transactions_xid_and_the_last_row_has_commit(
    full_mysql_server: MysqlServer, database: str, compressed: bool
) -> None:
    tables(full_mysql_server, database)
    on = f"SET SESSION binlog_transaction_compression = {'ON' if compressed else 'OFF'}"
    plain = Logged(full_mysql_server, database, "SET SESSION binlog_transaction_compression = OFF")
    assert plain.xids == []
    logged = Logged(full_mysql_server, database, on, *TRANSACTIONS)
    transaction_fields = logged.transaction_fields(pipeline_of())
    xids = (
        logged.xids if not compressed else [xid for _, xid, _, last in transaction_fields if xid is not None and last]
    )
    assert len(set(xids)) == 4
    assert transaction_fields == list(expected_fields(xids, *ALL))


def test_only_rows_that_are_published_in_this_format_count(full_mysql_server: MysqlServer, database: str) -> None:
    tables(full_mysql_server, database)
    logged = Logged(full_mysql_server, database, *TRANSACTIONS)
    xids = logged.xids
    without_b = logged.transaction_fields(pipeline_of(tables={"exclude": ["*.b"]}))
    first, _, _, last = xids
    assert without_b == list(expected_fields([first, last], (True, "a a a a"), (False, "old old"), (True, "a")))
    filtered = logged.transaction_fields(pipeline_of(rows={"*.a": "t = 'x'"}, skip=["d"]))
    assert filtered == list(expected_fields(xids[:2], (True, "a b"), (True, "b"), (False, "old old")))
    flat = {"routes": [{"match": "*.a", "format": {"name": "flat"}}]}
    mixed = [one for one in logged.transaction_fields(pipeline_of(topics=flat)) if one[0] is not None]
    assert mixed == list(expected_fields(xids[:3], (True, "b"), (True, "b"), (True, "b b"), (False, "old old")))


def test_the_options_leave_each_of_them_out(full_mysql_server: MysqlServer, database: str) -> None:
    tables(full_mysql_server, database)
    logged = Logged(full_mysql_server, database, *TRANSACTIONS)
    without = logged.messages(pipeline_of(format={**MAXWELL, "output_xoffset": False}))
    assert [b"xoffset" in value for value in without] == [False] * 11
    assert b',"ts":' in without[0]
    assert f',"xid":{logged.xids[0]},"data":'.encode() in without[0]
    assert f',"xid":{logged.xids[1]},"commit":true,"data":'.encode() in without[5]
    none = logged.messages(pipeline_of(format={**MAXWELL, "output_commit_info": False}))
    assert [re.sub(rb',"(xid":\d+|commit":true)', b"", value) for value in without] == none


def test_however_the_bytes_come_the_messages_are_the_same(full_mysql_server: MysqlServer, database: str) -> None:
    tables(full_mysql_server, database)
    many = "INSERT INTO a WITH RECURSIVE n AS (SELECT 10 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 900) "
    logged = Logged(
        full_mysql_server, database, *TRANSACTIONS, many + "SELECT i, REPEAT('x', 9000) FROM n", "DELETE FROM b"
    )
    messages = logged.messages(pipeline_of())
    assert len(messages) > 890
    for chunk in (1000, 64 << 10, 1 << 20):
        assert logged.messages(pipeline_of(), chunk=chunk) == messages


def test_large_transaction_is_buffered_and_beyond_the_limit_has_no_xid(
    full_mysql_server: MysqlServer, database: str
) -> None:
    tables(full_mysql_server, database)
    most = MOST_MESSAGES
    numbers = "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < {}) SELECT i + {} FROM n"
    logged = Logged(
        full_mysql_server,
        database,
        "SET SESSION cte_max_recursion_depth = 1000000",
        "INSERT INTO a VALUES (-1, 'x')",
        f"INSERT INTO b {numbers.format(most, 0)}",
        f"INSERT INTO b {numbers.format(most + 1, most)}",
        "INSERT INTO a VALUES (-2, 'x')",
    )
    before, *rows, after = logged.messages(pipeline_of())
    first, large, _, last = logged.xids
    assert f'"xid":{first},"commit":true'.encode() in before
    assert f'"xid":{last},"commit":true'.encode() in after
    assert f'"xid":{large},"xoffset":0,'.encode() in rows[0]
    assert f'"xid":{large},"xoffset":{most - 2},'.encode() in rows[most - 2]
    assert f'"xid":{large},"commit":true,'.encode() in rows[most - 1]
    assert len(rows) == 2 * most + 1
    assert not any(b'"xid"' in value or b'"commit"' in value for value in rows[most:])


def test_a_transaction_in_two_slices_says_nothing_in_either(full_mysql_server: MysqlServer, database: str) -> None:
    tables(full_mysql_server, database)
    logged = Logged(full_mysql_server, database, "INSERT INTO a VALUES (7, '')", *TRANSACTIONS)
    maps = [event for event in logged.events if event[2] == "Table_map"]
    inside, end = maps[2][1], len(logged.data)  # before the second statement of the second transaction
    gtids = [event for event in logged.events if event[2] in ("Gtid", "Anonymous_Gtid")]
    gtid = re.sub(r".*'(.*)'", r"\1", gtids[1][5])
    slices = Slice(0, logged.name, 4, inside), Slice(1, logged.name, inside, end, gtid=gtid)
    transaction_fields = logged.transaction_fields(pipeline_of(), *slices)
    one, _, *others = logged.xids
    assert transaction_fields[0] == ("a", one, None, True)
    assert transaction_fields[1:7] == [(name, None, None, None) for name in "aabaaa"]
    assert transaction_fields[7:] == list(expected_fields(others, *ALL[1:]))


def test_rows_of_functions_and_of_xa_transactions_say_nothing(full_mysql_server: MysqlServer, database: str) -> None:
    tables(full_mysql_server, database)
    logged = Logged(
        full_mysql_server,
        database,
        "INSERT INTO b VALUES (1)",
        *("XA START 'x'", "INSERT INTO a VALUES (1, '')", "INSERT INTO b VALUES (2)", "XA END 'x'", "XA PREPARE 'x'"),
        "XA COMMIT 'x'",
        "INSERT INTO b VALUES (3)",
    )
    first, last = logged.xids
    in_xa = [("a", None, None, None), ("b", None, None, None)]
    assert logged.transaction_fields(pipeline_of()) == [("b", first, None, True), *in_xa, ("b", last, None, True)]
    transforms = [{"tables": "*.b", "function": "rename", "arguments": {"columns": {"t": "u"}}}]
    assert {one[1:] for one in logged.transaction_fields(pipeline_of(transforms=transforms))} == {(None, None, None)}


def test_a_transaction_of_which_a_part_was_rolled_back_says_nothing(
    full_mariadb_server: MysqlServer, unique_name: str
) -> None:
    full_mariadb_server.execute(f"CREATE DATABASE `{unique_name}`")
    tables(full_mariadb_server, unique_name)
    logged = Logged(
        full_mariadb_server,
        unique_name,
        "INSERT INTO b VALUES (1), (2)",
        *("BEGIN", "INSERT INTO b VALUES (3)", "SAVEPOINT s", "INSERT INTO b VALUES (4)", "INSERT INTO old VALUES (5)"),
        *("ROLLBACK TO s", "INSERT INTO b VALUES (6)", "COMMIT"),
        "INSERT INTO b VALUES (7)",
    )
    assert b"ROLLBACK TO" in logged.data, "MariaDB logs it, as a table without transactions is part of it"
    first, *_, last = logged.xids
    transaction_fields = logged.transaction_fields(pipeline_of())
    assert transaction_fields[:2] == [("b", first, 0, None), ("b", first, None, True)]
    assert transaction_fields[-1] == ("b", last, None, True)
    inside = [row for row in transaction_fields[2:-1] if row[0] == "b"]
    assert inside == [("b", None, None, None)] * 3
