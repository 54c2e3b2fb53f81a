"""Rows through users' functions: the messages that come of them, beside those that the kernel makes by itself."""

from __future__ import annotations

import copy
import json
import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from integration.binlog_of import Binlog, binlog_of
from integration.formats.test_made_up_format import OddFormat

from changefeed.errors import BadRecordError, SettingsError
from changefeed.formats.debezium import DebeziumFormat
from changefeed.formats.format import FormatSettings, RowFormat
from changefeed.formats.headers import HEADERS, WithHeaders
from changefeed.formats.registry import format_of, known_names
from changefeed.formats.style import Encoding, Kind, Style
from changefeed.formats.template import Slot
from changefeed.model.column_rules import (
    ALL_SHOWN,
    ColumnRule,
    ColumnRules,
    Constant,
    Excluded,
    FirstCharacters,
    HmacSha256,
    Sha256,
)
from changefeed.model.message_key import KeyRule
from changefeed.model.route import TableField
from changefeed.model.topic_name import check_chosen_name
from changefeed.records.block import Message
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import compile_routes
from changefeed.settings.transform_settings import TransformCall
from changefeed.settings.transform_source import transform_source
from changefeed.transforms.arrow_changes import ArrowChanges
from changefeed.transforms.change import Change, Coordinates
from changefeed.transforms.finisher import TransformFinisher
from changefeed.transforms.lines import change_of, line_of
from changefeed.transforms.plain_rows import KNOWN, PlainRows
from devstack.mysql import MysqlServer

FORMAT = WithHeaders(DebeziumFormat("test", 0, queries=True), tuple(HEADERS))
ROWS = (
    "CREATE TABLE t (id INT PRIMARY KEY, note TEXT, amount DECIMAL(9, 2), at DATETIME(6), doc JSON, raw VARBINARY(9), "
    "big BIGINT UNSIGNED, dbl DOUBLE)",
    "CREATE TABLE other (id INT PRIMARY KEY, note TEXT)",
    "INSERT INTO t VALUES (1, 'a', 1.15, '2026-01-02 03:04:05.6', '{\"a\": 1.0}', x'00ff', 18446744073709551615, 0.1), "
    "(2, 'Zoë 😀', NULL, NULL, NULL, NULL, NULL, 1e300), (3, 'c', 3.25, NULL, '[]', x'', 0, -0.0)",
    "INSERT INTO other VALUES (1, 'first'), (2, 'second')",
    "UPDATE t SET note = CONCAT(note, '!') WHERE id < 3",
    "UPDATE t SET id = 7 WHERE id = 3",
    "BEGIN",
    "INSERT INTO other VALUES (3, 'third')",
    "DELETE FROM t WHERE id = 1",
    "INSERT INTO other VALUES (4, 'fourth')",
    "COMMIT",
)

LETTERS = "changefeed.x.dead-letter"
Make = Callable[..., TransformFinisher]


@pytest.fixture
def finisher(tmp_path: Path) -> Make:
    """Makes a finisher of function texts for `*.t`, each with arguments."""

    def make(*functions: str | tuple[str, dict[str, Any]], rules: ColumnRules = ALL_SHOWN, **options: Any) -> Any:
        calls = []
        for number, given in enumerate(functions):
            body, arguments = (given, {}) if isinstance(given, str) else given
            (tmp_path / f"f{number}.py").write_text(body)
            calls.append(TransformCall("*.t", transform_source(f"f{number}", tmp_path), arguments))

        def partitions(topic: str) -> int:
            if topic != LETTERS:
                check_chosen_name(topic)
            return 3

        return TransformFinisher(calls, options.pop("format", FORMAT), rules, partitions, **options)

    return make


@pytest.fixture(scope="module")
def binlog(full_mysql_server: MysqlServer) -> Binlog:
    return binlog_of(full_mysql_server, "transforms_rows", *ROWS)


def decoded(
    binlog: Binlog, finisher: TransformFinisher | None = None, format: RowFormat = FORMAT, **options: Any
) -> dict[tuple[str, int], list[Message]]:
    """Messages by topic and partition, in the order of their blocks."""
    given: dict[tuple[str, int], list[Message]] = {}
    for block in binlog.blocks(format, partitions=3, finisher=finisher, block_bytes=1, **options):
        given.setdefault((block.topic.removeprefix(f"{binlog.database}."), block.partition), []).extend(
            block.messages()
        )
    for messages in given.values():
        orders = [(message.position, message.sequence) for message in messages]
        assert orders == sorted(set(orders)), "each is after those before it"
    return given


def values(given: dict[tuple[str, int], list[Message]], topic: str) -> list[Any]:
    messages = sorted(
        (message for (name, _), messages in given.items() if name == topic for message in messages),
        key=lambda message: (message.position, message.sequence),
    )
    return [message.value and json.loads(message.value) for message in messages]


