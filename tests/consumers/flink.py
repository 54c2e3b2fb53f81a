"""Flink's SQL over topics, in a cluster inside one JVM."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # type: ignore[import-untyped]

from devstack.consumers import FLINK
from devstack.home import Home
from devstack.java import fetch_java
from devstack.kafka import KafkaBroker

_JARS = Path(pyspark.__file__).parent / "jars"
_OPTIONS = [
    "-Xmx768m",
    "-XX:TieredStopAtLevel=1",
    *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "util", "time", "nio", "net")),
]
_FORGOTTEN = ("DELETE", "UPDATE_BEFORE")


@dataclass(frozen=True)
class FlinkFormat:
    """A format of Flink's, with its ``options``, and the types of what it writes in its own way."""

    options: Mapping[str, str]
    bits: str
    timestamp: str


DEBEZIUM = FlinkFormat(
    {"value.format": "debezium-json", "value.debezium-json.timestamp-format.standard": "ISO-8601"},
    bits="BYTES",
    timestamp="TIMESTAMP_LTZ",
)
MAXWELL = FlinkFormat({"value.format": "maxwell-json"}, bits="BIGINT", timestamp="TIMESTAMP")


def flink_type(type_: str, format: FlinkFormat) -> str:
    """Flink's type of a column of ``type_``."""
    digits = re.search(r"\((\d+)", type_)
    match type_.split("(")[0].split(" ")[0]:
        case "tinyint" | "smallint" | "mediumint" | "year":
            return "INT"
        case "int":
            return "BIGINT"
        case "bigint":
            return "DECIMAL(20, 0)" if "unsigned" in type_ else "BIGINT"
        case "decimal":
            return type_.upper()
        case "float" | "double" as word:
            return word.upper()
        case "date":
            return "DATE"
        case "datetime":
            return f"TIMESTAMP({digits[1] if digits else 0})"
        case "timestamp":
            return f"{format.timestamp}({digits[1] if digits else 0})"
        case "bit":
            return "BOOLEAN" if type_ == "bit(1)" and format.bits == "BYTES" else format.bits
        case "binary" | "varbinary" | "blob":
            return "BYTES"
        case _:
            return "STRING"


class Flink:
    """A JVM with Flink's SQL; use as a context manager."""

    def __enter__(self) -> Flink:
        home = Home.default()
        (py4j,) = _JARS.glob("py4j-*.jar")
        port = launch_gateway(
            classpath=f"{FLINK.fetch(home)}/*",
            jarpath=str(py4j),
            javaopts=_OPTIONS,
            java_path=str(fetch_java(home)),
            die_on_exit=True,
        )
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        settings = self._gateway.jvm.org.apache.flink.table.api.EnvironmentSettings.inStreamingMode()
        self._tables = self._gateway.jvm.org.apache.flink.table.api.TableEnvironment.create(settings)
        for name, value in {"table.local-time-zone": "UTC", "parallelism.default": "1"}.items():
            self._tables.getConfig().set(name, value)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._gateway.shutdown()

    def table(
        self, broker: KafkaBroker, topic: str, types: Mapping[str, str], key: list[str], format: FlinkFormat
    ) -> list[dict[str, Any]]:
        """The rows that Flink has of ``topic`` in the end; ``types`` are the source's, by name of the column."""
        columns = {name: flink_type(type_, format) for name, type_ in types.items()}
        options = {
            "connector": "kafka",
            "topic": topic,
            "properties.bootstrap.servers": broker.bootstrap,
            "properties.isolation.level": "read_committed",
            "scan.startup.mode": "earliest-offset",
            "scan.bounded.mode": "latest-offset",
            **format.options,
        }
        fields = ", ".join(f"`{name}` {type_}" for name, type_ in columns.items())
        keys = ", ".join(f"`{name}`" for name in key)
        having = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
        name = re.sub(r"\W", "_", topic)
        self._tables.executeSql(f"DROP TABLE IF EXISTS `{name}`")
        self._tables.executeSql(f"CREATE TABLE `{name}` ({fields}, PRIMARY KEY ({keys}) NOT ENFORCED) WITH ({having})")
        changes = self._tables.executeSql(f"SELECT * FROM `{name}`").collect()
        rows: dict[Any, dict[str, Any]] = {}
        try:
            while changes.hasNext():
                change = changes.next()
                row = {column: _python(change.getField(column)) for column in columns}
                place = tuple(row[column] for column in key)
                if str(change.getKind()) in _FORGOTTEN:
                    del rows[place]
                else:
                    rows[place] = row
        finally:
            changes.close()
        return list(rows.values())


def _python(value: Any) -> Any:
    """py4j makes numbers, texts and bytes Python's; dates and times have Java's text, which is ISO 8601."""
    return value if value is None or isinstance(value, str | bytes | int | float) else str(value)
