"""Tables of all column types of MySQL with values at their edges: what Debezium and changefeed both read."""

from __future__ import annotations

COLUMNS = {
    "tiny": ("TINYINT", "-128", "127", "0"),
    "tiny_u": ("TINYINT UNSIGNED", "0", "255", "7"),
    "flag": ("TINYINT(1)", "0", "1", "-1"),
    "bool_": ("BOOLEAN", "FALSE", "TRUE", "TRUE"),
    "small": ("SMALLINT", "-32768", "32767", "5"),
    "small_u": ("SMALLINT UNSIGNED", "0", "65535", "5"),
    "medium": ("MEDIUMINT", "-8388608", "8388607", "5"),
    "medium_u": ("MEDIUMINT UNSIGNED", "0", "16777215", "5"),
    "int_": ("INT", "-2147483648", "2147483647", "5"),
    "int_u": ("INT UNSIGNED", "0", "4294967295", "5"),
    "int_z": ("INT(6) UNSIGNED ZEROFILL", "0", "4294967295", "42"),
    "big": ("BIGINT", "-9223372036854775808", "9223372036854775807", "5"),
    "big_u": ("BIGINT UNSIGNED", "0", "18446744073709551615", "9223372036854775808"),
    "deci": ("DECIMAL(10,2)", "-99999999.99", "99999999.99", "0.00"),
    "deci_0": ("DECIMAL(5,0)", "-99999", "99999", "-1"),
    "deci_big": ("DECIMAL(65,30)", "-" + "9" * 35 + "." + "9" * 30, "9" * 35 + "." + "9" * 30, "0.5"),
    "deci_u": ("DECIMAL(8,4) UNSIGNED", "0", "9999.9999", "1.5"),
    "numeric_": ("NUMERIC", "-1", "127", "128"),
    "float_": ("FLOAT", "-3.4e38", "1.17549e-38", "1.1"),
    "float_m": ("FLOAT(7,3)", "-9999.999", "1234.567", "0.1"),
    "double_": ("DOUBLE", "-1.7976931348623157e308", "2.2250738585072014e-308", "0.1"),
    "double_m": ("DOUBLE(10,4)", "-99999.9999", "123456.7891", "0.25"),
    "double_i": ("DOUBLE", "1e21", "100", "-0.0"),
    "bit_1": ("BIT(1)", "b'0'", "b'1'", "b'1'"),
    "bit_9": ("BIT(9)", "b'0'", "b'111111111'", "b'100000001'"),
    "bit_64": ("BIT(64)", "b'0'", "~0", "5"),
    "date_": ("DATE", "'1000-01-01'", "'9999-12-31'", "'1969-12-31'"),
    "time_": ("TIME", "'-838:59:59'", "'838:59:59'", "'00:00:01'"),
    "time_3": ("TIME(3)", "'-00:00:00.001'", "'23:59:59.999'", "'12:00:00.120'"),
    "time_6": ("TIME(6)", "'-838:59:58.999999'", "'23:59:59.999999'", "'00:00:00.000001'"),
    "datetime_": ("DATETIME", "'1000-01-01 00:00:00'", "'9999-12-31 23:59:59'", "'1969-12-31 23:59:59'"),
    "datetime_3": ("DATETIME(3)", "'1000-01-01 00:00:00.001'", "'2026-01-31 12:34:56.789'", "'1969-12-31 23:59:59.5'"),
    "datetime_6": ("DATETIME(6)", "'1000-01-01 00:00:00.000001'", "'9999-12-31 23:59:59.499999'",
                   "'1969-12-31 23:59:59.999999'"),
    "stamp": ("TIMESTAMP", "'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'", "'2026-01-31 12:00:00'"),
    "stamp_2": ("TIMESTAMP(2)", "'1970-01-01 00:00:01.01'", "'2038-01-19 03:14:07.99'", "'2026-01-31 12:00:00.50'"),
    "stamp_6": ("TIMESTAMP(6)", "'1970-01-01 00:00:01.000001'", "'2038-01-19 03:14:07.499999'",
                "'2026-01-31 12:00:00.120000'"),
    "year_": ("YEAR", "1901", "2155", "2026"),
    "char_": ("CHAR(10)", "''", "'a\"b\\\\c'", "'ä€😀'"),
    "varchar_": ("VARCHAR(100)", "''", "'tab\\tnewline\\n\\0nul'", "'/slash</script>'"),
    "varchar_l": ("VARCHAR(100) CHARACTER SET latin1", "''", "'äöü€'", "'x'"),
    "varchar_u": ("VARCHAR(100) CHARACTER SET utf16", "''", "'äöü€😀'", "'x'"),
    "varchar_g": ("VARCHAR(50) CHARACTER SET gbk", "''", "'你好'", "'x'"),
    "text_": ("TEXT", "''", "REPEAT('x', 300)", "'line\\r\\n'"),
    "longtext_": ("LONGTEXT", "''", "REPEAT('y', 70000)", "'z'"),
    "binary_": ("BINARY(6)", "''", "X'0001ff00'", "X'FFFFFFFFFFFF'"),
    "varbinary_": ("VARBINARY(300)", "''", "X'0001ff00'", "X'FF'"),
    "blob_": ("BLOB", "''", "X'00FF10'", "X'FBFF'"),
    "longblob_": ("LONGBLOB", "''", "REPEAT(X'F7', 70000)", "X'00'"),
    "enum_": ("ENUM('a','b,c','d''e','ü')", "'a'", "'d''e'", "'ü'"),
    "enum_l": ("ENUM('x','ä') CHARACTER SET latin1", "'x'", "'ä'", "'ä'"),
    "set_": ("SET('a','b','c''d','ü')", "''", "'a,b,c''d,ü'", "'b,ü'"),
    "json_": ("JSON", "'{}'", """'{"b": [1, -2.5, 1e100, true, null], "a": {"ä": "x\\\\"y"}}'""", "'\"text\"'"),
    "json_o": ("JSON", "CAST(TIMESTAMP '2026-01-31 12:34:56.5' AS JSON)",
               "JSON_OBJECT('d', DATE '2026-01-31', 'n', 1.50, 't', TIME '10:11:12', 'b', X'FF00')",
               "JSON_ARRAY(18446744073709551615, 0.1, 1e0)"),
    "geo": ("GEOMETRY", "ST_GeomFromText('POINT(1 -2.5)')", "ST_GeomFromText('LINESTRING(0 0,1 1)', 4326)",
            "ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 1))')"),
    "point_": ("POINT", "ST_GeomFromText('POINT(1 -2.5)')", "ST_GeomFromText('POINT(10 20)', 4326)",
               "ST_GeomFromText('POINT(0.1 1e300)')"),
    "polygon_": ("POLYGON SRID 0", "ST_GeomFromText('POLYGON((0 0,1 0,1 1,0 0))')",
                 "ST_GeomFromText('POLYGON((0 0,1 0,1 1,0 0))')", "ST_GeomFromText('POLYGON((0 0,1 0,1 1,0 0))')"),
    "vector_": ("VECTOR(3)", "TO_VECTOR('[0,-1.5,3.4e38]')", "TO_VECTOR('[0.1,2,3]')", "TO_VECTOR('[1,2,3]')"),
}  # fmt: skip
"""By name of the column its type, and three values of it as SQL: mostly the least, the greatest, and another."""

