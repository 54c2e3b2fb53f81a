"""Which DDL a follower runs: that of its tables, whatever the names of their columns."""

from __future__ import annotations

import pytest

from changefeed.ddl.ddl_statement import read_statement
from changefeed.ddl.session import Flavour, Server, SessionContext
from changefeed.errors import FollowerError
from changefeed.replicate.permitted_ddl import check_created_table, check_ddl
from changefeed.replicate.scope import Scope

MYSQL = Scope(Server(), ("shop.*",))
MARIADB = Scope(Server(Flavour.MARIADB, (11, 4, 5)), ("shop.*",))


def check(sql: str, scope: Scope) -> None:
    check_ddl(read_statement(sql, SessionContext("shop"), scope.server), scope, "a record")


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE orders ADD COLUMN engine CHAR(9) CHECK (engine = 'x'), ADD `connection` INT, ENGINE=InnoDB",
        "ALTER TABLE orders DROP engine, CHANGE engine motor INT AFTER engine, RENAME COLUMN a TO engine",
        "ALTER TABLE orders ADD PARTITION (PARTITION p VALUES LESS THAN (10) ENGINE = InnoDB)",
        "ALTER TABLE orders ADD s TEXT DEFAULT (CONCAT('LOAD_FILE(', 'x')) PARTITION BY HASH (engine)",
        "CREATE TABLE orders (engine VARCHAR(9), data INT, `union` INT) ENGINE='InnoDB' COMMENT 'a; SELECT @x'",
        "CREATE TABLE engine (id INT) /*!50100 PARTITION BY HASH (id) PARTITIONS 4 */",
        "CREATE TABLE IF NOT EXISTS shop.`order` LIKE engine",
        "CREATE INDEX engine ON orders (engine)",
        "DROP TABLE IF EXISTS engine, orders;",
        "RENAME TABLE orders TO engine, _orders_gho TO orders",
        "TRUNCATE TABLE shop.engine",
        "CREATE DATABASE /*!32312 IF NOT EXISTS*/ `shop` /*!40100 DEFAULT CHARACTER SET utf8mb4 */",
        "ALTER DATABASE shop COLLATE utf8mb4_bin",
    ],
)
def test_ddl_of_captured_tables_is_run(sql: str) -> None:
    check(sql, MYSQL)
    check(sql, MARIADB)


def test_set_statement_of_mariadb_is_run_unless_it_sets_an_engine() -> None:
    check("SET STATEMENT max_statement_time=10 FOR ALTER TABLE orders ADD n INT", MARIADB)
    with pytest.raises(FollowerError, match="sets default_storage_engine"):
        check("SET STATEMENT max_statement_time=1, default_storage_engine='x' FOR CREATE TABLE t (a INT)", MARIADB)


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE orders ADD engine INT, ENGINE CONNECT",
        "ALTER TABLE orders ADD n INT PARTITION BY HASH (n) (PARTITION p ENGINE 'federated')",
        "CREATE TABLE orders ENGINE=CONNECT TABLE_TYPE=MYSQL CONNECTION='mysql://u@10.0.0.1/d/t'",
        "CREATE TABLE orders (id INT) CONNECTION 'x'",
        "DROP TABLE orders; DROP TABLE orders",
        "CREATE OR REPLACE DATABASE payroll",
        "DROP TABLE orders, mysql.user",
        "ALTER TABLE orders nonsense (",
        "ALTER TABLE orders UNION (mysql.user)",
        "CREATE TABLE orders TABLE mysql.user",
        "CREATE TABLE orders (a INT) (TABLE mysql.user)",
        "CREATE TABLE orders (a TEXT DEFAULT (`load_file`('/etc/passwd')))",
        "CREATE TABLE orders (a INT, FOREIGN KEY (a) REFERENCES payroll . salaries (id))",
        "ALTER TABLE orders ADD a INT REFERENCES `payroll`.`salaries` (id)",
        "ALTER TABLE orders ADD a INT DEFAULT (SETVAL(payroll.numbers, 1000))",
        "ALTER TABLE orders ADD a INT DEFAULT (NEXT VALUE FOR payroll.numbers)",
        # what the scanner could read as a name, a text or a comment, unlike the server
        "CREATE TABLE orders (a INT) /*!999999 /* /* */ */ ENGINE=FEDERATED COMMENT '*/'",
        "CREATE TABLE orders (a INT) /*!999999 /*/*/*/ ENGINE=FEDERATED /* */ /*!999999 /* */ */",
        "CREATE TABLE orders (a INT, /*!９９９９９９ INT) ENGINE=FEDERATED COMMENT='*/ b INT) -- ' */",
        "CREATE TABLE orders (a INT DEFAULT (1 --\x7f'\n)) ENGINE=FEDERATED --\x7f'))",
    ],
)
def test_other_ddl_is_refused(sql: str) -> None:
    for scope in (MYSQL, MARIADB):
        with pytest.raises(FollowerError, match="is refused"):
            check(sql, scope)