def without_sequences(given: dict[tuple[str, int], list[Message]]) -> dict[Any, Any]:
    shown = ("position", "key", "value", "event_id", "gtid", "headers", "seconds")
    return {
        where: [[getattr(message, name) for name in shown] for message in messages] for where, messages in given.items()
    }


SAME = "def transform(change):\n    return change\n"
SAME_BATCH = "def transform_batch(batch):\n    assert batch.num_rows\n    return batch\n"


OPTIONS = {"maxwell": {"output_commit_info": False}}
"""What says nothing of a transaction's end, which rows of functions do not know."""
EVERY_FORMAT = {
    "made up": OddFormat(FormatSettings("p", 1)),
    **{name: format_of(name, FormatSettings("p", 1, options=OPTIONS.get(name, {}))) for name in known_names()},
}


@pytest.mark.parametrize("format", [FORMAT, *EVERY_FORMAT.values()], ids=["headers", *EVERY_FORMAT])
def test_a_function_that_changes_nothing_leaves_every_byte_as_the_kernel_writes_it(
    binlog: Binlog, finisher: Make, format: RowFormat
) -> None:
    made = finisher(SAME, SAME, format=format)
    assert without_sequences(decoded(binlog, made, format)) == without_sequences(decoded(binlog, format=format))
    assert made.take_drop_counts() == {}


def test_rows_of_a_compressed_transaction_keep_their_places(
    full_mysql_server: MysqlServer, unique_name: str, finisher: Make
) -> None:
    binlog = binlog_of(full_mysql_server, unique_name, "SET binlog_transaction_compression = ON", *ROWS)
    assert without_sequences(decoded(binlog, finisher(SAME))) == without_sequences(decoded(binlog))


def test_rows_of_xa_transactions_go_through_functions_at_their_commit(
    full_mysql_server: MysqlServer, unique_name: str, finisher: Make
) -> None:
    def transaction(xid: str, end: str) -> tuple[str, ...]:
        work = (
            f"INSERT INTO t (id, note) VALUES ({xid}, 'x'), (1{xid}, 'y')",
            f"INSERT INTO other VALUES ({xid}, 'o')",
        )
        return f"XA START '{xid}'", *work, f"XA END '{xid}'", f"XA PREPARE '{xid}'", f"XA {end} '{xid}'"

    binlog = binlog_of(
        full_mysql_server, unique_name, *ROWS[:2], *transaction("5", "COMMIT"), *transaction("6", "ROLLBACK")
    )
    for format in (FORMAT, EVERY_FORMAT["avro"], EVERY_FORMAT["maxwell"], EVERY_FORMAT["flat"]):
        by_kernel, by_python = decoded(binlog, format=format), decoded(binlog, finisher(SAME, format=format), format)
        assert without_sequences(by_python) == without_sequences(by_kernel)
    assert values_of(decoded(binlog, finisher(SAME)), "t") == ["x", "y"]
    dropping = finisher("def transform(change):\n    return change if change.row['id'] > 9 else None\n")
    assert values_of(decoded(binlog, dropping), "t") == ["y"]
    assert dropping.take_drop_counts() == {"f0": 1}, "no row that was rolled back"


@pytest.mark.parametrize(
    "route",
    [
        {"partition_by": "table"},
        {"partition_by": ("Note",)},
        {"partition_by": ("id", "note"), "key": KeyRule(("note",))},
        {"table_field": TableField("of_table")},
        {"table_field": TableField("of_table", in_key=False)},
    ],
    ids=str,
)
def test_partitions_and_keys_follow_from_what_the_route_says(
    binlog: Binlog, finisher: Make, route: dict[str, Any]
) -> None:
    by_kernel, by_python = decoded(binlog, route=route), decoded(binlog, finisher(SAME), route=route)
    assert without_sequences(by_python) == without_sequences(by_kernel)


OF_TRANSACTION_RECORDS = {Slot.TRANSACTION, Slot.TRANSACTION_ID, Slot.EVENT_COUNT, Slot.EVENT_COUNTS}
"""No pipeline with functions has records of transactions."""


def test_what_the_kernel_knows_of_an_event_reaches_messages_that_python_makes() -> None:
    assert set(Slot) - OF_TRANSACTION_RECORDS == KNOWN


