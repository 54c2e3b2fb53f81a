"""A source, a pipeline over some of its databases, and a follower; compares the tables of both servers."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml
from faults.inline_spark import InlineSpark

from changefeed.ingest.cut import cut
from changefeed.ingest.run import run_windows
from changefeed.model.connection import MysqlConnection
from changefeed.pipeline.checkpoint_store import checkpoint_store
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.plan import plan
from changefeed.replicate.run import ReplicationResult, replicate
from changefeed.settings.file import read_pipeline
from changefeed.settings.requests.run import RunBounds
from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.sql_server import SqlServer

_COUNTER = re.compile(r" AUTO_INCREMENT=\d+")


@dataclass
class Followed:
    """Databases of ``source`` whose names begin with ``name``."""

    name: str
    source: SqlServer
    follower: SqlServer
    kafka: KafkaBroker
    folder: Path
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.source.execute("FLUSH BINARY LOGS")
        self.start = self.source.head()
        self.uris = {
            "source": self.source.url,
            "kafka": f"kafka://{self.kafka.bootstrap}",
            "state": f"sqlite:///{self.folder / 'state.db'}",
        }
        self.configure(**self.settings)

    def configure(self, **settings: Any) -> None:
        """Write the pipeline with these ``settings`` beside its own."""
        given = {
            "name": self.name,
            "source": {"connection": "source"},
            "kafka": {"connection": "kafka", "transaction_rows": 500},
            "tables": {"include": [f"{self.name}*.*"]},
            "topics": {"partitions": 2},
            "values": {"temporal": "iso"},
            "checkpoint": {"store": "table", "connection": "state"},
            "start": self.start,
            **settings,
        }
        path = self.folder / f"{self.name}.yaml"
        path.write_text(yaml.safe_dump(given))
        self.pipeline = read_pipeline(path)

    @property
    def connections(self) -> PipelineConnections:
        return PipelineConnections(self.pipeline, self.uris.__getitem__)

    @property
    def connection(self) -> MysqlConnection:
        return MysqlConnection.from_uri(self.follower.root_url)

    def publish(self) -> None:
        store = checkpoint_store(PipelineConnections(self.pipeline, self.uris.__getitem__), cast(Any, None))
        planned = plan(self.connections, store)
        if not planned.is_empty:
            frozen = cut(self.connections, planned, RunBounds())
            list(run_windows(InlineSpark(), self.connections, frozen, store))

    def follow(self, **options: Any) -> ReplicationResult:
        return replicate(self.connections, self.connection, **options)

    def drop(self) -> None:
        for server in (self.source, self.follower):
            for database in self.databases(server):
                server.execute(f"DROP DATABASE `{database}`")

    # --- comparing

    def databases(self, server: SqlServer) -> list[str]:
        return sorted(row[0] for row in server.execute("SHOW DATABASES") if row[0].startswith(self.name))

    def tables(self, server: SqlServer) -> dict[str, Any]:
        """What the server shows of each table: its definition, its checksum and its rows."""
        shown: dict[str, Any] = {}
        for database in self.databases(server):
            shown[database] = server.execute(f"SHOW CREATE DATABASE `{database}`")[0][1]
            for (table,) in server.execute(
                f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{database}' "
                "AND table_type = 'BASE TABLE'"
            ):
                name = f"`{database}`.`{table}`"
                definition = _COUNTER.sub("", server.execute(f"SHOW CREATE TABLE {name}")[0][1])
                rows = sorted(map(repr, server.execute("SET time_zone = '+00:00'", f"SELECT * FROM {name}")))
                # MariaDB's checksum of a table with virtual columns changes each time the table is opened.
                has_checksum = not (isinstance(server, MariadbServer) and " VIRTUAL" in definition)
                checksum = server.execute(f"CHECKSUM TABLE {name}")[0][1] if has_checksum else None
                shown[name] = (definition, checksum, rows)
        return shown

    def check(self) -> None:
        expected, found = self.tables(self.source), self.tables(self.follower)
        assert found.keys() == expected.keys()
        for name in expected:
            assert found[name] == expected[name], f"{name}: found {found[name]}, expected {expected[name]}"


@dataclass
class Workload:
    """Random transactions and DDL, as of applications and their administrators."""

    followed: Followed
    rng: random.Random
    cascades: bool = True
    partial: bool = True
    """Whether foreign keys cascade, and row images are partial; both must be off beside a snapshot."""

    def __post_init__(self) -> None:
        self.source = self.followed.source
        self.mariadb = isinstance(self.source, MariadbServer)
        self.first, self.second = f"{self.followed.name}_a", f"{self.followed.name}_b"
        self.made = 0
        rules = " ON DELETE CASCADE ON UPDATE CASCADE" if self.cascades else ""
        self.source.execute(
            f"CREATE DATABASE {self.first}",
            f"CREATE DATABASE {self.second} CHARACTER SET latin1",
            f"CREATE TABLE {self.first}.keyed (id INT PRIMARY KEY, name VARCHAR(40) UNIQUE, price DECIMAL(10,2), "
            "placed TIMESTAMP(3) NULL, kind ENUM('a','b'), twice INT AS (id * 2) VIRTUAL)",
            f"CREATE TABLE {self.first}.keyless (a INT, b VARCHAR(20), c DOUBLE, d DATE)",
            f"CREATE TABLE {self.first}.parents (id INT PRIMARY KEY)",
            f"CREATE TABLE {self.first}.children (id INT AUTO_INCREMENT PRIMARY KEY, parent INT, "
            f"FOREIGN KEY (parent) REFERENCES {self.first}.parents (id){rules})",
            f"CREATE TABLE {self.second}.composite (x VARBINARY(8), y CHAR(3), n BIGINT UNSIGNED, PRIMARY KEY (x, y))",
            f"CREATE TABLE {self.second}.audit (what TEXT, at DATETIME(6))",
            f"CREATE TRIGGER {self.first}.noted AFTER INSERT ON {self.first}.keyed FOR EACH ROW "
            f"INSERT INTO {self.second}.audit VALUES (NEW.name, NOW(6))",
        )

    def run(self, transactions: int) -> None:
        with self.source.connect(autocommit=False) as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_mode = ''")
            for _ in range(transactions):
                if self.rng.random() < 0.15:
                    for statement in self._definition():
                        cursor.execute(statement)
                    continue
                self._transaction(connection, cursor)

    def _transaction(self, connection: Any, cursor: Any) -> None:
        if self.partial and not self.mariadb:
            cursor.execute(f"SET binlog_row_image = {self.rng.choice(['FULL', 'FULL', 'MINIMAL'])}")
        xid = f"x{self.rng.random()}" if self.rng.random() < 0.15 else ""
        cursor.execute(f"XA START '{xid}'" if xid else "BEGIN")
        for number in range(self.rng.randrange(1, 6)):
            if number == 2 and not xid and self.rng.random() < 0.3:
                cursor.execute("SAVEPOINT s")
                self._change(cursor)
                cursor.execute("ROLLBACK TO s")
            self._change(cursor)
        keeps = self.rng.random() < 0.85
        if xid:
            cursor.execute(f"XA END '{xid}'")
            cursor.execute(f"XA PREPARE '{xid}'")
            cursor.execute(f"XA {'COMMIT' if keeps else 'ROLLBACK'} '{xid}'")
        elif keeps:
            connection.commit()
        else:
            connection.rollback()

    def _change(self, cursor: Any) -> None:
        key = self.rng.randrange(40)
        keyed, keyless = f"{self.first}.keyed", f"{self.first}.keyless"
        parents, composite = f"{self.first}.parents", f"{self.second}.composite"
        choices = [
            f"INSERT IGNORE INTO {keyed} (id, name, price, kind) VALUES ({key}, 'n{key % 7}é', {key}.5, 'a')",
            f"REPLACE INTO {keyed} (id, name, placed, kind) VALUES ({key}, 'N{key % 9}', NOW(3), 'zzz')",
            f"UPDATE {keyed} SET price = price + 1, kind = 'b' WHERE id > {key}",
            f"UPDATE IGNORE {keyed} SET id = id + 100 WHERE id = {key}",
            f"DELETE FROM {keyed} WHERE id % 5 = {key % 5}",
            f"INSERT INTO {keyless} (a, b, c, d) VALUES ({key}, 'x', -0e0, '0000-00-00'), ({key}, 'X', 0.1, NULL)",
            f"INSERT INTO {keyless} (a, b, d) VALUES (1, 'same', '2026-02-00'), (1, 'same', '2026-02-00')",
            f"UPDATE {keyless} SET b = 'up ' WHERE a % 7 = {key % 7}",
            f"DELETE FROM {keyless} WHERE a = 1 LIMIT 1",
            f"DELETE FROM {keyless} WHERE a % 4 = {key % 4}",
            f"INSERT IGNORE INTO {parents} VALUES ({key}), ({key + 1})",
            f"INSERT IGNORE INTO {self.first}.children (parent) VALUES ({key}), (NULL), ({key + 1})",
            f"UPDATE IGNORE {parents} SET id = id + 50 WHERE id = {key}",
            f"DELETE IGNORE FROM {parents} WHERE id % 6 = {key % 6}",
            f"INSERT IGNORE INTO {composite} VALUES (X'00{key:02d}', 'é', 18446744073709551615)",
            f"UPDATE IGNORE {composite} SET n = n - 1, y = 'b' WHERE x < X'0020'",
        ]
        cursor.execute(self.rng.choice(choices))

    def _definition(self) -> list[str]:
        first, second, third = self.first, self.second, f"{self.followed.name}_c"
        self.made += 1
        number = self.made
        here = "CREATE TABLE IF NOT EXISTS here (id INT PRIMARY KEY, text CHAR(5))"
        choices = [
            [f"ALTER TABLE {first}.keyed ADD COLUMN c{number} DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)"],
            [f"ALTER TABLE {first}.keyless ADD COLUMN c{number} VARCHAR(9) DEFAULT 'ä'"],
            [f"ALTER TABLE {first}.keyless ADD COLUMN (d{number} INT, e{number} JSON)"],
            [f"TRUNCATE TABLE {first}.keyless"],
            [f"ALTER TABLE {second}.audit ADD INDEX (at)", f"ALTER TABLE {second}.audit MODIFY what LONGTEXT"],
            [f"ALTER TABLE {second}.composite COMMENT 'number {number}'"],
            [
                f"CREATE TABLE {second}.made{number} LIKE {second}.composite",
                f"RENAME TABLE {second}.made{number} TO {first}.kept{number}",
            ],
            [f"CREATE TABLE {first}.chosen{number} AS SELECT id, name FROM {first}.keyed"],
            [f"USE {second}", f"{here} SELECT 1 AS id, 'ä' AS text" if number % 2 else here],
            [
                f"CREATE DATABASE IF NOT EXISTS {third} COLLATE utf8mb4_bin",
                f"CREATE TABLE {third}.t{number} (v VARCHAR(5))",
                f"INSERT INTO {third}.t{number} VALUES ('ß')",
            ],
            [f"DROP DATABASE IF EXISTS {third}"],
            [
                "SET sql_mode = 'ANSI_QUOTES'",
                f'CREATE TABLE {first}."quo""ted{number}" ("a b" INT, KEY ("a b"))',
                "SET sql_mode = ''",
            ],
        ]
        return self.rng.choice(choices)
