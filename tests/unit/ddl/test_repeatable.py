"""Which changes in statement format are known to be repeatable; others are not run on followers."""

from __future__ import annotations

import pytest

from changefeed.ddl.repeatable import doubt_of_numbers, doubt_of_repeat
from changefeed.ddl.session import Flavour, Server, SessionContext


def doubt(sql: str, *, one_unique_key: bool = True, session: SessionContext | None = None) -> str:
    names = frozenset({"known"})
    return doubt_of_repeat(sql, session or SessionContext("shop"), Server(), names, one_unique_key=one_unique_key)


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t VALUES (1, 'SELECT', X'ff', NULL, DEFAULT)",
        "INSERT LOW_PRIORITY INTO shop.`t x` (a, `select`) VALUES (1, 2), (RAND(), NOW(6))",
        "REPLACE t SET a = CONCAT('a', UPPER(@known)), b = -5 + 3 * (2 - 1)",
        "UPDATE t AS x SET x.a = x.a + 1, b = IF(a > 2, 'UUID()', \"f(1)\") WHERE a IN (1, 2) AND (b IS NULL OR NOT "
        "(c)) ORDER BY a",
        "DELETE QUICK FROM shop.t WHERE a BETWEEN 1 AND 2 /* LIMIT 3 */ -- SELECT",
        "/* by a tool */ DELETE FROM t",
        "INSERT INTO t (a) VALUES (1) ON DUPLICATE KEY UPDATE a = VALUES(a) + 1",
        "UPDATE t SET a = CAST(b AS DECIMAL(5, 2)) COLLATE utf8mb4_bin",
        "INSERT INTO t VALUES (_binary 'abc', _latin1 'x', N'y', 'é')",
    ],
)
def test_repeatable_statements_have_no_doubt(sql: str) -> None:
    assert doubt(sql) == ""


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("INSERT INTO t SELECT 1", "reads other tables"),
        ("INSERT INTO t TABLE u", "reads other tables"),
        ("UPDATE t SET a = (SELECT MAX(b) FROM u)", "reads other tables"),
        ("UPDATE t, u SET t.a = u.a", "reads other tables"),
        ("UPDATE (t) SET a = 1", "reads other tables"),
        ("UPDATE t JOIN u SET t.a = u.a", "reads other tables"),
        ("DELETE t FROM t, u WHERE t.a = u.a", "reads other tables"),
        ("DELETE FROM t USING t, u WHERE t.a = u.a", "reads other tables"),
        ("WITH x AS (SELECT 1) DELETE FROM t", "not INSERT"),
        ("LOAD DATA INFILE 'x' INTO TABLE t", "not INSERT"),
        ("CALL p()", "not INSERT"),
        ("UPDATE t SET a = 1 LIMIT 1", "order"),
        ("INSERT IGNORE INTO t VALUES (1)", "order"),
        ("UPDATE t SET a = RAND()", "it calls 'RAND'"),
        ("UPDATE t SET a = uuid ()", "it calls 'uuid'"),
        ("UPDATE t SET a = f(1)", "it calls 'f'"),
        ("UPDATE t SET a = shop.now()", "it calls 'now'"),
        ("UPDATE t SET a = `now`()", "it calls 'now'"),
        ("INSERT INTO t VALUES (NEXTVAL(s))", "it calls 'NEXTVAL'"),
        ("INSERT INTO t (a) VALUES (f(1))", "it calls 'f'"),
        ("UPDATE t SET a = @x", "variable @x"),
        ("UPDATE t SET a = @@server_id", "variable @"),
        ("UPDATE t SET a = (@known := 3)", "assigns"),
        ("UPDATE t SET a = CURRENT_USER", "more than a change"),
        ("UPDATE t SET a = b / 3", "div_precision_increment"),
        ("UPDATE t SET a = /*!50000 f */ (1)", "it calls 'f'"),
        ("INSERT INTO t VALUES (_latin1 'é')", "client's charset"),
        ("INSERT INTO t VALUES ('a", "cannot be read"),
        ("", "not INSERT"),
    ],
)
def test_unrepeatable_statements_have_a_doubt(sql: str, why: str) -> None:
    assert why in doubt(sql)


def test_on_duplicate_key_is_known_for_one_unique_key_only() -> None:
    sql = "INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = 2"
    assert "order of its table's keys" in doubt(sql, one_unique_key=False)


@pytest.mark.parametrize(
    ("sql", "is_known"),
    [
        ("INSERT INTO t VALUES (NULL, 1), (DEFAULT, (2 + f(3, 4))), (0, 5)", True),
        ("INSERT INTO t (n) VALUES (1), (2)", True),
        ("INSERT INTO shop.t (n, ID) VALUE (1, NULL), (2, NULL) ON DUPLICATE KEY UPDATE n = VALUES(n)", True),
        ("INSERT INTO t () VALUES (), ()", True),
        ("INSERT INTO t VALUES (7, 1)", True),
        ("REPLACE t SET n = 1", True),
        ("INSERT INTO t VALUES (NULL, 1), (7, 2), (NULL, 3)", False),
        ("REPLACE INTO shop.t (n, `id`) VALUES (1, NULL), (2, 3 + 4)", False),
        ("INSERT t VALUES (NULL), (NULL)", False),
    ],
)
def test_auto_increment_after_an_explicit_number_is_unknown(sql: str, is_known: bool) -> None:
    found = doubt_of_numbers(sql, SessionContext("shop"), Server(), ["id", "n"], "id")
    assert (found == "") is is_known


@pytest.mark.parametrize(
    "sql",
    ["UPDATE t SET v = CURRENT_ROLE", "UPDATE t SET n = rownum", "UPDATE t SET n = EXTRACT(WEEK FROM d)"],
)
def test_bare_functions_and_unlogged_settings_are_doubtful(sql: str) -> None:
    assert doubt(sql) != ""
    assert doubt("UPDATE t SET d = d + INTERVAL 1 WEEK") == ""


def test_regular_expressions_of_mariadb_have_flags_of_their_own() -> None:
    mariadb = Server(Flavour.MARIADB, (11, 4, 0))
    sql = "UPDATE t SET a = 1 WHERE b REGEXP 'x.y'"
    assert "flags" in doubt_of_repeat(sql, SessionContext("shop"), mariadb, frozenset(), one_unique_key=True)
    assert doubt(sql) == ""


def test_quotes_are_those_of_the_session() -> None:
    session = SessionContext("shop", ansi_quotes=True)
    assert "it calls 'f'" in doubt('UPDATE t SET a = "f"(1)', session=session)
    assert doubt("UPDATE t SET a = 'f' WHERE b = \"f\"", session=session) == ""


def test_mariadbs_comments_count_on_mariadb() -> None:
    server = Server(Flavour.MARIADB, (11, 4, 0))
    sql = "UPDATE t SET a = 1 /*M!100000 LIMIT 1 */"
    assert doubt_of_repeat(sql, SessionContext("shop"), server, frozenset(), one_unique_key=True) != ""
    assert doubt(sql) == ""