def test_rows_are_changed_dropped_split_and_sent_elsewhere(binlog: Binlog, finisher: Make) -> None:
    function = """
def transform(change, *, suffix):
    if change.op == "d":
        return None
    if change.row["id"] == 2:
        change.row["note"] += suffix
        return [change, change.replace(topic="elsewhere"), change.replace(topic="other.t", key=())]
    return change.replace(topic="t.rest")
"""
    made = finisher((function, {"suffix": " +"}))
    given = decoded(binlog, made)
    t = [value["after"]["note"] for value in values(given, "t")]
    assert t == values_of(given, "elsewhere") == values_of(given, "other.t") == ["Zoë 😀 +", "Zoë 😀! +"]
    assert values_of(given, "t.rest") == ["a", "c", "a!", None, None, "c"], "a change of key: delete, tombstone, create"
    assert values_of(given, "other") == ["first", "second", "third", "fourth"]
    assert made.take_drop_counts() == {"f0": 1}
    (create, *_) = [m for (topic, _), ms in given.items() if topic == "elsewhere" for m in ms]
    assert create.event_id.endswith(b"/1.1"), "row 1, part 1"
    assert create.key == b'{"id":2}'
    assert {m.key for (topic, _), ms in given.items() if topic == "other.t" for m in ms} == {None}
    ids = Counter(message.event_id for messages in given.values() for message in messages)
    assert set(ids.values()) == {1}


def values_of(given: dict[tuple[str, int], list[Message]], topic: str) -> list[Any]:
    return [value and value["after"] and value["after"]["note"] for value in values(given, topic)]


def test_rows_sent_to_another_tables_topic_are_in_binlog_order(binlog: Binlog, finisher: Make) -> None:
    made = finisher(f'def transform(change):\n    return change.replace(topic="{binlog.database}.other")\n')
    given = decoded(binlog, made)
    assert {topic for topic, _ in given} == {"other"}
    notes = values_of(given, "other")
    assert notes == [
        "a",
        "Zoë 😀",
        "c",
        "first",
        "second",
        "a!",
        "Zoë 😀!",
        None,
        None,
        "c",
        "third",
        None,
        None,
        "fourth",
    ]


def test_columns_may_come_and_go_and_change_their_names_in_the_key_too(binlog: Binlog, finisher: Make) -> None:
    rename = (
        "from changefeed.transforms.supplied.rename import transform as rename\n"
        "def transform(change, columns):\n"
        "    for row in change.rows:\n"
        "        row['words'] = ['a', 1, None]\n"
        "    return rename(change, columns)\n"
    )
    given = decoded(binlog, finisher((rename, {"columns": {"id": "number", "note": "text"}})))
    first = values(given, "t")[0]
    assert list(first["after"])[:2] == ["number", "text"]
    assert first["after"]["words"] == ["a", 1, None]
    keys = [m.key for (topic, _), ms in given.items() if topic == "t" for m in ms]
    assert all(key is not None and key.startswith(b'{"number":') for key in keys)


def test_masks_and_columns_left_out_come_after_functions(binlog: Binlog, finisher: Make) -> None:
    treatments = {
        "note": FirstCharacters(2),
        "amount": Sha256("salt"),
        "at": Constant(None),
        "doc": Excluded(),
        "raw": HmacSha256("key"),
        "big": Sha256(""),
        "dbl": HmacSha256(""),
    }
    rules = ColumnRules(tuple(ColumnRule(f"*.*.{name}", how, "columns.mask") for name, how in treatments.items()))
    by_kernel, by_python = decoded(binlog, columns=rules), decoded(binlog, finisher(SAME, rules=rules), columns=rules)
    assert without_sequences(by_kernel) == without_sequences(by_python)
    assert values_of(by_python, "t")[0] == "a"
    key = ColumnRules((ColumnRule("*.t.ID", Constant("x"), "columns.mask"),))
    with pytest.raises(SettingsError, match="belongs to the primary key"):
        decoded(binlog, finisher(SAME, rules=key))
    number = ColumnRules((ColumnRule("*.t.big", FirstCharacters(1), "columns.mask"),))
    with pytest.raises(SettingsError, match="'big' is no text after the pipeline's functions"):
        decoded(binlog, finisher(SAME, rules=number))


