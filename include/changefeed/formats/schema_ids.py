"""The ids that a registry gives to schemas, as far as a wire format needs to know of a registry."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, Protocol

from changefeed.model.table_schema import TableSchema

Part = Literal["key", "value"]
"""Of a message, what a schema describes."""


class SubjectNames(StrEnum):
    """How subjects are named, as Confluent's strategies of these names do it.

    Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#subject-name-strategy
    """

    TOPIC = "TopicNameStrategy"
    RECORD = "RecordNameStrategy"
    TOPIC_RECORD = "TopicRecordNameStrategy"

    def subject(self, topic: str, part: Part, record: str) -> str:
        """The subject of the schema of ``topic``'s keys or values; ``record`` is the schema's own name."""
        match self:
            case SubjectNames.TOPIC:
                return f"{topic}-{part}"
            case SubjectNames.RECORD:
                return record
        return f"{topic}-{record}"


class SchemaIds(Protocol):
    """Gives schemas their ids: the same id for the same schema of a topic, whenever it is asked."""

    def of_table(self, table: TableSchema, part: Part, schema: str, names: SubjectNames = SubjectNames.TOPIC) -> int:
        """The id of the Avro ``schema`` of the keys or values in the table's topic, under a subject of such a name.

        Raises CompatibilityError where the registry does not take it beside those that the topic has had.
        """
        ...

    def of_statements(self, part: Part, schema: str) -> int:
        """The id of the Avro ``schema`` of the pipeline's records of definitions. Raises as `of_table`."""
        ...


class LocalIds:
    """Stands in for a registry where none is asked: schemas are numbered from 1, in the order in which they come."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def of_table(
        self,
        table: TableSchema,  # noqa: ARG002 - the protocol's signature
        part: Part,
        schema: str,
        names: SubjectNames = SubjectNames.TOPIC,  # noqa: ARG002
    ) -> int:
        """The schema's number."""
        return self.of_statements(part, schema)

    def of_statements(self, part: Part, schema: str) -> int:  # noqa: ARG002 - the protocol's signature
        """The schema's number."""
        return self._numbers.setdefault(schema, len(self._numbers) + 1)
