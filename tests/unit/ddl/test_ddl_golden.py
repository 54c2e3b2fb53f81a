"""Golden cases: SQL, and the statements and schemas read from it. They need no Python.

::

    # title: a table is created
    # server: mariadb 11.4.5        (optional; MySQL 9.7.0 without it)
    # session: database=shop ansi_quotes        (optional; database=shop without it)
    CREATE TABLE t (a INT);
    -> definition shop.t            after each statement: its kind, and its tables
    => shop.t latin1_swedish_ci: *a int        at the end: each table with its default collation, * in the key
    => shop.u unknown: its columns come from a SELECT

`DDL_GOLDEN=write` writes what comes out into the files: read the difference before it is committed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from changefeed.ddl import Flavour, Schemas, Server, SessionContext, Table, read_statement

GOLDEN = Path(__file__).parent / "golden"
MARIADB = Server(Flavour.MARIADB, (11, 4, 5), collation="latin1_swedish_ci")


@dataclass
class Case:
    title: str
    head: list[str]
    statements: list[str]
    expected: list[str] = field(default_factory=list)

    def server(self) -> Server:
        return MARIADB if any("mariadb" in line for line in self.head) else Server()

    def session(self) -> SessionContext:
        words = next((line.split(":", 1)[1].split() for line in self.head if line.startswith("# session:")), [])
        database = next((word.partition("=")[2] for word in words if word.startswith("database=")), "shop")
        flags = {word: True for word in words if "=" not in word}
        return SessionContext(database, **flags)  # type: ignore[arg-type]

    def run(self) -> Iterator[tuple[str, str]]:
        """(statement, what was read), and at the end ('', table)."""
        schemas = Schemas(self.server(), {"shop": self.server().collation})
        session = self.session()
        for sql in self.statements:
            statement = read_statement(sql, session, schemas.server)
            tables = ", ".join(f"{name.database}.{name.table}" for name in statement.tables)
            yield sql, f"-> {statement.kind} {tables}".rstrip()
            schemas = schemas.apply(statement)
        for name, entry in sorted(schemas.tables.items()):
            if isinstance(entry, Table):
                yield "", f"=> {name.database}.{name.table} {entry.collation}: {described(entry)}"
            else:
                problem = re.sub(r"after (['\"]).*\1, ", "", entry.problem, flags=re.DOTALL)
                yield "", f"=> {name.database}.{name.table} unknown: {problem}"
        for name, collation in schemas.databases.items():
            if name != "shop" or collation != schemas.server.collation:
                yield "", f"=> database {name} {collation}"


def described(table: Table) -> str:
    words = []
    for place, column in enumerate(table.schema.columns):
        rank = table.schema.primary_key.index(place) + 1 if place in table.schema.primary_key else 0
        rank_text = "*" * bool(rank) + (str(rank) if len(table.schema.primary_key) > 1 and rank else "")
        labels = f"({'|'.join(column.labels)})" if column.labels else ""
        unsigned = " unsigned" * column.unsigned
        collation = f" {column.collation}" if column.collation else ""
        srid = f" srid {column.srid}" if column.srid is not None else ""
        words.append(f"{rank_text}{column.name} {column.data_type}{labels}{unsigned}{collation}{srid}")
    return ", ".join(words)


def cases(path: Path) -> Iterator[Case]:
    for part in re.split(r"^(?=# title:)", path.read_text(), flags=re.MULTILINE)[1:]:
        case = Case("", [], [])
        text = ""
        for line in part.rstrip("\n").split("\n"):
            if line.startswith("# title:"):
                case.title = line[8:].strip()
            elif line.startswith(("# server:", "# session:")):
                case.head.append(line)
            elif line.startswith(("-> ", "=> ")):
                case.expected.append(line)
            else:
                text += line + "\n"
                if line.endswith(";"):
                    case.statements.append(text.strip().removesuffix(";"))
                    text = ""
        yield case


def written(path: Path) -> str:
    """The file with what comes out now."""
    parts = []
    for case in cases(path):
        lines = [f"# title: {case.title}", *case.head]
        for sql, outcome in case.run():
            lines += [f"{sql};", outcome] if sql else [outcome]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


@pytest.mark.parametrize(
    ("path", "case"),
    [
        pytest.param(path, case, id=f"{path.stem}: {case.title}")
        for path in sorted(GOLDEN.glob("*.txt"))
        for case in cases(path)
    ],
)
def test_golden_case(path: Path, case: Case) -> None:
    if os.environ.get("DDL_GOLDEN") == "write":
        path.write_text(written(path))
        return
    assert [outcome for _, outcome in case.run()] == case.expected
