"""Random tables, changes and definitions on a server.

For tests that run as long as they are asked to: what a `RandomSource` does depends on its seed alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pymysql
from integration.hostile_settings import HARMLESS, HOSTILE
from integration.random_tables import RandomColumn, column_makers, quoted, random_json

from devstack.mariadb import MariadbServer
from devstack.sql_server import SqlServer

ALPHABET = "äbÇd"
KEYLESS = "keyless"


@dataclass(frozen=True)
class KeyKind:
    """A primary key: the names and definitions of its columns, and the literals of a number's key."""

    columns: Mapping[str, str]
    literals: Callable[[int], tuple[str, ...]]
    only: str = ""
    """`mysql` or `mariadb`, where it is for one of them."""


def _moment(number: int, digits: int) -> str:
    day, second = divmod(number, 1440)
    fraction = f".{number % 10**digits:0{digits}d}" if digits else ""
    return f"'20{10 + day % 80:02d}-03-0{1 + number % 9} {second // 60:02d}:{second % 60:02d}:07{fraction}'"


KEYS: Mapping[str, KeyKind] = {
    "int": KeyKind({"id": "INT"}, lambda n: (str(n - 50),)),
    "counter": KeyKind({"id": "INT UNSIGNED AUTO_INCREMENT"}, lambda n: (str(n + 1),)),
    "bigint": KeyKind({"id": "BIGINT UNSIGNED"}, lambda n: (str(2**63 + n),)),
    "general_ci": KeyKind(
        {"name": "VARCHAR(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"},
        lambda n: (quoted(f"{ALPHABET[n % 4]}{n:05d}"),),
    ),
    "unicode_ci": KeyKind(
        {"name": "VARCHAR(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci"},
        lambda n: (quoted(f"{ALPHABET[n % 4]}😀{n}"),),
    ),
    "0900_ai_ci": KeyKind(
        {"name": "VARCHAR(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci"},
        lambda n: (quoted(f"{ALPHABET[n % 4]}ß{n}"),),
        "mysql",
    ),
    "uca1400": KeyKind(
        {"name": "VARCHAR(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_ai_ci"},
        lambda n: (quoted(f"{ALPHABET[n % 4]}ß{n}"),),
        "mariadb",
    ),
    "utf8mb4_bin": KeyKind(
        {"name": "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"},
        lambda n: (quoted(f"{'Aa'[n % 2]}{n // 2}"),),
    ),
    "pair": KeyKind(
        {"b": "CHAR(12) CHARACTER SET latin1", "a": "SMALLINT"},
        lambda n: (quoted(f"k{n:06}"), str(n % 7)),
    ),
    "decimal": KeyKind({"amount": "DECIMAL(12, 3)"}, lambda n: (f"{n - 40}.{n % 10}",)),
    "enum": KeyKind(
        {"state": "ENUM('sent', 'new', 'paid')", "number": "BIGINT UNSIGNED"},
        lambda n: (f"'{('new', 'paid', 'sent')[n % 3]}'", str(2**63 + n)),
    ),
    "varbinary": KeyKind({"code": "VARBINARY(8)"}, lambda n: (f"X'{n * 2654435761 % 2**40:010x}'",)),
    "binary": KeyKind({"code": "BINARY(4)"}, lambda n: (f"X'{n * 2654435761 % 2**32:08x}'",)),
    "datetime": KeyKind({"at": "DATETIME(6)"}, lambda n: (_moment(n, 6),)),
    "timestamp": KeyKind(
        {"at": "TIMESTAMP(3) DEFAULT '2020-01-01 00:00:00'"},
        lambda n: (f"FROM_UNIXTIME({10**9 + n * 3607}.{n % 1000:03d})",),
    ),
    "date": KeyKind(
        {"day": "DATE", "n2": "TINYINT UNSIGNED"},
        lambda n: (f"'20{n % 90:02d}-0{1 + n % 9}-1{n % 10}'", str(n // 90)),
    ),
    "time": KeyKind(
        {"t": "TIME(2)"}, lambda n: (f"'{'-' if n % 2 else ''}{n // 60:02d}:{n % 60:02d}:01.{n % 100:02d}'",)
    ),
    "year": KeyKind({"y": "YEAR", "z": "TINYINT"}, lambda n: (str(1901 + n % 200), str(n // 200))),
    "bit": KeyKind({"bits": "BIT(33)"}, lambda n: (str(2**32 + n),)),
    "set": KeyKind({"flags": "SET('a','b','c')", "number": "INT"}, lambda n: (str(n % 8), str(n))),
    "double": KeyKind({"d": "DOUBLE"}, lambda n: (f"{n * 0.5 - 9!r}e0",)),
    "uuid": KeyKind({"u": "UUID"}, lambda n: (f"'{n:08x}-0000-4000-8000-{n:012x}'",), "mariadb"),
    "inet6": KeyKind({"u": "INET6"}, lambda n: (f"'2001:db8::{n + 1:x}'",), "mariadb"),
    KEYLESS: KeyKind({}, lambda _: ()),
}  # fmt: skip


def plain_json(_rng: random.Random, name: str) -> RandomColumn:
    """A JSON column with documents of JSON's own types: of others a follower has the type that JSON has."""
    return RandomColumn(
        name, "JSON", lambda rng: quoted(json.dumps(random_json(rng, 2), ensure_ascii=False)), f"`{name}`", str
    )


@dataclass
class Table:
    """A table as the workload knows it."""

    name: str
    kind: str
    columns: dict[str, RandomColumn] = field(default_factory=dict)
    modified: set[str] = field(default_factory=set)
    """Columns that were renamed or got another type: their images before and after differ."""

    @property
    def key(self) -> KeyKind:
        return KEYS[self.kind]


Definition = tuple[list[str], Callable[[], None]]
"""Statements, and what the workload has to know when the server took them."""


@dataclass
class RandomSource:
    """Random tables in ``database``, which it makes, and what is done to them.

    ``definitions`` are the names of the kinds of DDL that it uses, of `_definitions`.
    """

    server: SqlServer
    database: str
    rng: random.Random
    definitions: frozenset[str]
    kinds: tuple[str, ...] = ()
    table_count: int = 4
    rows: int = 60
    partial: bool = False
    """Whether sessions have other row images than FULL."""
    of_topics: bool = False
    """Whether topics are compared: tables have names that topics have too, and the charset of each session's connection
    has all characters, as labels in topics are as they were written, and the server's are in that charset."""

    def __post_init__(self) -> None:
        self.is_mariadb = isinstance(self.server, MariadbServer)
        self.tables: dict[str, Table] = {}
        self.counts: Counter[str] = Counter()
        self._numbers = 0
        self._collations = ["utf8mb4_bin"] if self.of_topics else ["latin1_bin", "utf8mb4_bin"]
        self._makers = column_makers(self.is_mariadb) | {"json": plain_json}
        charset = self.rng.choice(["utf8mb4", "latin1", "utf8mb3"])
        self.server.execute(f"CREATE DATABASE `{self.database}` CHARACTER SET {charset}")
        name = "mariadb" if self.is_mariadb else "mysql"
        usable = [kind for kind, key in KEYS.items() if key.only in ("", name)]
        kinds = self.kinds or tuple(self.rng.sample(usable, min(self.table_count, len(usable))))
        with self.session() as cursor:
            for kind in kinds:
                self._try(cursor, self._create(kind))
            for table in list(self.tables.values()):
                for at in range(0, self.rows, 20):
                    self._execute(cursor, self._insert(table, range(at, min(at + 20, self.rows))))

    @contextlib.contextmanager
    def session(self) -> Iterator[Any]:
        with self.server.connect(database=self.database, autocommit=True) as connection, connection.cursor() as cursor:
            for name, value in HARMLESS.items():
                with contextlib.suppress(pymysql.MySQLError):
                    cursor.execute(f"SET SESSION {name} = {value}")
            yield cursor

    # --- rows

    def run(self, transactions: int) -> None:
        """Transactions, and between them definitions."""
        with self.session() as cursor:
            for _ in range(transactions):
                self._settings(cursor)
                if self.definitions and self.rng.random() < 0.2:
                    kind = self.rng.choice(sorted(self.definitions))
                    self._try(cursor, self._definitions()[kind](), kind)
                self._transaction(cursor)

    def _settings(self, cursor: Any) -> None:
        """Of a session, as applications set them."""
        if self.rng.random() < 0.2:
            self._execute(cursor, f"SET SESSION time_zone = {self.rng.choice(HOSTILE['time_zone'])}")
        if self.rng.random() < 0.2:
            self._execute(cursor, f"SET SESSION sql_mode = {self.rng.choice(HOSTILE['sql_mode'])}")
        if self.rng.random() < 0.1:
            self._execute(cursor, f"SET SESSION lc_time_names = {self.rng.choice(HOSTILE['lc_time_names'])}")
        if self.rng.random() < 0.1:
            self._execute(cursor, f"SET SESSION collation_connection = {self.rng.choice(self._collations)}")
        if self.partial and self.rng.random() < 0.2:
            self._execute(cursor, f"SET SESSION binlog_row_image = {self.rng.choice(['FULL', 'MINIMAL', 'NOBLOB'])}")
        if self.rng.random() < 0.03:
            self.server.execute("FLUSH BINARY LOGS")

    def _transaction(self, cursor: Any) -> None:
        xid = f"x{self.rng.getrandbits(60)}" if self.rng.random() < 0.08 else ""
        self._execute(cursor, f"XA START '{xid}'" if xid else "BEGIN")
        for step in range(self.rng.randrange(1, 5)):
            if step == 2 and not xid and self.rng.random() < 0.3:
                self._execute(cursor, "SAVEPOINT s")
                self._change(cursor)
                self._execute(cursor, "ROLLBACK TO s")
            self._change(cursor)
        keeps = self.rng.random() < 0.85
        if xid:
            self._execute(cursor, f"XA END '{xid}'")
            self._execute(cursor, f"XA PREPARE '{xid}'")
            self._execute(cursor, f"XA {'COMMIT' if keeps else 'ROLLBACK'} '{xid}'")
        else:
            self._execute(cursor, "COMMIT" if keeps else "ROLLBACK")

    def _change(self, cursor: Any) -> None:
        if not self.tables:
            return
        table = self.tables[self.rng.choice(sorted(self.tables))]
        number = self.rng.randrange(self.rows + 20)
        some = f"n % 11 = {number % 11}"
        match self.rng.randrange(8):
            case 0:
                sql = f"DELETE FROM `{table.name}` WHERE {self._row(table, number)}"
            case 1:
                sql = f"DELETE FROM `{table.name}` WHERE {some} LIMIT 2"
            case 2 if table.key.columns:
                literals = table.key.literals(number + 1000)
                pairs = zip(table.key.columns, literals, strict=True)
                assigned = ", ".join(f"`{name}` = {literal}" for name, literal in pairs)
                sql = f"UPDATE IGNORE `{table.name}` SET {assigned} WHERE {self._row(table, number)}"
            case 3 | 4 if table.columns:
                column = table.columns[self.rng.choice(sorted(table.columns))]
                value = "NULL" if self.rng.random() < 0.1 else column.literal(self.rng)
                sql = f"UPDATE IGNORE `{table.name}` SET `{column.name}` = {value} WHERE {some}"
            case 5:
                sql = f"UPDATE `{table.name}` SET version = version + 1 WHERE {some}"
            case _:
                numbers = range(number, number + self.rng.choice([1, 1, 3]))
                sql = self._insert(table, numbers)
        self._execute(cursor, sql)

    def _insert(self, table: Table, numbers: Sequence[int]) -> str:
        rows = []
        for number in numbers:
            values = [column.literal(self.rng) for column in table.columns.values()]
            kept = ["NULL" if self.rng.random() < 0.1 else value for value in values]
            rows.append(f"({', '.join([*table.key.literals(number), str(number), '1', *kept])})")
        names = ", ".join(f"`{name}`" for name in [*table.key.columns, "n", "version", *table.columns])
        again = "ON DUPLICATE KEY UPDATE version = version + 1" if self.rng.random() < 0.6 else ""
        verb = "INSERT IGNORE" if again or self.rng.random() < 0.6 else "REPLACE"
        return f"{verb} INTO `{table.name}` ({names}) VALUES {', '.join(rows)} {again}"

    def _row(self, table: Table, number: int) -> str:
        if not table.key.columns:
            return f"n = {number}"
        pairs = zip(table.key.columns, table.key.literals(number), strict=True)
        return " AND ".join(f"`{name}` = {literal}" for name, literal in pairs)

    # --- definitions

    def _next(self) -> int:
        self._numbers += 1
        return self._numbers

    def _column(self) -> RandomColumn:
        maker = self._makers[self.rng.choice(sorted(self._makers))]
        return maker(self.rng, self.rng.choice(["c", "ä c", 'q"uote', "Order"]) + str(self._next()))

    def _create(self, kind: str) -> Definition:
        table = Table(f"{'t' if self.of_topics else self.rng.choice(['t', 'Tä', 't '])}{self._next()}_{kind}", kind)
        for _ in range(self.rng.randint(1, 5)):
            column = self._column()
            table.columns[column.name] = column
        columns = [f"`{name}` {definition}" for name, definition in table.key.columns.items()]
        columns += ["n INT NOT NULL", "version INT NOT NULL"]
        columns += [f"`{column.name}` {column.definition}" for column in table.columns.values()]
        if table.key.columns:
            columns.append(f"PRIMARY KEY ({', '.join(f'`{name}`' for name in table.key.columns)})")
        if self.rng.random() < 0.4:
            columns.append("KEY by_n (n, version)")

        def done() -> None:
            self.tables[table.name] = table

        return [f"CREATE TABLE `{table.name}` ({', '.join(columns)}) ENGINE=InnoDB"], done

    def _definitions(self) -> dict[str, Callable[[], Definition]]:
        return {
            "create": lambda: self._create(self.rng.choice([*{each.kind for each in self.tables.values()}, "int"])),
            "drop": self._drop,
            "add": self._add,
            "drop_column": self._drop_column,
            "rename_column": self._rename_column,
            "modify": self._modify,
            "place": self._place,
            "truncate": lambda: ([f"TRUNCATE TABLE `{self._any().name}`"], _nothing),
            "rename": self._rename,
            "swap": self._swap,
            "like": self._like,
            "index": lambda: ([f"ALTER TABLE `{self._any().name}` ADD INDEX i{self._next()} (version, n)"], _nothing),
            "comment": lambda: ([f"ALTER TABLE `{self._any().name}` COMMENT 'it''s \\\\ {self._next()}'"], _nothing),
            "charset": lambda: (
                [f"ALTER TABLE `{self._any().name}` DEFAULT CHARACTER SET {self.rng.choice(['latin1', 'utf8mb4'])}"],
                _nothing,
            ),
            "copy": self._copy,
            "view": lambda: ([f"CREATE OR REPLACE VIEW v AS SELECT n, version FROM `{self._any().name}`"], _nothing),
        }

    def _any(self) -> Table:
        return self.tables[self.rng.choice(sorted(self.tables))]

    def _drop(self) -> Definition:
        if len(self.tables) < 3:
            return self._create("int")
        name = self._any().name
        return [f"DROP TABLE `{name}`"], lambda: self.tables.pop(name) and None

    def _add(self) -> Definition:
        table, column = self._any(), self._column()
        place = self.rng.choice(["", " FIRST", " AFTER version"])
        value = "" if "GEOMETRY" in column.definition else self.rng.choice(["", " COMMENT 'ä''s'"])

        def done() -> None:
            table.columns[column.name] = column

        return [f"ALTER TABLE `{table.name}` ADD COLUMN `{column.name}` {column.definition}{value}{place}"], done

    def _drop_column(self) -> Definition:
        table = self._any()
        if len(table.columns) < 2:
            return self._add()
        name = self.rng.choice(sorted(table.columns))
        return [f"ALTER TABLE `{table.name}` DROP COLUMN `{name}`"], lambda: table.columns.pop(name) and None

    def _rename_column(self) -> Definition:
        table = self._any()
        if not table.columns:
            return self._add()
        name = self.rng.choice(sorted(table.columns))
        column = table.columns[name]
        renamed = RandomColumn(f"r{self._next()}", column.definition, column.literal, "", str)

        def done() -> None:
            del table.columns[name]
            table.columns[renamed.name] = renamed

        change = self.rng.choice(
            [f"RENAME COLUMN `{name}` TO {renamed.name}", f"CHANGE `{name}` {renamed.name} {column.definition}"]
        )
        return [f"ALTER TABLE `{table.name}` {change}"], done

    def _modify(self) -> Definition:
        table = self._any()
        if not table.columns:
            return self._add()
        name = self.rng.choice(sorted(table.columns))
        old = table.columns[name]
        fresh = self._column() if self.rng.random() < 0.5 else old
        definition = self.rng.choice(["LONGTEXT CHARACTER SET utf8mb4", "LONGBLOB", "VARCHAR(400)", fresh.definition])
        literal = fresh.literal if definition == fresh.definition else lambda rng: f"'m{rng.randrange(100)}'"

        def done() -> None:
            table.columns[name] = RandomColumn(name, definition, literal, "", str)
            table.modified.add(name)

        return [f"ALTER TABLE `{table.name}` MODIFY `{name}` {definition}"], done

    def _place(self) -> Definition:
        table = self._any()
        if not table.columns:
            return self._add()
        column = table.columns[self.rng.choice(sorted(table.columns))]
        return [f"ALTER TABLE `{table.name}` MODIFY `{column.name}` {column.definition} FIRST"], _nothing

    def _rename(self) -> Definition:
        table, name = self._any(), f"renamed{self._next()}"

        def done() -> None:
            del self.tables[table.name]
            table.name = name
            self.tables[name] = table

        return [f"RENAME TABLE `{table.name}` TO `{name}`"], done

    def _swap(self) -> Definition:
        one, other = self._any(), self._any()
        if one is other:
            return self._rename()

        def done() -> None:
            one.name, other.name = other.name, one.name
            self.tables[one.name], self.tables[other.name] = one, other

        parts = (f"`{one.name}` TO aside", f"`{other.name}` TO `{one.name}`", f"aside TO `{other.name}`")
        return [f"RENAME TABLE {', '.join(parts)}"], done

    def _like(self) -> Definition:
        table = self._any()
        made = Table(f"like{self._next()}", table.kind, dict(table.columns))

        def done() -> None:
            self.tables[made.name] = made

        return [f"CREATE TABLE `{made.name}` LIKE `{table.name}`"], done

    def _copy(self) -> Definition:
        table = self._any()
        made = Table(f"copy{self._next()}", KEYLESS)

        def done() -> None:
            self.tables[made.name] = made

        return [f"CREATE TABLE `{made.name}` AS SELECT n, version FROM `{table.name}`"], done

    # --- the server

    def _try(self, cursor: Any, definition: Definition, kind: str = "create") -> None:
        statements, done = definition
        if all(self._execute(cursor, statement) for statement in statements):
            self.counts[f"DDL {kind}"] += 1
            done()

    def _execute(self, cursor: Any, sql: str) -> bool:
        """Whether the server takes it: much is refused, by keys that are there and by strict modes."""
        if os.environ.get("CHANGEFEED_SHOW_SQL"):
            print(sql[:400], flush=True)
        try:
            cursor.execute(sql)
        except pymysql.MySQLError:
            self.counts["refused"] += 1
            return False
        self.counts["statements"] += 1
        return True


def _nothing() -> None:
    pass


EVERY_DEFINITION = frozenset(
    {
        *("create", "drop", "add", "drop_column", "rename_column", "modify", "place", "truncate", "rename", "swap"),
        *("like", "index", "comment", "charset", "copy", "view"),
    }
)
