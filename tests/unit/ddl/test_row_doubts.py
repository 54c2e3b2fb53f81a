"""Which ALTER TABLEs may have another effect on the rows of a copy, and why."""

from __future__ import annotations

import pytest

from changefeed.ddl.ddl_statement import read_statement
from changefeed.ddl.row_doubts import row_doubts
from changefeed.ddl.session import Flavour, Server, SessionContext

SAME = [
    "ADD c INT DEFAULT 5",
    "ADD c VARCHAR(9) DEFAULT 'UUID()'",
    "ADD c DATETIME(6) DEFAULT NOW(6), ADD d TIME DEFAULT (CURTIME())",
    "ADD c INT DEFAULT (a + ABS(b)), ADD d JSON DEFAULT (JSON_OBJECT('a', 1))",
    "ADD c DOUBLE AS (a / 7) VIRTUAL, ADD d DOUBLE AS (a / 7)",
    "ADD c VARCHAR(99) AS (CONCAT(a, '/', b)) STORED",
    "MODIFY c CHAR(36) DEFAULT (UUID())",
    "ADD UNIQUE (a), ADD INDEX (b), DROP COLUMN c, RENAME TO u",
    "ALTER c SET DEFAULT (UUID())",
    "ORDER BY a",
]
OTHERS = {
    "ADD c CHAR(36) DEFAULT (UUID())": "'UUID'",
    "ADD (b INT, c DOUBLE DEFAULT (RAND()))": "'RAND'",
    "ADD c VARCHAR(90) DEFAULT (CURRENT_USER)": "'CURRENT_USER'",
    "ADD c DATETIME DEFAULT (SYSDATE())": "'SYSDATE'",
    "ADD c VARCHAR(40) DEFAULT (a / 7)": "div_precision_increment",
    "ADD c VARCHAR(40) DEFAULT (@@version)": "variable",
    "ADD c VARCHAR(40) AS (a / 7) STORED": "div_precision_increment",
    "MODIFY c INT AS (WEEK(d)) STORED": "default_week_format",
    "DISCARD TABLESPACE": "TABLESPACE",
    "IMPORT PARTITION p TABLESPACE": "TABLESPACE",
    "ADD id INT AUTO_INCREMENT UNIQUE, ORDER BY b": "numbers the rows",
}
OF_MARIADB = {
    "ADD c INT DEFAULT NEXTVAL(d.s)": "'NEXTVAL'",
    "ADD c INT DEFAULT (NEXT VALUE FOR d.s)": "'NEXT'",
    "ADD c INT AS (a REGEXP 'x') PERSISTENT": "default_regex_flags",
}


def doubts(clauses: str, flavour: Flavour, words: str = "ALTER TABLE t") -> list[tuple[str, bool, str, str]]:
    server = Server(flavour)
    statement = read_statement(f"{words} {clauses}", SessionContext("d"), server)
    assert not statement.problem
    return [(each.reason, each.is_of_order, each.numbered, each.added) for each in row_doubts(statement, server)]


@pytest.mark.parametrize("flavour", Flavour)
def test_deterministic_ddl_has_no_doubt(flavour: Flavour) -> None:
    assert {clauses: found for clauses in SAME if (found := doubts(clauses, flavour))} == {}


@pytest.mark.parametrize("flavour", Flavour)
def test_ddl_that_depends_on_chance_or_session_has_a_doubt(flavour: Flavour) -> None:
    expected = OTHERS | (OF_MARIADB if flavour is Flavour.MARIADB else {})
    for clauses, reason in expected.items():
        ((found, is_of_order, _, _),) = doubts(clauses, flavour)
        assert (reason in found, is_of_order) == (True, False), (clauses, found)


def test_numbers_depend_on_the_order_of_rows_only() -> None:
    for clauses, numbered, added in (
        ("ADD id INT AUTO_INCREMENT PRIMARY KEY", "", ""),
        ("ADD IF NOT EXISTS id SERIAL", "", "id"),
        ("CHANGE a id SERIAL", "a", ""),
        ("MODIFY a INT AUTO_INCREMENT, ADD PRIMARY KEY (a)", "a", ""),
    ):
        ((reason, is_of_order, *columns),) = doubts(clauses, Flavour.MARIADB)
        assert ("numbers the rows" in reason, is_of_order, columns) == (True, True, [numbered, added])
    ((reason, is_of_order, *_),) = doubts("ADD UNIQUE (a)", Flavour.MARIADB, "ALTER ONLINE IGNORE TABLE t")
    assert ("IGNORE" in reason, is_of_order) == (True, True)