def test_records_of_a_pipeline_with_functions_have_no_statement_text(
    full_mysql_server: MysqlServer, unique_name: str, finisher: Make
) -> None:
    binlog = binlog_of(full_mysql_server, unique_name, "SET binlog_rows_query_log_events = ON", *ROWS)
    rules = ColumnRules((), transformed=True)
    given = decoded(binlog, finisher(SAME, rules=rules), columns=rules)
    assert [v["source"]["query"] for topic in ("t", "other") for v in values(given, topic) if v] == [None] * 12
    assert values(decoded(binlog), "other")[0]["source"]["query"] == ROWS[3]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise KeyError('card')", ["KeyError: 'card'"]),
        ("return 5", ["returned int", "expected a Change"]),
        ("return [change, 5]", ["returned int"]),
        ("return change.replace(table='x')", ["changed table"]),
        ("return change.replace(op='x')", ["op is 'x'"]),
        ("return change.replace(op='u')", ["of op u expected before and after"]),
        ("return change.replace(after=[1])", ["a row is list"]),
        ("del change.after['id']; return change", ["the key's column 'id' is not in the row"]),
        ("change.after['note'] = {1, 2}; return change", ["cannot be written", "set"]),
        ("return change.replace(topic='a b')", ["cannot be written", "'a b' cannot be a topic's name"]),
        ("return change.replace(topic='changefeed.x.commits')", ["is not for rows"]),
        ("return change.replace(topic='__consumer_offsets')", ["is not for rows"]),
        ("return change.replace(topic=None)", ["topic is NoneType"]),
        ("return [change] * 70000", ["more than 65,536 changes"]),
    ],
)
def test_function_error_has_function_table_key_and_coordinates(
    binlog: Binlog, finisher: Make, body: str, words: Sequence[str]
) -> None:
    with pytest.raises(BadRecordError) as caught:
        decoded(binlog, finisher(f"def transform(change):\n    {body}\n"))
    message = str(caught.value)
    for word in (
        *words,
        "transform 'f0'",
        f"'{binlog.database}.t'",
        "key {'id': 1}",
        f"on change {binlog.name}:",
        "/0 of table",
        "op c",
    ):
        assert word in message


def test_a_dead_letter_says_what_it_was_and_shows_nothing_that_was_to_be_hidden(binlog: Binlog, finisher: Make) -> None:
    function = "def transform(change):\n    if change.row['id'] == 2:\n        1 / 0\n    return change\n"
    given = decoded(binlog, finisher(function, dead_letters=LETTERS))
    letters = [m for (topic, _), ms in given.items() if topic == LETTERS for m in ms]
    assert [(letter.key, letter.value) for letter in letters] == [(None, None)] * 2
    headers = dict(letters[0].headers)
    assert headers["changefeed.table"] == headers["changefeed.topic"] == f"{binlog.database}.t".encode()
    assert letters[0].event_id.endswith(b"/1")
    assert values_of(given, "t") == ["a", "c", "a!", None, None, "c", None, None]


BATCHES = """
import pyarrow as pa
import pyarrow.compute as pc


def transform_batch(batch, suffix):
    batch = pa.Table.from_batches([batch]).filter(pc.not_equal(batch["op"], "d"))
    after = batch["after"].combine_chunks()
    names = [field.name for field in after.type]
    columns = dict(zip(names, after.flatten()))
    columns["note"] = pc.binary_join_element_wise(columns["note"], suffix, "")
    batch = batch.set_column(batch.schema.names.index("after"), "after", pa.StructArray.from_arrays(
        [columns[name] for name in names], names))
    return pa.concat_tables([batch, batch]).sort_by("change")
"""


def test_a_function_of_batches_changes_drops_and_splits_many_rows_at_once(binlog: Binlog, finisher: Make) -> None:
    made = finisher((BATCHES, {"suffix": " +"}), SAME)
    given = decoded(binlog, made)
    assert values_of(given, "t")[:6] == ["a +", "a +", "Zoë 😀 +", "Zoë 😀 +", "c +", "c +"]
    assert made.take_drop_counts() == {"f0": 1}
    assert values_of(given, "other") == ["first", "second", "third", "fourth"]


def test_a_function_of_batches_that_changes_nothing_leaves_every_byte(
    full_mysql_server: MysqlServer, unique_name: str, finisher: Make
) -> None:
    for image in ("FULL", "MINIMAL"):
        binlog = binlog_of(full_mysql_server, f"{unique_name}{image}", f"SET binlog_row_image = {image}", *ROWS)
        for same in (SAME_BATCH, SAME):
            assert without_sequences(decoded(binlog, finisher(same, SAME_BATCH))) == without_sequences(decoded(binlog))


MANY = (
    "CREATE TABLE t (id INT PRIMARY KEY, note TEXT, few TINYINT UNSIGNED NOT NULL, big BIGINT UNSIGNED, dbl DOUBLE, "
    "flt FLOAT, amount DECIMAL(12, 2), at DATETIME(3), raw VARBINARY(9), late TIME(6) NOT NULL, flag BIT(1))",
    "CREATE TABLE other (id INT PRIMARY KEY, note TEXT)",
    *(
        statement
        for number in range(0, 40, 2)
        for statement in (
            f"INSERT INTO t VALUES ({number}, CONCAT('q\"\\\\/', CHAR(9, 10, 13, 8, 12, 1, 31, 127), 'é😀', {number}), "
            f"{number}, 18446744073709551615 - {number}, {number} / 7, 0.1 * {number}, -1234567.25, "
            f"'2026-01-02 03:04:05.678', x'00ff', '-01:02:03.4', {number} % 4 = 0), "
            f"({number + 1}, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, '00:00:00', NULL)",
            f"INSERT INTO other VALUES ({number}, 'between')",
            f"UPDATE t SET note = '', id = id + 1000, big = {number} WHERE id = {number}",
            f"DELETE FROM t WHERE id = {number + 1}",
        )
    ),
)


