"""Random tables over all column types, random rows in them, and what the server says that they hold."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

TEXT_POOL = (
    'abc XYZ 019 ~!@#$%^&*() "quoted" back\\slash tab\t newline\n nul\x00 bell\x07 '
    "äöüß éèê ñ ç ÿ € „“ – … Привет мир ґї Ελληνικά שלום سلام ไทย 日本語 テスト かな 漢字 中文简体 繁體 한국어 "
    "ﾊﾝｶｸ ～∥ ＼ ¥ ‾ ℡ № ① ㈱ 😀 🎉 𠮷 \u2028 \ufeff"
)
MYSQL_CHARSETS = (  # noqa: SIM905
    "armscii8 ascii big5 cp1250 cp1251 cp1256 cp1257 cp850 cp852 cp866 cp932 dec8 eucjpms euckr gb18030 gb2312 gbk "
    "geostd8 greek hebrew hp8 keybcs2 koi8r koi8u latin1 latin2 latin5 latin7 macce macroman sjis swe7 tis620 ucs2 "
    "ujis "
    "utf16 utf16le utf32 utf8mb3 utf8mb4"
).split()

LABEL_CHARSETS = ("utf8mb4", "utf8mb3", "utf16", "ucs2", "gb18030")
"""Those that have all characters of the labels here."""

Value = Any


@dataclass(frozen=True)
class RandomColumn:
    """One column: its definition, SQL for a random value, SQL that selects it, and that text as `decode` gives it."""

    name: str
    definition: str
    literal: Callable[[random.Random], str]
    selected: str
    normal: Callable[[Any], Value]
    decoded: Callable[[Value], Value] = lambda value: value


@dataclass
class RandomTable:
    """A table with a key `id` and random columns."""

    database: str
    name: str
    columns: list[RandomColumn] = field(default_factory=list)

    @property
    def qualified(self) -> str:
        return f"`{self.database}`.`{self.name}`"

    def create(self, options: str = "") -> str:
        columns = ", ".join(f"`{column.name}` {column.definition}" for column in self.columns)
        return f"CREATE TABLE {self.qualified} (id INT PRIMARY KEY, {columns}) {options}"

    def literals(self, rng: random.Random) -> list[str]:
        return ["NULL" if rng.random() < 0.12 else column.literal(rng) for column in self.columns]

    def select(self) -> str:
        return f"SELECT id, {', '.join(column.selected for column in self.columns)} FROM {self.qualified}"

    def rows(self, cursor: Any) -> dict[int, dict[str, Value]]:
        """What the server says that the table holds."""
        cursor.execute(self.select())
        found = {}
        for row in cursor.fetchall():
            values = zip(self.columns, row[1:], strict=True)
            found[row[0]] = {c.name: None if value is None else c.normal(value) for c, value in values}
        return found

    def seen(self, image: dict[str, Value]) -> tuple[int, dict[str, Value]]:
        """A decoded image in the same form."""
        values = {c.name: None if image[c.name] is None else c.decoded(image[c.name]) for c in self.columns}
        return image["id"], values


def quoted(text: str) -> str:
    return "_utf8mb4 X'" + text.encode().hex() + "'"


def random_text(rng: random.Random, limit: int) -> str:
    return "".join(rng.choice(TEXT_POOL) for _ in range(rng.randrange(limit + 1)))


def float32(value: Any) -> float:
    return float(struct.unpack("<f", struct.pack("<f", float(value)))[0])


def random_json(rng: random.Random, depth: int = 0) -> Any:
    choice = rng.randrange(9 if depth < 4 else 7)
    if choice == 0:
        return rng.choice([None, True, False])
    if choice <= 2:
        return rng.choice([rng.randrange(-100, 100), rng.randrange(-(2**40), 2**40), 2**63, -(2**63), 2**64 - 1, 65536])
    if choice == 3:
        return rng.choice([rng.uniform(-1e9, 1e9), 1e-7, 1.5e300, 0.1, 5e-324, -0.5])
    if choice <= 6:
        return random_text(rng, rng.choice([5, 200]))
    if choice == 7:
        return [random_json(rng, depth + 1) for _ in range(rng.randrange(6))]
    return {random_text(rng, 8): random_json(rng, depth + 1) for _ in range(rng.randrange(6))}


def _integer(rng: random.Random, name: str) -> RandomColumn:
    kind, bits = rng.choice([("TINYINT", 8), ("SMALLINT", 16), ("MEDIUMINT", 24), ("INT", 32), ("BIGINT", 64)])
    unsigned = rng.random() < 0.5
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return RandomColumn(
        name,
        f"{kind}{' UNSIGNED' if unsigned else ''}",
        lambda rng: str(rng.choice([low, high, 0, 1, rng.randint(low, high), rng.randint(low, high)])),
        f"`{name}`",
        int,
    )


def _decimal(rng: random.Random, name: str) -> RandomColumn:
    precision = rng.choice([1, 5, 9, 10, 18, 19, 38, 65, rng.randint(1, 65)])
    scale = min(precision, rng.choice([0, 2, 9, 10, 30, rng.randint(0, 30)]))

    def literal(rng: random.Random) -> str:
        integer = rng.randrange(10 ** rng.randint(0, precision - scale))
        fraction = f"{rng.randrange(10**scale):0{scale}d}" if scale else ""
        return f"{rng.choice(['', '-'])}{integer}{'.' + fraction if scale else ''}"

    unsigned = rng.random() < 0.1
    return RandomColumn(
        name,
        f"DECIMAL({precision},{scale}){' UNSIGNED' if unsigned else ''}",
        literal,
        f"CAST(`{name}` AS CHAR)",
        str,
    )


def _floating(rng: random.Random, name: str) -> RandomColumn:
    single = rng.random() < 0.5

    def literal(rng: random.Random) -> str:
        value = rng.choice([0.0, 1.5, rng.uniform(-1e6, 1e6), rng.uniform(-1, 1) * 10.0 ** rng.randint(-37, 37)])
        return repr(value) if single else repr(value * rng.choice([1, 1e200, 1e-200]))

    normal = float32 if single else float
    return RandomColumn(name, "FLOAT" if single else "DOUBLE", literal, f"`{name}` + 0e0", normal, normal)


def _text(rng: random.Random, name: str, charsets: list[str]) -> RandomColumn:
    charset = rng.choice(charsets)
    wide = {"utf8mb4": 4, "utf16": 4, "utf16le": 4, "utf32": 4, "gb18030": 4, "utf8mb3": 3, "ujis": 3, "eucjpms": 3}
    most = 255 if charset != "" else 0
    size = rng.choice([1, 10, 63, 64, 85, 86, 127, 128, most])
    if rng.random() < 0.1:
        size = 0
    kind = rng.choice([f"CHAR({size})", f"VARCHAR({size})", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"])
    limit = max(0, min(size, 60 // wide.get(charset, 2)))
    return RandomColumn(
        name,
        f"{kind} CHARACTER SET {charset}",
        lambda rng: quoted(random_text(rng, limit)),
        f"CONVERT(`{name}` USING utf8mb4)",
        str,
    )


def _bytes(rng: random.Random, name: str) -> RandomColumn:
    size = rng.choice([0, 1, 5, 16, 255, 4])
    kind = rng.choice(
        [f"BINARY({size})", f"VARBINARY({size})", f"VARBINARY({300 + size})", "TINYBLOB", "BLOB", "LONGBLOB"]
    )

    def literal(rng: random.Random) -> str:
        data = rng.randbytes(rng.randrange(min(size, 60) + 1)) + rng.choice([b"", b"\0\0", b"  "])
        return "X'" + data[: size or 0].hex() + "'"

    return RandomColumn(name, kind, literal, f"HEX(`{name}`)", str, lambda value: _hex_of(value))


def _hex_of(value: str) -> str:
    import base64

    return base64.b64decode(value, validate=True).hex().upper()


def _temporal(rng: random.Random, name: str) -> RandomColumn:
    kind = rng.choice(["DATE", "DATETIME", "TIMESTAMP", "TIME", "YEAR"])
    digits = rng.randrange(7)

    def fraction(rng: random.Random) -> str:
        return f".{rng.randrange(10**6):06d}"

    if kind == "YEAR":
        return RandomColumn(name, "YEAR", lambda rng: str(rng.choice([0, 1901, 2155, 2026])), f"`{name}`", int)
    if kind == "DATE":
        dates = ["'0000-00-00'", "'2026-00-00'", "'2026-05-00'", "'0001-01-01'", "'9999-12-31'", "'1582-10-10'"]
        return RandomColumn(name, "DATE", lambda rng: rng.choice(dates), f"CAST(`{name}` AS CHAR)", str)
    if kind == "TIME":

        def time(rng: random.Random) -> str:
            hours = rng.choice([0, 0, 23, 99, 100, 838, rng.randrange(838)])
            rest = f"{rng.randrange(60):02d}:{rng.randrange(60):02d}{fraction(rng) if hours < 838 else ''}"
            return f"'{rng.choice(['', '-'])}{hours:02d}:{rest}'"

        return RandomColumn(name, f"TIME({digits})", time, f"CAST(`{name}` AS CHAR)", str)

    def moment(rng: random.Random) -> str:
        low, high = (1, 9999) if kind == "DATETIME" else (1971, 2037)
        if rng.random() < 0.15:
            return "'0000-00-00 00:00:00'"
        if rng.random() < 0.1:
            return "'2026-00-00 10:11:12'" if kind == "DATETIME" else f"'1970-01-01 00:00:00{fraction(rng)}'"
        date = f"{rng.randint(low, high):04d}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
        return f"'{date} {rng.randrange(24):02d}:{rng.randrange(60):02d}:{rng.randrange(60):02d}{fraction(rng)}'"

    zone = "Z" if kind == "TIMESTAMP" else ""
    return RandomColumn(
        name,
        f"{kind}({digits}) NULL",
        moment,
        f"CAST(`{name}` AS CHAR)",
        lambda value: str(value).replace(" ", "T") + zone,
    )


def labelled(rng: random.Random, name: str, charsets: list[str]) -> RandomColumn:
    is_set = rng.random() < 0.5
    count = rng.choice([1, 3, 8, 9, 17, 40, 64] if is_set else [1, 3, 255, 256, 700])
    words = ["a'b", 'c"d', "größe", "e\\f", "東京", "x y"]
    labels = [f"{words[n % len(words)]}{n}" for n in range(count)]
    charset = rng.choice([c for c in charsets if c in LABEL_CHARSETS] or ["utf8mb4"])
    listed = ", ".join("'" + label.replace("\\", "\\\\").replace("'", "''") + "'" for label in labels)

    def literal(rng: random.Random) -> str:
        if is_set:
            return str(rng.getrandbits(count))
        return str(rng.choice([1, count, rng.randint(1, count)])) if rng.random() < 0.9 else "'no such label'"

    return RandomColumn(
        name,
        f"{'SET' if is_set else 'ENUM'}({listed}) CHARACTER SET {charset}",
        literal,
        f"CONVERT(`{name}` USING utf8mb4)",
        str,
    )


def _bit(rng: random.Random, name: str) -> RandomColumn:
    bits = rng.choice([1, 7, 8, 9, 33, 63, 64, rng.randint(1, 64)])
    return RandomColumn(name, f"BIT({bits})", lambda rng: str(rng.getrandbits(bits)), f"`{name}`+0", int)


def _json(_rng: random.Random, name: str) -> RandomColumn:
    opaque = [
        "JSON_OBJECT('d', CAST(-12.3450 AS DECIMAL(20,5)))",
        "JSON_ARRAY(CAST('2026-01-02 03:04:05.678901' AS DATETIME(6)), CAST('2026-01-02' AS DATE))",
        "JSON_ARRAY(CAST('-12:13:14.5' AS TIME(6)), CAST('838:59:59' AS TIME))",
        "JSON_OBJECT('b', CAST(X'00FF10' AS BINARY), 'bit', b'101')",
        "CAST(CAST(123.45 AS DECIMAL(5,2)) AS JSON)",
        "JSON_ARRAY(CAST(1e20 AS DECIMAL(38,10)), -0.5, 0.000)",
        "CAST('\"scalar\"' AS JSON)",
        "JSON_ARRAY(REPEAT('x', 70000), 1.5, REPEAT('é', 200))",
    ]

    def literal(rng: random.Random) -> str:
        if rng.random() < 0.3:
            return rng.choice(opaque)
        return f"CAST({quoted(json.dumps(random_json(rng), ensure_ascii=False))} AS JSON)"

    return RandomColumn(name, "JSON", literal, f"CAST(`{name}` AS CHAR)", json.loads, json.loads)


def _json_text(_rng: random.Random, name: str) -> RandomColumn:
    return RandomColumn(
        name,
        "JSON",
        lambda rng: quoted(json.dumps(random_json(rng), ensure_ascii=False)),
        f"CONVERT(`{name}` USING utf8mb4)",
        str,
    )


def _geometry(_rng: random.Random, name: str) -> RandomColumn:
    shapes = ["POINT(1 2)", "LINESTRING(0 0,1 1,2 3)", "POLYGON((0 0,4 0,4 4,0 0))", "GEOMETRYCOLLECTION(POINT(1 1))"]

    def back(value: dict[str, Any]) -> str:
        return struct.pack("<I", value["srid"]).hex().upper() + _hex_of(value["wkb"])

    return RandomColumn(
        name,
        "GEOMETRY",
        lambda rng: f"ST_GeomFromText('{rng.choice(shapes)}', {rng.choice([0, 4326])})",
        f"HEX(`{name}`)",
        str,
        back,
    )


def _vector(rng: random.Random, name: str) -> RandomColumn:
    size = rng.randint(1, 50)

    def literal(rng: random.Random) -> str:
        return f"STRING_TO_VECTOR('[{','.join(repr(float32(rng.uniform(-10, 10))) for _ in range(size))}]')"

    return RandomColumn(
        name,
        f"VECTOR({size})",
        literal,
        f"HEX(`{name}`)",
        str,
        lambda value: struct.pack(f"<{len(value)}f", *value).hex().upper(),
    )


def _address(rng: random.Random, name: str) -> RandomColumn:
    kind = rng.choice(["UUID", "INET4", "INET6"])
    values = {
        "UUID": ["UUID()", "'00000000-0000-0000-0000-000000000000'", "'ff000000-0000-1000-8000-000000000000'"],
        "INET4": ["'0.0.0.0'", "'255.255.255.255'", "'10.0.0.1'", "'1.0.0.0'"],
        "INET6": [
            "'::'",
            "'::1'",
            "'2001:db8::ff00:42:8329'",
            "'::ffff:192.0.2.1'",
            "'1::'",
            "'fe80::1:0:0:1'",
            "'1:2:3:4:5:6:7:8'",
            f"'{':'.join(rng.choice(['0', '0', 'a1']) for _ in range(8))}'",
        ],
    }[kind]
    return RandomColumn(name, kind, lambda rng: rng.choice(values), f"CAST(`{name}` AS CHAR)", str)


def _packed_text(rng: random.Random, name: str) -> RandomColumn:
    kind = rng.choice(["VARCHAR(500)", "TEXT", "LONGTEXT"])
    return RandomColumn(
        name,
        f"{kind} COMPRESSED",
        lambda rng: rng.choice([quoted(random_text(rng, 30)), "REPEAT('abc', 120)", "''"]),
        f"CONVERT(`{name}` USING utf8mb4)",
        str,
    )


ColumnMaker = Callable[[random.Random, str], RandomColumn]


def charsets_of(mariadb: bool) -> list[str]:
    return [charset for charset in MYSQL_CHARSETS if not (mariadb and charset == "gb18030")]


def column_makers(mariadb: bool) -> dict[str, ColumnMaker]:
    """Makers of random columns, by what they make."""
    charsets = charsets_of(mariadb)
    makers: dict[str, ColumnMaker] = {
        "integer": _integer,
        "decimal": _decimal,
        "floating": _floating,
        "text": lambda rng, name: _text(rng, name, charsets),
        "bytes": _bytes,
        "temporal": _temporal,
        "labelled": lambda rng, name: labelled(rng, name, charsets),
        "bit": _bit,
        "geometry": _geometry,
    }
    if mariadb:
        return makers | {"json": _json_text, "address": _address, "compressed": _packed_text}
    return makers | {"json": _json, "vector": _vector}


def columns_of_all_charsets(rng: random.Random, mariadb: bool) -> list[RandomColumn]:
    """A text in every charset, and labels in those that have the characters of our labels."""
    charsets = charsets_of(mariadb)
    labels = [charset for charset in charsets if charset in LABEL_CHARSETS]
    return [_text(rng, "c", [charset]) for charset in charsets] + [labelled(rng, "c", [one]) for one in labels]


def random_table(rng: random.Random, database: str, name: str, mariadb: bool) -> RandomTable:
    """A table of 1 to 12 random columns."""
    makers = column_makers(mariadb)
    kinds = [*makers.values(), makers["text"], makers["temporal"]]
    table = RandomTable(database, name)
    for place in range(rng.randint(1, 12)):
        table.columns.append(rng.choice(kinds)(rng, rng.choice(["c", "ä c", 'q"uote', "order"]) + str(place)))
    return table