ZERO_DATES = {
    "date_": ("DATE", "'0000-00-00'", "'2026-00-10'", "'2026-02-31'"),
    "datetime_": ("DATETIME", "'0000-00-00'", "'2026-10-00 01:02:03'", "'0001-01-01'"),
    "datetime_6": ("DATETIME(6)", "'0000-00-00'", "'2026-10-00 01:02:03.5'", "'0099-01-01'"),
    "stamp": ("TIMESTAMP", "0", "'0000-00-00'", "'2026-10-25 01:30:00'"),
    "stamp_6": ("TIMESTAMP(6)", "0", "'0000-00-00'", "'2026-10-25 01:30:00.5'"),
    "year_": ("YEAR", "0", "0", "70"),
    "enum_": ("ENUM('a','b')", "''", "0", "'b'"),
}
"""Values that a server takes in a lax sql_mode only."""

DEFAULTS = {
    "tiny": "TINYINT NOT NULL DEFAULT -3",
    "int_u": "INT UNSIGNED DEFAULT 4000000000",
    "big": "BIGINT NOT NULL DEFAULT 9007199254740993",
    "big_u": "BIGINT UNSIGNED NOT NULL DEFAULT 17",
    "flag": "TINYINT(1) NOT NULL DEFAULT 1",
    "deci": "DECIMAL(10,2) NOT NULL DEFAULT -12.5",
    "float_": "FLOAT NOT NULL DEFAULT 1.5",
    "double_": "DOUBLE DEFAULT 0.1",
    "bit_1": "BIT(1) NOT NULL DEFAULT b'1'",
    "bit_9": "BIT(9) NOT NULL DEFAULT b'100000001'",
    "date_": "DATE NOT NULL DEFAULT '2001-02-03'",
    "time_": "TIME NOT NULL DEFAULT '-01:02:03'",
    "time_6": "TIME(6) DEFAULT '01:02:03.000004'",
    "datetime_": "DATETIME NOT NULL DEFAULT '2001-02-03 04:05:06'",
    "datetime_6": "DATETIME(6) DEFAULT '2001-02-03 04:05:06.000007'",
    "stamp": "TIMESTAMP NOT NULL DEFAULT '2001-02-03 04:05:06'",
    "stamp_now": "TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP",
    "stamp_6": "TIMESTAMP(6) NULL DEFAULT '2001-02-03 04:05:06.000007'",
    "datetime_now": "DATETIME(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3)",
    "year_": "YEAR NOT NULL DEFAULT 1999",
    "char_": "CHAR(10) NOT NULL DEFAULT 'it''s'",
    "varchar_": "VARCHAR(10) NOT NULL DEFAULT ''",
    "varchar_e": "VARCHAR(40) DEFAULT (UUID())",
    "binary_": "BINARY(4) NOT NULL DEFAULT 'ab'",
    "enum_": "ENUM('a','b') NOT NULL DEFAULT 'b'",
    "set_": "SET('a','b') NOT NULL DEFAULT 'a,b'",
    "said": "INT NOT NULL DEFAULT 5 COMMENT 'a comment'",
    "made": "INT AS (tiny + 1) STORED",
    "virtual_": "INT AS (tiny + 2) VIRTUAL",
}
"""Columns with defaults, as they are defined."""