@pytest.fixture(scope="module")
def many(full_mysql_server: MysqlServer) -> Binlog:
    return binlog_of(full_mysql_server, "transforms_many", *MANY)


@pytest.fixture
def no_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """No row of a function of batches becomes an object."""

    def fail(*_: Any) -> None:
        raise AssertionError("rows became objects")

    monkeypatch.setattr(ArrowChanges, "objects", fail)
    monkeypatch.setattr(PlainRows, "objects", fail)


@pytest.mark.usefixtures("no_objects")
@pytest.mark.parametrize("name", ["headers", *EVERY_FORMAT])
def test_batch_functions_keep_the_bytes_of_unchanged_rows_in_each_format(
    many: Binlog, finisher: Make, name: str
) -> None:
    format = {**EVERY_FORMAT, "headers": FORMAT}[name]
    made = finisher(SAME_BATCH, SAME_BATCH, format=format)
    assert without_sequences(decoded(many, made, format)) == without_sequences(decoded(many, format=format))
    assert made.take_drop_counts() == {}


@pytest.mark.usefixtures("no_objects")
@pytest.mark.parametrize(
    "route",
    [
        {"partition_by": "table"},
        {"partition_by": ("note",)},
        {"key": KeyRule(("note", "id")), "partition_by": ("id",)},
        {"table_field": TableField("of_table")},
    ],
    ids=str,
)
def test_rows_that_pass_by_columns_go_where_the_route_says(many: Binlog, finisher: Make, route: dict[str, Any]) -> None:
    by_kernel, by_columns = decoded(many, route=route), decoded(many, finisher(SAME_BATCH), route=route)
    assert without_sequences(by_columns) == without_sequences(by_kernel)


@pytest.mark.usefixtures("no_objects")
def test_masks_hold_for_rows_that_pass_by_columns(many: Binlog, finisher: Make) -> None:
    treatments = {
        "note": FirstCharacters(2),
        "amount": Sha256("salt"),
        "at": Constant(None),
        "late": Excluded(),
        "raw": HmacSha256("key"),
        "few": Constant("x"),
    }
    rules = ColumnRules(tuple(ColumnRule(f"*.*.{name}", how, "columns.mask") for name, how in treatments.items()))
    by_kernel, by_columns = (
        decoded(many, columns=rules),
        decoded(many, finisher(SAME_BATCH, rules=rules), columns=rules),
    )
    assert without_sequences(by_kernel) == without_sequences(by_columns)


COLUMNS = """
import pyarrow as pa
import pyarrow.compute as pc


def image(rows, change):
    columns = change(dict(zip([field.name for field in rows.type], rows.flatten())))
    return pa.StructArray.from_arrays(list(columns.values()), list(columns), mask=rows.is_null())


def changed(columns):
    columns["dbl"] = pc.multiply(columns["dbl"], 3)
    columns["length"] = pc.utf8_length(columns["note"])
    columns["is_long"] = pc.greater(columns["length"], 3)
    del columns["flag"]
    return columns


def transform_batch(batch):
    batch = pa.table(batch).filter(pc.not_equal(batch["row"], 1)).combine_chunks().to_batches()[0]
    topic = pc.if_else(pc.equal(pc.bit_wise_and(batch["position"], 1), 0), "even", batch["topic"])
    columns = dict(zip(batch.schema.names, batch.columns))
    columns |= {"before": image(batch["before"], changed), "after": image(batch["after"], changed), "topic": topic}
    return pa.RecordBatch.from_pydict(columns)
"""
ROWS_OF_COLUMNS = """
def transform(change):
    if change.coordinates.row == 1:
        return None
    for row in change.rows:
        row["dbl"] = None if row["dbl"] is None else row["dbl"] * 3
        row["length"] = None if row["note"] is None else len(row["note"])
        row["is_long"] = None if row["note"] is None else len(row["note"]) > 3
        del row["flag"]
    return change.replace(topic="even") if change.coordinates.position % 2 == 0 else change
"""


