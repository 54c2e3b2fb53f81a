"""Filters by condition and by op, compared with the server's WHERE."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import pytest
from integration.binlog_of import logged

from changefeed.binlog.decoder import KernelDecoder
from changefeed.errors import BinlogFormatError, SettingsError
from changefeed.model import column_types
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.route import SchemaLookup
from changefeed.model.slice_report import SliceReport
from changefeed.model.window import Slice
from changefeed.records.block import MessageBlock
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import compile_routes
from devstack.mysql import MysqlServer


def pipeline_of(**settings: Any) -> Pipeline:
    plain = {"name": "p", "source": {"connection": "s"}, "kafka": {"connection": "k"}, "tombstones": False}
    return Pipeline.model_validate({**plain, **settings})


def filtered(condition: str, **settings: Any) -> Pipeline:
    return pipeline_of(rows={"*.*": condition}, **settings)


def unknown(database: str, table: str) -> None:
    """A `SchemaLookup` for a binlog that has the names."""
    raise AssertionError(f"{database}.{table} is looked up")


class Logged:
    """The binlog file of statements, which several pipelines decode."""

    def __init__(self, server: MysqlServer, database: str, *statements: str) -> None:
        self.name, self.data = logged(server, *statements, before=[f"USE {database}"])

    def decoded(self, pipeline: Pipeline, lookup: SchemaLookup = unknown) -> tuple[list[dict[str, Any]], SliceReport]:
        def route(database: str, table: str) -> Any:
            found = compile_routes(pipeline).of(database, table)
            return found.route if found else None

        decoder = KernelDecoder(route, lookup, compile_routes(pipeline).format(0), "uuid")
        items = list(decoder.decode([self.data[FIRST_POSITION:]], Slice(0, self.name, FIRST_POSITION, len(self.data))))
        blocks = (item for item in items if isinstance(item, MessageBlock))
        messages = [message for block in blocks for message in block.messages()]
        messages.sort(key=lambda message: (message.position, message.sequence))
        assert isinstance(items[-1], SliceReport)
        return [json.loads(message.value or b"null") for message in messages], items[-1]

    def changes(self, pipeline: Pipeline) -> list[str]:
        """Op and id of each message."""
        return [f"{value['op']}{(value['after'] or value['before'])['id']}" for value in self.decoded(pipeline)[0]]


TABLE = """
CREATE TABLE t (
  id INT PRIMARY KEY, tiny TINYINT, small SMALLINT UNSIGNED, medium MEDIUMINT, big BIGINT, huge BIGINT UNSIGNED,
  price DECIMAL(12, 3), ratio DECIMAL(20, 20), whole DECIMAL(18, 0),
  name VARCHAR(300) COLLATE utf8mb4_0900_bin, code CHAR(5) COLLATE utf8mb4_0900_bin, note TEXT COLLATE utf8mb4_0900_bin,
  raw_bytes VARBINARY(20), latin VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_general_cs,
  kind ENUM('new', 'paid', 'gone')
)
"""
OF_TIME = """
CREATE TABLE moments (
  id INT PRIMARY KEY, day DATE, at DATETIME, at1 DATETIME(1), at3 DATETIME(3), at6 DATETIME(6),
  stamp TIMESTAMP NULL, stamp2 TIMESTAMP(2) NULL, stamp6 TIMESTAMP(6) NULL, since TIME, since2 TIME(2), since4 TIME(4),
  since6 TIME(6), born YEAR, fixed BINARY(4), code CHAR(6) COLLATE utf8mb4_bin, name VARCHAR(30) COLLATE utf8mb4_bin,
  note TEXT CHARACTER SET latin1 COLLATE latin1_bin, raw_bytes VARBINARY(20)
)
"""
DAYS = ["0001-01-01", "1969-12-31", "1999-12-31", "2000-02-29", "2026-01-31", "2026-02-01", "9999-12-31"]
HOURS = ["00:00:00", "00:00:01", "11:59:59", "23:59:59"]
BACKSLASH = "\\"
SPANS = ["-838:59:59", "-100:00:00", "-01:00:00", "-00:00:01", "00:00:00", "00:00:01", "12:30:45", "838:59:59"]
WORDS = ["", "a", "A", "ab", "a%b", "a_b", "ba", "abab", "é", "aé", "éa", "😀", "a😀b", "\\", "a\\b", "a\nb", " a"]
PATTERNS = [
    *(
        "",
        "%",
        "_",
        "__",
        "a%",
        "%a",
        "%b%",
        "a_b",
        "_a",
        "%_a",
        "a\\%b",
        "a\\_b",
        "%é",
        "_é%",
        "a%b%",
        "%%",
        "_%_",
        "😀",
    ),
    *("%😀%", "a_", "%ab%ab", "\\\\", "a\\\\%", "%\\%%", "a_b_", " %", "\\a%", "_%😀_"),
]


def of_time(digits: int) -> dict[str, list[str]]:
    """Fractions with ``digits`` digits, after the integer part."""
    fractions = [
        "",
        *([] if not digits else ["." + text.ljust(digits, "0")[:digits] for text in ("0", "5", "049", "9")]),
    ]
    stamps = [f"{day} {hour}" for day in DAYS for hour in HOURS]
    return {
        "datetime": [at + fraction for at in stamps for fraction in fractions],
        "timestamp": [at + fraction for at in stamps if "1970" <= at < "2038" for fraction in fractions],
        "time": [
            span + ("" if span.startswith(("-838", "838")) else fraction) for span in SPANS for fraction in fractions
        ],
    }


MOMENTS: dict[str, list[Any]] = {
    "day": DAYS,
    **{name: of_time(digits)["datetime"] for name, digits in (("at", 0), ("at1", 1), ("at3", 3), ("at6", 6))},
    **{name: of_time(digits)["timestamp"] for name, digits in (("stamp", 0), ("stamp2", 2), ("stamp6", 6))},
    **{name: of_time(digits)["time"] for name, digits in (("since", 0), ("since2", 2), ("since4", 4), ("since6", 6))},
    "born": [1901, 1999, 2000, 2026, 2155],
    "fixed": [b"abcd", b"a\0\0\0", b"\0\0\0\0", b"\xff\0\xff\0"],
    "code": [word[:6] for word in WORDS if not word.startswith(" ")],
    "name": WORDS,
    "note": [word for word in WORDS if "😀" not in word],
    "raw_bytes": [word.encode() for word in WORDS],
}
LIKE = ("code", "name", "note", "raw_bytes")
VALUES: dict[str, list[Any]] = {
    "tiny": [-128, -1, 0, 1, 127],
    "small": [0, 1, 32768, 65535],
    "medium": [-(2**23), -70000, 0, 2**23 - 1],
    "big": [-(2**63), -1, 0, 5_000_000_000, 2**63 - 1],
    "huge": [0, 1, 2**63 - 1, 2**63, 2**64 - 1],
    "price": [Decimal(text) for text in ("-123456789.125", "-0.001", "0", "0.001", "9.99", "123456789.125")],
    "ratio": [Decimal(text) for text in ("-0.5", "0", "0.00000000000000000001", "0.99999999999999999999")],
    "whole": [Decimal(text) for text in ("-999999999999999999", "0", "1000000000", "999999999999999999")],
    "name": ["", "a", "A", "ab", "abc", "é", "😀", "it's", "z" * 300],
    "code": ["", "a", "a b", "B"],
    "note": ["x" * 300, "a", "10", "9"],
    "raw_bytes": [b"", b"\x00", b"\xff\x00", b"a"],
    "latin": ["", "é", "e", "Straße"],
    "kind": ["new", "paid", "gone"],
}
ONLY_EQUAL = ("latin", "kind")
OTHERS: dict[str, list[Any]] = {
    "tiny": [1.5, 1000, -1000, -0.5],
    "small": [-1, 70000, Decimal("0.25")],
    "big": [2**63, -(2**63) - 1],
    "huge": [-1, 2**64, Decimal("0.5")],
    "price": [Decimal("9.9901"), Decimal("9999999999"), -5, Decimal("-0.0005")],
    "ratio": [1, -1, Decimal("0.123456789012345678901234")],
    "name": ["zz", "b ", "Ab"],
    "code": ["a  ", "ab"],
}


def literal(value: Any) -> str:
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return str(value) if not isinstance(value, str) else "'" + value.replace("'", "''") + "'"


def condition(chance: random.Random, depth: int = 0, comparison: Any = None) -> str:
    """A condition that is also valid on the server."""
    more = (chance, depth + 1, comparison)
    match chance.randrange(4 if depth < 3 else 1):
        case 1:
            return f"({condition(*more)} AND {condition(*more)})"
        case 2:
            return f"({condition(*more)} OR {condition(*more)})"
        case 3:
            return f"NOT ({condition(*more)})"
    return str((comparison or number_or_text)(chance))


def time_or_pattern(chance: random.Random) -> str:
    column = chance.choice(list(MOMENTS))
    if column in LIKE and chance.randrange(3):
        pattern = chance.choice([each for each in PATTERNS if column != "note" or "😀" not in each])
        if chance.randrange(4) == 0:
            return f"{column} {chance.choice(['', 'NOT '])}LIKE {literal(pattern.replace(BACKSLASH, '|'))} ESCAPE '|'"
        return f"{column} {chance.choice(['', 'NOT '])}LIKE {stored(pattern)}"
    constants = [literal(value) for value in MOMENTS[column]]
    if column in LIKE:
        return f"{column} IS NOT NULL"
    match chance.randrange(4):
        case 0:
            return f"{column} IN ({', '.join(chance.sample(constants, 3))})"
        case 1:
            low, high = chance.choice(constants), chance.choice(constants)
            return f"{column} {chance.choice(['', 'NOT '])}BETWEEN {low} AND {high}"
    return f"{column} {chance.choice(['=', '<>', '<', '<=', '>', '>='])} {chance.choice(constants)}"


def number_or_text(chance: random.Random) -> str:
    column = chance.choice(list(VALUES))
    constants = [literal(value) for value in (*VALUES[column], *OTHERS.get(column, ()))]
    match chance.randrange(5):
        case 0:
            return f"{column} IS {chance.choice(['', 'NOT '])}NULL"
        case 1:
            own = [literal(value) for value in VALUES[column]]  # of others the server makes doubles, and rounds
            return f"{column} IN ({', '.join(chance.sample(own, 3))})"
        case 2 if column not in ONLY_EQUAL:
            return f"{column} BETWEEN {chance.choice(constants)} AND {chance.choice(constants)}"
    operator = chance.choice(["=", "<>"] if column in ONLY_EQUAL else ["=", "<>", "<", "<=", ">", ">="])
    return f"{column} {operator} {chance.choice(constants)}"


def test_condition_matches_the_rows_that_the_server_selects(full_mysql_server: MysqlServer, database: str) -> None:
    chance = random.Random(15)
    full_mysql_server.execute(TABLE, database=database)
    rows = [
        f"({number}, " + ", ".join(literal(chance.choice(values)) for values in VALUES.values()) + ")"
        for number in range(60)
    ]
    for number in range(60, 90):
        maybe = (chance.choice(["NULL", literal(chance.choice(values))]) for values in VALUES.values())
        rows.append(f"({number}, {', '.join(maybe)})")
    logged = Logged(full_mysql_server, database, f"INSERT INTO t VALUES {', '.join(rows)}")
    for _ in range(150):
        sql = condition(chance)
        selected = full_mysql_server.execute(f"SELECT id FROM t WHERE {sql} ORDER BY id", database=database)
        expected = [number for (number,) in selected]
        values, report = logged.decoded(filtered(sql))
        assert [value["after"]["id"] for value in values] == expected, sql
        name = f"{database}.t"
        assert report.rows.get(name, {}).get("c", 0) == len(expected)
        assert report.filtered.get(name, {}).get("c", 0) == 90 - len(expected), "each row is counted once"


@pytest.mark.parametrize("server_name", ["full_mysql_server", "full_mariadb_server"])
def test_conditions_on_times_and_patterns_match_as_on_the_server(
    request: pytest.FixtureRequest, unique_name: str, server_name: str
) -> None:
    server: MysqlServer = request.getfixturevalue(server_name)
    server.execute(f"CREATE DATABASE `{unique_name}`")
    chance = random.Random(16)
    utc = "SET SESSION time_zone = '+00:00'"
    server.execute(OF_TIME, database=unique_name)
    rows = []
    for number in range(150):
        maybe = [
            "NULL" if number >= 120 and chance.randrange(2) else stored(chance.choice(values))
            for values in MOMENTS.values()
        ]
        rows.append(f"({number}, {', '.join(maybe)})")
    logged = Logged(server, unique_name, utc, f"INSERT INTO moments VALUES {', '.join(rows)}")
    for _ in range(200):
        sql = condition(chance, 0, time_or_pattern)
        selected = server.execute(utc, f"SELECT id FROM moments WHERE {sql} ORDER BY id", database=unique_name)
        values, _ = logged.decoded(filtered(sql), lambda *_: None)  # for MariaDB's UUID and INET they are looked up
        assert [value["after"]["id"] for value in values] == [number for (number,) in selected], sql


def stored(value: Any) -> str:
    """A value as a literal in SQL, with escaped backslashes."""
    return literal(value).replace(BACKSLASH, 2 * BACKSLASH)


@pytest.fixture
def life(full_mysql_server: MysqlServer, database: str) -> Logged:
    """Rows that are created, begin to match, stop matching, and are deleted."""
    return Logged(
        full_mysql_server,
        database,
        "CREATE TABLE orders (id INT PRIMARY KEY, status VARCHAR(9), n INT)",
        "CREATE TABLE other (id INT PRIMARY KEY)",
        "INSERT INTO orders VALUES (1, 'draft', 0), (2, 'paid', 0), (3, NULL, 0)",
        "UPDATE orders SET status = 'paid' WHERE id = 1",
        "UPDATE orders SET status = 'draft' WHERE id = 2",
        "DELETE FROM orders WHERE id <= 2",
        "INSERT INTO other VALUES (9)",
    )


@pytest.mark.parametrize(
    ("sql", "published"),
    [
        ("status = 'paid'", "c2 u1 d1"),
        ("status <> 'paid'", "c1 u2 d2"),
        ("before.status = 'paid' OR after.status = 'paid'", "c2 u1 u2 d1"),
        ("after.status = 'paid'", "c2 u1"),
        ("before.status = 'paid'", "u2 d1"),
        ("before.id IS NULL", "c1 c2 c3"),
        ("after.id IS NULL", "d1 d2"),
        ("status IS NULL", "c3"),
        ("NOT status = 'paid'", "c1 u2 d2"),
    ],
)
def test_bare_column_belongs_to_the_image_of_the_op(life: Logged, sql: str, published: str) -> None:
    pipeline = pipeline_of(rows={"*.orders": sql, "*.ord*": "id = 99"})
    assert life.changes(pipeline) == [*published.split(), "c9"]


def test_skipped_ops_are_counted(life: Logged, database: str) -> None:
    assert life.changes(pipeline_of(skip=["u", "c"])) == ["d1", "d2"]
    _, report = life.decoded(pipeline_of(skip=["u"], rows={"*.orders": "id = 1"}))
    name = f"{database}.orders"
    assert report.rows == {name: {"c": 1, "d": 1}, f"{database}.other": {"c": 1}}
    assert report.filtered == {name: {"c": 2, "u": 2, "d": 1}}


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("statsu = 'x'", "compares column 'statsu' of .*mean 'status'"),
        ("n = 'x'", "with 'x': expected a number"),
        ("status = 1", "with 1: expected text in quotes"),
        ("status < 'é' AND price = 1.5", "price, and double cannot be compared: expected an integer"),
        ("kind = 'nwe'", r"with 'nwe': expected one of new, old \(did you mean 'new'"),
        ("kind < 'new'", "< of enum cannot be compared"),
        ("day = '2026-02-30'", "with '2026-02-30': expected an existing date"),
        ("day > '2026-01-01 10:00:00'", "expected a date in quotes"),
        ("day > 20260101", "with 20260101: expected a date or time in quotes"),
        ("at < '2026-01-01 10:00:00.5'", "expected at most 0 digits of a second's fraction"),
        ("at < 'now'", "expected a date and time in quotes"),
        ("stamp < '1970-01-01'", "expected a moment from 1970-01-01 00:00:01"),
        ("since < '10:00'", "expected a time in quotes"),
        ("since < '900:00:00'", "expected a time up to 838:59:59"),
        ("born = 26", "expected a year from 1901 to 2155"),
        ("fixed = X'61'", "expected 4 bytes"),
        ("status LIKE 'a%'", "LIKE of .*status, whose collation has equal characters"),
        ("n LIKE '1%'", "LIKE of .*n, a int"),
        ("fixed LIKE 'a%'", "LIKE of .*fixed, a binary"),
        ("latin > 'a'", "expected = or <>: the order of latin1"),
        ("latin = '😀'", "expected text that latin1 can hold"),
    ],
)
def test_unsupported_comparison_stops_the_run_with_the_expected_form(
    full_mysql_server: MysqlServer, database: str, sql: str, words: str
) -> None:
    create = (
        "CREATE TABLE r (id INT PRIMARY KEY, status VARCHAR(9) CHARACTER SET utf8mb4, n INT, price DOUBLE, "
        "kind ENUM('new', 'old'), latin TEXT CHARACTER SET latin1, day DATE, at DATETIME, stamp TIMESTAMP NULL, "
        "since TIME, born YEAR, fixed BINARY(4))"
    )
    logged = Logged(full_mysql_server, database, create, "INSERT INTO r (id) VALUES (1)")
    with pytest.raises(SettingsError, match=rf"'\*\.\*' in rows (compares .*|has )?{words}"):
        logged.decoded(filtered(sql))


def test_row_without_a_compared_column_stops_the_run(full_mysql_server: MysqlServer, database: str) -> None:
    minimal = "SET SESSION binlog_row_image = MINIMAL"
    create, insert = "CREATE TABLE m (id INT PRIMARY KEY, n INT, t TEXT)", "INSERT INTO m VALUES (1, 2, 'x')"
    logged = Logged(full_mysql_server, database, create, insert, minimal, "UPDATE m SET t = 'y'")
    with pytest.raises(BinlogFormatError, match=r"without a column that the pipeline's `rows` compares"):
        logged.decoded(filtered("n = 2"))
    assert logged.changes(filtered("t = 'y'")) == ["u1"]


def test_rows_of_an_xa_transaction_are_filtered_at_its_commit(full_mysql_server: MysqlServer, database: str) -> None:
    logged = Logged(
        full_mysql_server,
        database,
        "CREATE TABLE x (id INT PRIMARY KEY)",
        "XA START 'one'",
        "INSERT INTO x VALUES (1), (2), (3)",
        "XA END 'one'",
        "XA PREPARE 'one'",
        "XA COMMIT 'one'",
    )
    values, report = logged.decoded(filtered("id > 1"))
    assert [value["after"]["id"] for value in values] == [2, 3]
    assert (report.rows, report.filtered) == ({f"{database}.x": {"c": 2}}, {f"{database}.x": {"c": 1}})


def test_excluded_table_stops_no_run(
    mysql_server: MysqlServer, unique_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mysql_server.execute(f"CREATE DATABASE `{unique_name}`")
    logged = Logged(
        mysql_server,
        unique_name,
        "CREATE TABLE of_later (id INT PRIMARY KEY, v VECTOR(3), j JSON)",
        "CREATE TABLE taken (id INT PRIMARY KEY)",
        "SET SESSION binlog_row_value_options = PARTIAL_JSON",
        "BEGIN",
        "INSERT INTO of_later (id, j) VALUES (1, '{}'), (2, '{}')",
        "UPDATE of_later SET j = JSON_SET(j, '$.a', 1)",
        "COMMIT",
        "DELETE FROM of_later",
    )
    left_out = pipeline_of(tables={"exclude": ["*.of_later", "*.taken"]})
    _, report = logged.decoded(left_out)  # MINIMAL metadata, and nobody asks for the columns
    assert (report.rows, report.skipped_rows) == ({}, 6)
    with monkeypatch.context() as later:
        later.delitem(column_types.WIRE_TYPES, column_types.VECTOR.number)
        _, report = logged.decoded(left_out)
        assert (report.rows, report.skipped_rows) == ({}, 0), "skipped, and not counted"
        with pytest.raises(BinlogFormatError, match="which changefeed does not know"):
            logged.decoded(pipeline_of())