def definitions() -> list[str]:
    """The tables: all types nullable, all types NOT NULL, zero dates of both, defaults, keys of two columns, no key."""
    return [
        _table("maybe", {name: f"{type_[0]} NULL" for name, type_ in COLUMNS.items()}),
        _table("always", {name: f"{type_[0]} NOT NULL" for name, type_ in COLUMNS.items()}),
        _table("zero_maybe", {name: f"{type_[0]} NULL" for name, type_ in ZERO_DATES.items()}),
        _table("zero_always", {name: f"{type_[0]} NOT NULL" for name, type_ in ZERO_DATES.items()}),
        _table("defaults", DEFAULTS),
        "CREATE TABLE pairs (Name VARCHAR(20), n DECIMAL(5,1), day DATE, rest INT, PRIMARY KEY (day, Name))",
        "CREATE TABLE keyless (a INT, b VARCHAR(20))",
        "CREATE TABLE `odd-name.1` (`a-b` INT PRIMARY KEY, `c d` INT, `ä` INT)",
        "CREATE TABLE `t-odd Näme` (a INT NOT NULL, b INT NOT NULL, c INT, UNIQUE z (c), UNIQUE y (b, a), UNIQUE (a))",
        "CREATE TABLE by_prefix (v VARCHAR(20) NOT NULL, a INT NOT NULL, UNIQUE v (v(5)), UNIQUE a (a))",
        "CREATE DATABASE debezium_check_other",
        "CREATE TABLE debezium_check_other.t (n INT PRIMARY KEY)",
    ]


def statements() -> list[str]:
    """What is done to them."""
    done = []
    for table, columns in (("maybe", COLUMNS), ("always", COLUMNS), ("zero_maybe", ZERO_DATES),
                           ("zero_always", ZERO_DATES)):  # fmt: skip
        done += [
            f"INSERT INTO {table} VALUES ({row}, {', '.join(column[row + 1] for column in columns.values())})"
            for row in range(3)
        ]
        done.append(f"UPDATE {table} SET {', '.join(f'`{name}` = {column[3]}' for name, column in columns.items())}"
                    " WHERE id = 1")  # fmt: skip
    return [
        *done,
        "INSERT INTO maybe (id) VALUES (7)",
        "INSERT INTO zero_maybe (id) VALUES (7)",
        "DELETE FROM maybe WHERE id IN (0, 7)",
        "INSERT INTO defaults (id) VALUES (1), (2)",
        "UPDATE defaults SET tiny = 1",
        "INSERT INTO pairs VALUES ('a', 1.5, '2026-01-31', 1), ('b', NULL, '1960-01-01', NULL)",
        "UPDATE pairs SET n = 9",
        "UPDATE pairs SET n = n + 1, rest = IF(name = 'a', 4, rest)",
        "UPDATE pairs SET rest = 5",
        "UPDATE pairs SET name = CONCAT(name, 'x')",
        "INSERT INTO `odd-name.1` VALUES (1, 2, 3)",
        "BEGIN",
        "UPDATE pairs SET rest = 6",
        "INSERT INTO keyless VALUES (5, 'a')",
        "INSERT INTO debezium_check_other.t VALUES (1)",
        "UPDATE keyless SET b = 'q'",
        "UPDATE pairs SET n = n + 1",
        "UPDATE `odd-name.1` SET `a-b` = 9",
        "UPDATE pairs SET rest = 5",
        "DELETE FROM keyless",
        "COMMIT",
        "INSERT INTO debezium_check_other.t VALUES (2)",
        "DELETE FROM pairs WHERE rest = 5",
        "INSERT INTO keyless VALUES (1, 'x'), (NULL, NULL)",
        "UPDATE keyless SET a = 2",
        "DELETE FROM keyless",
        "INSERT INTO `odd-name.1` VALUES (3, 2, 3)",
        "INSERT INTO `t-odd Näme` VALUES (1, 2, 3), (2, 3, NULL)",
        "UPDATE `t-odd Näme` SET c = c + 6, b = b + (a = 2)",
        "DELETE FROM `t-odd Näme`",
        "INSERT INTO by_prefix VALUES ('some', 1)",
    ]


def _table(name: str, columns: dict[str, str]) -> str:
    return f"CREATE TABLE {name} (id INT PRIMARY KEY, {', '.join(f'`{c}` {type_}' for c, type_ in columns.items())})"
