"""Jars of third-party consumers. Tests read the records of a pipeline with them.

Debezium's JDBC sink runs in the Kafka Connect of `devstack.connect`, Flink and Spark in a JVM of a test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from devstack.connect import DEBEZIUM
from devstack.home import Home
from devstack.installation import install_once
from devstack.java import fetch_java
from devstack.maven import Artifact, read_checksums, retrieve


@dataclass(frozen=True)
class Consumer:
    """Jars of Maven Central; their checksums are in the file `NAME.sha256`."""

    name: str
    version: str
    artifacts: Sequence[Artifact]
    bytes: int
    transitive: bool

    def fetch(self, home: Home) -> Path:
        """The folder with the jars, which are fetched once; raises FetchError if they cannot be fetched."""

        def build(target: Path) -> None:
            retrieve(
                fetch_java(home),
                self.artifacts,
                target,
                what=f"{self.name} {self.version} (Maven Central)",
                size=self.bytes,
                checksums=read_checksums(self.checksums),
                transitive=self.transitive,
            )

        return install_once(home, f"{self.name}-{self.version}", build)

    @property
    def checksums(self) -> Path:
        """The file of the jars' SHA-256 sums."""
        return Path(__file__).with_name(f"{self.name}.sha256")


_HIBERNATE = "7.2.19.Final"
"""Debezium's JDBC sink 3.6.0 requires 7.2.6, but some mirrors of Maven Central do not have its hibernate-agroal."""

JDBC_SINK = Consumer(
    "debezium-jdbc-sink",
    "3.6.0.Final",
    [
        Artifact("io.debezium", "debezium-connector-jdbc", "3.6.0.Final"),
        Artifact("io.debezium", "debezium-sink", DEBEZIUM.version),
        Artifact("org.hibernate.orm", "hibernate-core", _HIBERNATE),
        Artifact("org.hibernate.orm", "hibernate-agroal", _HIBERNATE),
        Artifact("org.hibernate.models", "hibernate-models", "1.0.1"),
        Artifact("io.agroal", "agroal-api", "2.8"),
        Artifact("io.agroal", "agroal-pool", "2.8"),
        Artifact("net.bytebuddy", "byte-buddy", "1.17.8"),
        Artifact("com.fasterxml", "classmate", "1.7.1"),
        Artifact("org.antlr", "antlr4-runtime", "4.13.2"),
        Artifact("org.jboss.logging", "jboss-logging", "3.6.1.Final"),
        Artifact("jakarta.persistence", "jakarta.persistence-api", "3.2.0"),
        Artifact("jakarta.transaction", "jakarta.transaction-api", "2.0.1"),
        Artifact("jakarta.xml.bind", "jakarta.xml.bind-api", "4.0.4"),
        Artifact("jakarta.activation", "jakarta.activation-api", "2.1.4"),
        Artifact("org.glassfish.jaxb", "jaxb-runtime", "4.0.6"),
        Artifact("org.glassfish.jaxb", "jaxb-core", "4.0.6"),
        Artifact("org.glassfish.jaxb", "txw2", "4.0.6"),
        Artifact("com.sun.istack", "istack-commons-runtime", "4.1.2"),
        Artifact("org.mariadb.jdbc", "mariadb-java-client", "3.5.6"),
        Artifact("org.postgresql", "postgresql", "42.7.11"),
    ],
    31_200_000,
    transitive=False,
)
"""Jars that Debezium's JDBC sink needs in addition to `devstack.connect`. They are first on the class path."""

_FLINK = "2.2.1"
FLINK = Consumer(
    "flink",
    _FLINK,
    [
        *(
            Artifact("org.apache.flink", name, _FLINK)
            for name in (
                "flink-clients",
                "flink-table-api-java-bridge",
                "flink-table-planner-loader",
                "flink-table-runtime",
                "flink-connector-base",
                "flink-json",
            )
        ),
        Artifact("org.apache.flink", "flink-sql-connector-kafka", "5.0.0-2.2"),
    ],
    138_000_000,
    transitive=True,
)
"""Flink SQL with its Kafka connector and JSON formats, for a cluster inside one JVM."""

SPARK_KAFKA = Consumer(
    "spark-kafka",
    "4.2.0",
    [
        Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
        Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.2.0"),
        Artifact("org.apache.kafka", "kafka-clients", "3.9.2"),
        Artifact("org.apache.commons", "commons-pool2", "2.13.1"),
    ],
    9_900_000,
    transitive=False,
)
"""Spark's Kafka connector, which pyspark does not include."""

CONSUMERS = (JDBC_SINK, FLINK, SPARK_KAFKA)