@pytest.mark.parametrize("name", ["headers", "flat", "maxwell"])
def test_batch_function_equals_row_function_for_columns_and_routing(
    many: Binlog, finisher: Make, name: str, request: pytest.FixtureRequest
) -> None:
    format = {**EVERY_FORMAT, "headers": FORMAT}[name]
    of_rows = finisher(ROWS_OF_COLUMNS, format=format)
    by_rows = decoded(many, of_rows, format)
    request.getfixturevalue("no_objects")
    of_batches = finisher(COLUMNS, SAME_BATCH, format=format)
    assert without_sequences(decoded(many, of_batches, format)) == without_sequences(by_rows)
    assert of_batches.take_drop_counts() == of_rows.take_drop_counts() == {"f0": 20}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "ids = [row['id'] for row in batch['after'].to_pylist() if row]\n    if 2 in ids: raise KeyError('x')\n"
            "    return batch",
            ["KeyError", "'id': 2"],
        ),
        ("return 5", ["returned int", "expected a RecordBatch"]),
        ("return batch.drop_columns(['op'])", ["has no column 'op'"]),
        ("return batch.drop_columns(['change'])", ["has no column 'change'"]),
        (
            "import pyarrow\n    return batch.set_column(0, 'change', pyarrow.array([7] * len(batch)))",
            ["rising numbers of given changes"],
        ),
    ],
)
def test_a_batch_that_a_function_fails_on_is_searched_for_the_change(
    binlog: Binlog, finisher: Make, body: str, words: Sequence[str]
) -> None:
    with pytest.raises(BadRecordError) as caught:
        decoded(binlog, finisher(f"def transform_batch(batch):\n    {body}\n"))
    for word in (*words, "transform 'f0'", f"on change {binlog.name}:", f"table '{binlog.database}.t' with key"):
        assert word in str(caught.value)


def test_values_of_several_types_in_a_column_are_each_written_as_json(binlog: Binlog, finisher: Make) -> None:
    of_id = "{1: 5, 2: 'five', 3: [5, {'a': None}], 7: 2.5}"
    function = (
        f"def transform(change):\n    for row in change.rows: row['note'] = {of_id}[row['id']]\n    return change\n"
    )
    given = decoded(binlog, finisher(function))
    assert values_of(given, "t") == [5, "five", [5, {"a": None}], 5, "five", None, None, 2.5, None, None]
    hashed = ColumnRules((ColumnRule("*.*.note", Sha256("salt"), "columns.mask"),))
    given = decoded(binlog, finisher(function, rules=hashed), columns=hashed)
    texts = (b"5", b"five", b'[5,{"a":null}]')
    assert values_of(given, "t")[:3] == [sha256(b"salt" + text).hexdigest() for text in texts]


def test_a_binary_format_has_what_python_writes_of_other_types(binlog: Binlog, finisher: Make) -> None:
    avro = EVERY_FORMAT["avro"]

    def given(note: str) -> dict[Any, Any]:
        body = f"def transform(change):\n    for row in change.rows:\n        row['note'] = {note}\n    return change\n"
        return without_sequences(decoded(binlog, finisher(body, format=avro), avro))

    assert given("row['id']") == given("str(row['id'])")
    assert given("[row['id'], None]") == given("f\"[{row['id']},null]\"")
    body = "def transform(change):\n    change.row['raw'] = 'abc'\n    return change\n"
    with pytest.raises(BadRecordError, match=r"on change .*/0 of table .*cannot be written: Error: Incorrect padding"):
        decoded(binlog, finisher(body, format=avro), avro)


@pytest.mark.parametrize("body", ["row['few'] = None", "del row['few']"])
def test_a_column_that_a_format_cannot_leave_out_is_an_error_that_names_the_change(
    many: Binlog, finisher: Make, body: str
) -> None:
    function = (
        f"def transform(change):\n    row = change.row\n    if change.op == 'd':\n        {body}\n    return change\n"
    )
    avro = EVERY_FORMAT["avro"]
    with pytest.raises(BadRecordError) as caught:
        decoded(many, finisher(function, format=avro), avro)
    for words in (
        "transform 'f0' failed on change",
        f"'{many.database}.t' with key {{'id': 1}} (op d",
        "be written: ValueError",
    ):
        assert words in str(caught.value)
    letters = decoded(many, finisher(function, format=avro, dead_letters=LETTERS), avro)
    assert sum(len(messages) for (topic, _), messages in letters.items() if topic == LETTERS) == 20


DOCUMENTS = (
    "CREATE TABLE t (id INT PRIMARY KEY, doc JSON)",
    "INSERT INTO t VALUES (1, '[1, 2]'), (2, '{\"a\": 1}'), (3, 'true'), (4, '7'), (5, NULL)",
    "INSERT INTO t VALUES (6, '\"text\"'), (7, '{\"a\": 2}')",
)