def test_a_comment_of_mariadb_is_a_plain_one_to_mysql() -> None:
    with pytest.raises(FollowerError, match="FEDERATED"):
        check("CREATE TABLE orders (a INT) /*M!999999 /* */ ENGINE=FEDERATED COMMENT '*/'", MYSQL)


def test_a_backslash_in_a_name_in_quotes_escapes_nothing() -> None:
    sql = 'CREATE TABLE orders ("a\\" INT) ENGINE=FEDERATED COMMENT \'" INT) -- \''
    for scope in (MYSQL, MARIADB):
        with pytest.raises(FollowerError, match="FEDERATED"):
            check_ddl(read_statement(sql, SessionContext("shop", ansi_quotes=True), scope.server), scope, "a record")


def test_sequences_that_are_captured_are_used_as_oracle_writes_them_too() -> None:
    for default in ("nextval(`shop`.`numbers`)", "NEXTVAL(numbers)", "NEXT VALUE FOR shop.numbers", "a.nextval"):
        check(f"CREATE TABLE orders (a INT, b INT DEFAULT ({default}), nextval INT)", MARIADB)
    oracle = SessionContext.of_sql_mode("shop", 512)
    check_ddl(
        read_statement("ALTER TABLE t ADD b INT DEFAULT (numbers.nextval)", oracle, MARIADB.server), MARIADB, "a record"
    )
    with pytest.raises(FollowerError, match=r"uses sequence `payroll`\.`numbers`"):
        check_ddl(
            read_statement("ALTER TABLE t ADD b INT DEFAULT (payroll.numbers.nextval)", oracle, MARIADB.server),
            MARIADB,
            "a record",
        )


def test_a_foreign_key_within_the_captured_databases_is_made() -> None:
    check(
        "ALTER TABLE orders ADD FOREIGN KEY (a) REFERENCES others (id), ADD FOREIGN KEY (b) REFERENCES shop.t (id)",
        MYSQL,
    )


def test_a_table_is_renamed_where_one_of_its_names_is_captured() -> None:
    orders = Scope(Server(), ("shop.orders",))
    for sql in ("RENAME TABLE orders TO orders_old, _orders_gho TO orders", "ALTER TABLE orders RENAME TO orders_old"):
        check(sql, orders)
    for sql in (
        "RENAME TABLE others TO orders_old",
        "ALTER TABLE orders RENAME TO crm.orders",
        "DROP TABLE orders_old",
    ):
        with pytest.raises(FollowerError, match="the pipeline does not capture table"):
            check(sql, orders)


def test_no_pattern_takes_the_servers_own_databases() -> None:
    everything = Scope(Server(), ("*.*",))
    for name in ("mysql.user", "sys.sys_config", "changefeed.followed", "MySQL.user"):
        with pytest.raises(FollowerError, match="the pipeline does not capture table"):
            check(f"DROP TABLE {name}", everything)


def test_a_table_of_a_snapshot_is_made_under_its_own_name() -> None:
    check_created_table("CREATE TABLE `orders` (`id` int NOT NULL) ENGINE=InnoDB", "shop.orders", MYSQL)
    for sql in ("CREATE TABLE others (id INT)", "CREATE TABLE orders LIKE others", "DROP TABLE orders"):
        with pytest.raises(FollowerError, match=r"not the CREATE TABLE of shop\.orders"):
            check_created_table(sql, "shop.orders", MYSQL)
