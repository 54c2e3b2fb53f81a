"""Schemas of tables over all column types: as a Connect converter makes them, and as Avro's own rules compare them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from avro_java import JavaAvro

from changefeed.formats.avro import AvroFormat
from changefeed.formats.avro_schema import avro_text, field_name, full_name
from changefeed.formats.connect_types import ConnectSchema, Type
from changefeed.formats.schema_ids import LocalIds
from changefeed.model.connection import MysqlConnection
from changefeed.source.mysql.server_schemas import current_schemas
from changefeed.source.mysql.session import Session
from devstack.mysql import MysqlServer

TYPES = """CREATE TABLE {0}.types (
 id INT PRIMARY KEY, ti TINYINT, tiu TINYINT UNSIGNED, si SMALLINT, siu SMALLINT UNSIGNED, mi MEDIUMINT UNSIGNED,
 i INT, iu INT UNSIGNED, bi BIGINT, biu BIGINT UNSIGNED, f FLOAT, f1 FLOAT(30), fm FLOAT(7,3), d DOUBLE,
 de DECIMAL(12,2), de0 DECIMAL(5), deu DECIMAL(65,30), b1 BIT(1), b7 BIT(7), b64 BIT(64), c CHAR(5), tx TEXT,
 bn BINARY(4), bl BLOB, y YEAR, da DATE, t0 TIME, t6 TIME(6), dt0 DATETIME, dt3 DATETIME(3), dt6 DATETIME(6),
 ts0 TIMESTAMP NULL, ts6 TIMESTAMP(6) NULL, en ENUM('a','b,c','d'), se SET('x','y','z'), js JSON, g GEOMETRY, p POINT,
 ls LINESTRING, ve VECTOR(3), `odd name-ä` INT, `1x` INT)"""
DEFAULTS = """CREATE TABLE {0}.defaults (
 id INT AUTO_INCREMENT, id2 VARCHAR(10) NOT NULL DEFAULT 'q', ti TINYINT DEFAULT 5,
 siu SMALLINT UNSIGNED NOT NULL DEFAULT 7,
 iu INT UNSIGNED DEFAULT 9, bi BIGINT NOT NULL DEFAULT -3, biu BIGINT UNSIGNED DEFAULT 18446744073709551615,
 f FLOAT DEFAULT 1.5, d DOUBLE NOT NULL DEFAULT 2.25, de DECIMAL(12,2) DEFAULT 1.5, den DECIMAL(5) NOT NULL DEFAULT 7,
 b1 BIT(1) NOT NULL DEFAULT b'1', b7 BIT(7) DEFAULT b'101', v VARCHAR(20) NOT NULL DEFAULT 'x"y',
 ve VARCHAR(9) NOT NULL DEFAULT '', vb VARBINARY(9) NOT NULL DEFAULT 'zz', y YEAR DEFAULT 2020,
 da DATE DEFAULT '2020-01-02', t0 TIME DEFAULT '10:11:12', t3 TIME(3) NOT NULL DEFAULT '10:11:12.5',
 dt0 DATETIME DEFAULT '2020-01-02 03:04:05', dt6 DATETIME(6) NOT NULL DEFAULT '2020-01-02 03:04:05.5',
 dtc DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP, ts0 TIMESTAMP NOT NULL DEFAULT '2020-01-02 03:04:05',
 tsc TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, tscn TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP,
 en ENUM('a','b') NOT NULL DEFAULT 'b', se SET('x','y') DEFAULT 'x,y', ex INT NOT NULL DEFAULT (1+1),
 gen INT AS (ti+1), PRIMARY KEY (id2, id), KEY (id))"""


@pytest.fixture(scope="module")
def java() -> Iterator[JavaAvro]:
    with JavaAvro() as running:
        yield running


def connect_json(schema: ConnectSchema, field: str | None = None) -> dict[str, Any]:
    """A schema in the JSON form of Connect's JsonConverter, with the names that Avro takes."""
    shown: dict[str, Any] = {"type": str(schema.type), "optional": schema.optional}
    if schema.fields:
        shown["fields"] = [connect_json(of, field_name(name)) for name, of in schema.fields]
    if schema.items is not None:
        shown["items"] = connect_json(schema.items)
    if schema.name is not None:
        shown["name"] = full_name(schema.name) if schema.type is Type.STRUCT else schema.name
    for name in ("version", "doc"):
        if getattr(schema, name) is not None:
            shown[name] = getattr(schema, name)
    if schema.parameters:
        shown["parameters"] = dict(schema.parameters)
    if schema.default is not None:
        is_bytes = isinstance(schema.default, bytes)
        shown["default"] = base64.b64encode(schema.default).decode() if is_bytes else schema.default  # type: ignore[arg-type]
    if field is not None:
        shown["field"] = field
    return shown


def test_schemas_are_those_that_a_connect_converter_makes(
    mysql_server: MysqlServer, database: str, java: JavaAvro
) -> None:
    mysql_server.execute(TYPES.format(database))
    mysql_server.execute(DEFAULTS.format(database))
    with Session(MysqlConnection.from_uri(mysql_server.root_url)) as session:
        tables = {name.table: entry.schema for name, entry in current_schemas(session).tables.items()}
    avro = AvroFormat("my-server", 0, LocalIds())
    for name in ("types", "defaults"):
        for schema in (avro.key_schema(tables[name]), avro.value_schema(tables[name])):
            ours, theirs = java.schema(avro_text(schema)), java.of_connect(connect_json(schema))
            assert json.loads(ours.toString()) == json.loads(theirs.toString())
