"""Apache Avro's Java library, and the AvroData of a Connect converter, called from Python, to check what we write.

The converter is Apicurio's, whose AvroData is Confluent's: Confluent's own is in no package registry.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from devstack.connect import CHECKSUMS
from devstack.home import Home
from devstack.installation import install_once
from devstack.java import fetch_java
from devstack.kafka import KAFKA, fetch_kafka
from devstack.maven import Artifact, read_checksums, retrieve

CONVERTER = Artifact("io.apicurio", "apicurio-registry-utils-converter", "2.6.13.Final")
CONVERTER_SHA256 = "95392390745e31941e3f8e3565f883a2c31b9fd1d38eb0e22aac7721dd73508a"
CONNECT = [Artifact("org.apache.kafka", name, KAFKA.version) for name in ("connect-api", "connect-json")]
BLACKBIRD = Artifact("com.fasterxml.jackson.module", "jackson-module-blackbird", "2.21.2")
"""What Connect's JSON wants besides Spark's jars."""
JARS = Path(pyspark.__file__).parent / "jars"


def fetch_converter(home: Home) -> Path:
    """Folder with the converter's jar, and Connect's own schemas and JSON."""

    def build(target: Path) -> None:
        artifacts = [CONVERTER, *CONNECT, BLACKBIRD]
        names = [f"{artifact.name}-{artifact.version}.jar" for artifact in artifacts]
        pinned = {**read_checksums(CHECKSUMS), names[0]: CONVERTER_SHA256}
        retrieve(
            fetch_java(home), artifacts, target, what="the Avro converter (Maven Central)", size=400_000,
            checksums={name: pinned[name] for name in names}, transitive=False,
        )  # fmt: skip

    return install_once(home, f"avro-converter-{CONVERTER.version}", build)


class JavaAvro:
    """A JVM with Avro and the converter; use as a context manager."""

    def __enter__(self) -> JavaAvro:
        home = Home.default()
        folders = [fetch_converter(home), fetch_kafka(home), JARS]
        classpath = ":".join(f"{folder}/*" for folder in folders)
        (py4j,) = JARS.glob("py4j-*.jar")
        port = launch_gateway(classpath=classpath, jarpath=str(py4j), java_path=str(fetch_java(home)), die_on_exit=True)
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
        self._java = self._gateway.jvm
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._gateway.shutdown()

    def schema(self, text: str) -> Any:
        """The schema, parsed and checked by Avro, names and defaults too."""
        return self._java.org.apache.avro.Schema.Parser().parse(text)

    def mismatch(self, reader: str, writer: str) -> str:
        """What Avro's SchemaCompatibility has against reading ``writer``'s records as ``reader``; '' for nothing."""
        compatibility = self._java.org.apache.avro.SchemaCompatibility
        result = compatibility.checkReaderWriterCompatibility(self.schema(reader), self.schema(writer))
        return (
            "" if str(result.getType()) == "COMPATIBLE" else str(result.getResult().getIncompatibilities().toString())
        )

    def read(self, schema: str, data: bytes, reader: str | None = None) -> str:
        """The record in Avro's binary as Avro shows it, read to its last byte."""
        avro = self._java.org.apache.avro
        decoder = avro.io.DecoderFactory.get().binaryDecoder(data, None)
        record = avro.generic.GenericDatumReader(self.schema(schema), self.schema(reader or schema)).read(None, decoder)
        assert decoder.isEnd()
        return str(record.toString())

    def of_connect(self, schema: dict[str, Any]) -> Any:
        """The Avro schema that the converter makes of Connect's schema in its JSON form."""
        json_converter = self._java.org.apache.kafka.connect.json.JsonConverter()
        settings = self._java.java.util.HashMap()
        settings.put("schemas.enable", "true")
        json_converter.configure(settings, False)
        mapper = self._java.com.fasterxml.jackson.databind.ObjectMapper()
        connect = json_converter.asConnectSchema(mapper.readTree(json.dumps(schema)))
        return self._java.io.apicurio.registry.utils.converter.avro.AvroData(10).fromConnectSchema(connect)
