"""Spark's own Kafka source over topics in format `flat`: the last record of each key is the row."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json, row_number
from pyspark.sql.window import Window

from devstack.consumers import SPARK_KAFKA
from devstack.home import Home
from devstack.kafka import KafkaBroker


def spark_type(type_: str) -> str:
    """Spark's type of a column of ``type_``."""
    match type_.split("(")[0].split(" ")[0]:
        case "tinyint" | "smallint" | "mediumint" | "year":
            return "INT"
        case "int":
            return "BIGINT"
        case "bigint":
            return "DECIMAL(20, 0)" if "unsigned" in type_ else "BIGINT"
        case "decimal" | "float" | "double" | "date":
            return type_
        case "datetime":
            return "TIMESTAMP_NTZ"
        case "timestamp":
            return "TIMESTAMP"
        case "bit":
            return "BOOLEAN" if type_ == "bit(1)" else "BINARY"
        case "binary" | "varbinary" | "blob":
            return "BINARY"
        case _:
            return "STRING"


class SparkReader:
    """A local Spark with its Kafka source."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def table(self, broker: KafkaBroker, topic: str, types: Mapping[str, str]) -> list[dict[str, Any]]:
        """The rows that Spark has of ``topic``; ``types`` are the source's, by name of the column."""
        fields = ", ".join(f"`{name}` {spark_type(type_)}" for name, type_ in types.items())
        records = (
            self._session.read.format("kafka")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", topic)
            .load()
        )
        newest = row_number().over(Window.partitionBy("key").orderBy(col("offset").desc()))
        read = from_json(col("value").cast("string"), f"{fields}, __deleted STRING", {"mode": "FAILFAST"})
        rows = (
            records.withColumn("newest", newest)
            .where("newest = 1")
            .select(read.alias("row"))
            .where("row.__deleted = 'false'")
        )
        # Moments as text: collect() makes them local time.
        words = [
            f"CAST(row.`{name}` AS STRING) AS `{name}`" if re.match("date|timestamp", type_) else f"row.`{name}`"
            for name, type_ in types.items()
        ]
        return [row.asDict() for row in rows.selectExpr(*words).collect()]


@contextmanager
def spark_reader() -> Iterator[SparkReader]:
    """A Spark at local[1], for the time of the context."""
    jars = ",".join(str(jar) for jar in SPARK_KAFKA.fetch(Home.default()).glob("*.jar"))
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    try:
        yield SparkReader(session)
    finally:
        session.stop()