def test_documents_that_have_no_type_together_come_in_several_batches(
    full_mysql_server: MysqlServer, unique_name: str, finisher: Make
) -> None:
    binlog = binlog_of(full_mysql_server, unique_name, *DOCUMENTS)
    format = format_of("debezium", FormatSettings("p", 1, style=Style({Kind.JSON: Encoding.INLINE})))
    for chain in ((SAME_BATCH,), (SAME, SAME_BATCH)):
        made = decoded(binlog, finisher(*chain, format=format), format)
        assert without_sequences(made) == without_sequences(decoded(binlog, format=format))


def test_function_that_fails_on_large_batches_gets_smaller_ones(
    many: Binlog, finisher: Make, caplog: pytest.LogCaptureFixture
) -> None:
    few = "def transform_batch(batch):\n    assert len(batch) <= 16, len(batch)\n    return batch\n"
    assert without_sequences(decoded(many, finisher(few))) == without_sequences(decoded(many))
    assert f"failed on a batch of 80 changes of {many.database}.t and on no change of it" in caplog.text


def test_functions_of_rows_and_of_batches_follow_each_other(binlog: Binlog, finisher: Make) -> None:
    rename = (
        "from changefeed.transforms.supplied.rename import transform as rename\n"
        "def transform(change):\n    return rename(change, {'id': 'number'})\n"
    )
    late = (
        "def transform(change):\n    assert change.timestamp.tzinfo and change.key == ('number',)\n    return change\n"
    )
    given = decoded(binlog, finisher(rename, SAME_BATCH, late, (BATCHES, {"suffix": "?"})))
    assert given == decoded(binlog, finisher(rename, (BATCHES, {"suffix": "?"})))
    assert [value["after"]["note"] for value in values(given, "t")[:4]] == ["a?", "a?", "Zoë 😀?", "Zoë 😀?"]
    assert {m.key for (topic, _), ms in given.items() if topic == "t" for m in ms} >= {b'{"number":1}', b'{"number":7}'}


def test_of_a_change_that_cannot_be_written_in_part_nothing_is(binlog: Binlog, finisher: Make) -> None:
    function = (
        "def transform(change):\n    return [change, change.replace(topic='a b' if change.row['id'] == 2 else 'ok')]\n"
    )
    given = decoded(binlog, finisher(function, dead_letters=LETTERS))
    assert "Zoë 😀" not in values_of(given, "t")
    assert values_of(given, "t") == values_of(given, "ok")
    assert sum(len(messages) for (topic, _), messages in given.items() if topic == LETTERS) == 2


def test_rows_that_a_filter_leaves_out_reach_no_function(binlog: Binlog, finisher: Make) -> None:
    made = finisher("def transform(change):\n    assert change.row['id'] != 2\n    return change\n")
    settings = {"source": {"connection": "m"}, "kafka": {"connection": "k"}, "rows": {"*.t": "id <> 2"}}
    route = compile_routes(Pipeline.model_validate({"name": "p", **settings})).of(binlog.database, "t")
    assert route is not None
    given = decoded(binlog, made, route={"rows": route.route.rows})
    assert "Zoë 😀" not in values_of(given, "t")


SCRIPTED = """
def transform(change):
    change.ext = 1
    if change.op == "d":
        change.members["why"] = {"deleted": [change.row["id"], None]}
    for row in change.rows:
        row["changed"] = 1
    return change
"""
SCRIPTED_BATCH = """
import pyarrow as pa
import pyarrow.compute as pc
def transform_batch(batch):
    return batch.set_column(
        batch.schema.names.index("members"), "members", pa.array([json(change) for change in batch.to_pylist()])
    )
def json(change):
    assert change["members"] is None
    return '{"ext":1}' if change["op"] != "d" else '{"ext":1,"why":{"deleted":[%d,null]}}' % change["before"]["id"]
"""


def _rows_of_event(value: Any) -> list[Any]:
    if "operation" in value:
        (value,) = value["operation"].values()
    rows: list[Any] = value["rows"]
    return rows


