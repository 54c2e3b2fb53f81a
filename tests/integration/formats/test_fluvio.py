"""Fluvio's messages: all tables in commit order, and cells under column rules."""

from __future__ import annotations

import hashlib

import orjson
from integration.binlog_of import SERVER_UUID, binlog_of

from changefeed.binlog.decoder import KernelDecoder
from changefeed.formats.format import FormatSettings, numbering_of
from changefeed.formats.registry import format_of
from changefeed.model.column_rules import (
    ColumnRule,
    ColumnRules,
    Constant,
    Excluded,
    FirstCharacters,
    Sha256,
    Treatment,
)
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.route import Route
from changefeed.records.block import MessageBlock
from devstack.mysql import MysqlServer


def test_events_of_many_tables_in_one_partition_are_in_commit_order(
    full_mysql_server: MysqlServer, unique_name: str
) -> None:
    tables = ("a", "b", "c")
    inserts = [f"INSERT INTO {table} VALUES ({n}), ({n + 1})" for n in range(0, 60, 2) for table in tables[: n % 3 + 1]]
    binlog = binlog_of(
        full_mysql_server,
        unique_name,
        *(f"CREATE TABLE {table} (n INT)" for table in tables),
        *inserts,
        "UPDATE a SET n = 0",
    )
    decoder = KernelDecoder(
        lambda database, _table: Route("events", 1) if database == unique_name else None,
        lambda *_: None,
        format_of("fluvio", FormatSettings("shop", 0)),
        SERVER_UUID,
    )
    blocks = [
        each for each in decoder.decode([binlog.data[FIRST_POSITION:]], binlog.slice) if isinstance(each, MessageBlock)
    ]
    assert {(block.topic, block.partition) for block in blocks} == {("events", 0)}
    messages = [message for block in blocks for message in block.messages()]
    events = [orjson.loads(message.value or b"") for message in messages]
    added = [(event["uri"], event["operation"]["Add"]["rows"]) for event in events if "Add" in event["operation"]]
    assert added == [
        (
            f"flv://shop/{unique_name}/{words[2]}",
            [{"cols": [{"SignedInteger": int(number.strip("(,)"))}]} for number in words[4:]],
        )
        for words in map(str.split, inserts)
    ]
    (updated,) = (event["operation"]["Update"]["rows"] for event in events if "Update" in event["operation"])
    of_a = sum(insert.startswith("INSERT INTO a ") for insert in inserts)
    assert len(updated) == 2 * of_a - 1  # one is 0 before
    assert all(message.key is None for message in messages)
    numbering = numbering_of(format_of("fluvio", FormatSettings("shop", 0)))
    assert numbering is not None
    numbered = [orjson.loads(numbering(message.value or b"", 7 + number)) for number, message in enumerate(messages)]
    assert [event["sequence"] for event in numbered] == list(range(7, 7 + len(messages)))
    assert [event | {"sequence": 0} for event in numbered] == events


def test_a_masked_cell_is_a_string_and_a_column_that_is_left_out_is_not_named(
    full_mysql_server: MysqlServer, unique_name: str
) -> None:
    binlog = binlog_of(
        full_mysql_server,
        unique_name,
        "CREATE TABLE t (id INT, born DATE, code INT, gone DATETIME, name VARCHAR(9), hidden BLOB)",
        "INSERT INTO t VALUES (1, '2001-02-03', 4, NOW(), 'Zoë', 'x'), (2, NULL, NULL, NULL, NULL, NULL)",
    )
    treatments: dict[str, Treatment] = {
        "born": Constant("***"),
        "code": Sha256("salt"),
        "gone": Excluded(),
        "name": FirstCharacters(2),
        "hidden": Constant(None),
    }
    rules = ColumnRules(
        tuple(ColumnRule(f"{unique_name}.t.{name}", treatment, "columns") for name, treatment in treatments.items())
    )
    (event,) = (
        orjson.loads(message.value or b"")
        for message in binlog.messages(format_of("fluvio", FormatSettings("shop", 0)), columns=rules)
    )
    assert event["columns"] == ["id", "born", "code", "name", "hidden"]
    code = hashlib.sha256(b"salt4").hexdigest()
    assert event["operation"]["Add"]["rows"] == [
        {"cols": [{"SignedInteger": 1}, {"String": "***"}, {"String": code}, {"String": "Zo"}, "Null"]},
        {"cols": [{"SignedInteger": 2}, *["Null"] * 4]},
    ]
