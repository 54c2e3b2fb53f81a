"""The interface of schema ids: the part of a registry that wire formats use."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, Protocol

from changefeed.model.table_schema import TableSchema

Part = Literal["key", "value"]
"""The part of a message that a schema describes."""


class SubjectNames(StrEnum):
    """The subject name strategies of Confluent.

    Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#subject-name-strategy
    """

    TOPIC = "TopicNameStrategy"
    RECORD = "RecordNameStrategy"
    TOPIC_RECORD = "TopicRecordNameStrategy"

    def subject(self, topic: str, part: Part, record: str) -> str:
        """The subject of a schema of keys or values in ``topic``; ``record`` is the name of the schema."""
        match self:
            case SubjectNames.TOPIC:
                return f"{topic}-{part}"
            case SubjectNames.RECORD:
                return record
        return f"{topic}-{record}"


class SchemaIds(Protocol):
    """Returns schema ids. The id of a schema in a topic is always the same."""

    def of_table(self, table: TableSchema, part: Part, schema: str, names: SubjectNames = SubjectNames.TOPIC) -> int:
        """The id of the Avro ``schema`` of keys or values in the table's topic. ``names`` chooses the subject.

        Raises CompatibilityError if the schema is not compatible with earlier schemas of the subject.
        """
        ...

    def of_statements(self, part: Part, schema: str) -> int:
        """The id of the Avro ``schema`` of the pipeline's schema change records. Raises the errors of `of_table`."""
        ...


class LocalIds:
    """A replacement for a registry, which numbers schemas from 1 in the order of the calls."""

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