def test_member_set_by_a_function_is_in_the_records_of_each_format(binlog: Binlog, finisher: Make) -> None:
    for name in sorted({*known_names(), "schemas"} - {"avro", "columns", "cloudevents"}):
        options = {"schemas": True} if name == "schemas" else {}
        format = format_of("debezium" if options else name, FormatSettings("test", 0, options=options))
        if options:
            with pytest.raises(BadRecordError, match="member 'ext': the schema of the records has no place for it"):
                decoded(binlog, finisher(SCRIPTED, format=format), format)
            continue
        given = decoded(binlog, finisher(SCRIPTED, format=format), format)
        joined = name in ("event", "fluvio")  # whose records have several changes: each row has its own
        rows = [
            row
            for value in values(given, "t")
            if value is not None
            for row in (_rows_of_event(value) if joined else [value])
        ]
        assert rows
        assert all(value["ext"] == 1 for value in rows), name
        assert [value["why"] for value in rows if "why" in value] in ([{"deleted": [1, None]}], []), name
        assert name == "fluvio" or all('"changed"' in json.dumps(value) for value in rows), name
        others = [message.value for (topic, _), messages in given.items() for message in messages if topic == "other"]
        assert all(b'"ext"' not in value for value in others if value), name
    avro = format_of("avro", FormatSettings("test", 0))
    with pytest.raises(BadRecordError, match="member 'ext': the schema of the records has no place for it"):
        decoded(binlog, finisher(SCRIPTED, format=avro), avro)
    column = SCRIPTED.replace("change.ext = 1", "").replace('change.members["why"]', "unused")
    assert any(decoded(binlog, finisher(column, format=avro), avro).values())


def test_members_leave_all_else_of_a_record_as_it_is(binlog: Binlog, finisher: Make) -> None:
    without = decoded(binlog, finisher("def transform(change):\n    return change"))
    with_ext = decoded(binlog, finisher("def transform(change):\n    change.ext = 1\n    return change"))
    for messages in with_ext.values():
        for message in messages:
            if message.value is not None:
                object.__setattr__(message, "value", message.value.replace(b',"ext":1}', b"}"))
    assert with_ext == without


def test_members_pass_through_functions_of_batches_and_of_rows(binlog: Binlog, finisher: Make) -> None:
    of_rows = SCRIPTED.replace('row["changed"] = 1', "pass")
    by_row = decoded(binlog, finisher(of_rows))
    assert decoded(binlog, finisher(SCRIPTED_BATCH)) == by_row
    same_batch = "def transform_batch(batch):\n    return batch"
    same_row = "def transform(change):\n    assert change.ext == 1\n    return change.replace(topic=change.topic)"
    assert decoded(binlog, finisher(of_rows, same_batch, same_row)) == by_row
    broken = "import pyarrow as pa\ndef transform_batch(batch):\n    return pa.Table.from_batches([batch]).set_column("
    broken += "batch.schema.names.index('members'), 'members', pa.array(['[1]'] * len(batch)))"
    with pytest.raises(BadRecordError, match=r"members is '\[1\]': expected the text of a JSON object, or null"):
        decoded(binlog, finisher(broken))


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("change.topic = 'x'", r"'topic' of a change cannot be set: return `change.replace\(topic=...\)`"),
        ("change.tabel = 'x'", r"a change has no 'tabel' \(did you mean 'table'\?\). If a member of the record"),
        ("change.topics = 'x'", r"did you mean 'topic'"),
        ("change.table = 'x'", "'table' of a change says where it comes from, and stays"),
        ("change.row = {}", "'row' of a change cannot be set: change what is in it"),
        ("change.replace(topics='x')", "did you mean 'topic'"),
        ("change.ext", "a change has no 'ext', and no function has set it"),
        ("change.ext = {1, 2}", "its members .* are not JSON"),
        ("change.source = 1", "the record has a member 'source' of its own: give this one another name"),
    ],
)
def test_invalid_member_name_is_an_error(binlog: Binlog, finisher: Make, statement: str, words: str) -> None:
    with pytest.raises(BadRecordError, match=words):
        decoded(binlog, finisher(f"def transform(change):\n    {statement}\n    return change"))


def test_extension_attributes_of_cloudevents_are_as_its_specification_says(binlog: Binlog, finisher: Make) -> None:
    format = format_of("cloudevents", FormatSettings("test", 0))
    made = "def transform(change):\n    change.{} = {}\n    return change"
    events = [
        each for each in values(decoded(binlog, finisher(made.format("ext", 1), format=format), format), "t") if each
    ]
    assert {event["ext"] for event in events} == {1}
    for name, value, words in (("Ext", 1, "small letters and digits only"), ("ext", 0.5, "an integer of 32 bits")):
        with pytest.raises(BadRecordError, match=words):
            decoded(binlog, finisher(made.format(name, value), format=format), format)


def test_a_change_with_members_can_be_copied_and_pickled_and_copies_have_their_own() -> None:
    change = Change(
        "c", "shop", "t", None, {"id": 1}, ("id",), "shop.t", datetime.now(UTC), None, Coordinates("b", 4, 0)
    )
    change.ext = 1
    for copied in (copy.deepcopy(change), pickle.loads(pickle.dumps(change)), change.replace(), change.replace(ext=1)):
        assert copied == change
        copied.ext = 2
        assert change.ext == 1
    del change.ext
    assert not change.members
    assert change_of(line_of(change.replace(ext=[1])), 1).members == {"ext": [1]}
