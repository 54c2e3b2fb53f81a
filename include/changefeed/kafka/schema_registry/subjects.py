"""The ids of a pipeline's schemas: known, looked up by content, or registered where the registry takes them.

A schema's subject is its topic's name and `-key` or `-value`, or has the name of its record, as a format says. A
schema that is registered already gets the id that it has, so whoever asks for it, whenever, writes the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from changefeed.errors import CompatibilityError
from changefeed.formats.schema_ids import Part, SubjectNames
from changefeed.kafka.schema_registry.client import Registry
from changefeed.model.table_schema import TableSchema

KnownIds = Mapping[tuple[str, str], int]
"""By subject and `digest` of a schema's text its id."""


def digest(schema: str) -> str:
    """What a schema's text is known by."""
    return hashlib.sha256(schema.encode()).hexdigest()


@dataclass
class Subjects:
    """A `SchemaIds` of ``registry``: each schema is asked for once.

    ``topic_of`` gives a table's topic, ``statements_topic`` is that of the records of definitions. ``known`` are ids
    that somebody asked for before.
    """

    registry: Registry
    topic_of: Callable[[str, str], str]
    statements_topic: str
    known: KnownIds = field(default_factory=dict)
    _ids: dict[tuple[str, str], int] = field(default_factory=dict, repr=False)

    def of_table(self, table: TableSchema, part: Part, schema: str, names: SubjectNames = SubjectNames.TOPIC) -> int:
        """See `SchemaIds.of_table`; raises as `Registry`, too."""
        return self._id(self.subject(table, part, schema, names), schema, f"{table.database}.{table.table}")

    def subject(self, table: TableSchema, part: Part, schema: str, names: SubjectNames) -> str:
        """The subject of the ``schema`` of a table's keys or values."""
        record = orjson.loads(schema)
        return names.subject(
            self.topic_of(table.database, table.table), part, f"{record['namespace']}.{record['name']}"
        )

    def of_statements(self, part: Part, schema: str) -> int:
        """See `SchemaIds.of_statements`; raises as `Registry`, too."""
        return self._id(f"{self.statements_topic}-{part}", schema, "")

    def _id(self, subject: str, schema: str, table: str) -> int:
        key = (subject, digest(schema))
        if key in self.known:
            return self.known[key]
        if key not in self._ids:
            found = self.registry.id_of(subject, schema)
            self._ids[key] = self._registered(subject, schema, table) if found is None else found
        return self._ids[key]

    def _registered(self, subject: str, schema: str, table: str) -> int:
        try:
            return self.registry.register(subject, schema)
        except CompatibilityError as error:
            raise self._refused(subject, schema, table, str(error)) from None

    def _refused(self, subject: str, schema: str, table: str, why: str) -> CompatibilityError:
        of_table = f" of table {table}" if table else ""
        columns = _changed_columns(schema, self.registry.schemas(subject, latest=True))
        shown = f"The columns that changed are {', '.join(map(repr, columns))}. " if columns else ""
        return CompatibilityError(
            f"a new schema{of_table} cannot be the next version of subject {subject!r} in the schema registry at "
            f"{self.registry.connection}, whose compatibility is {self.registry.level(subject)}. {shown}The registry "
            f"says: {why}. The run stops before it publishes anything of this window, of other tables neither. Allow "
            f"the change once: set the compatibility of {subject!r} to NONE (PUT /config/SUBJECT), run the pipeline, "
            "and set it back. Or change the column so that it fits (nullable, or with a default), publish the table to "
            "another topic, or leave it out by `tables.exclude`, so that the others go on."
        )


class Lookups:
    """A `SchemaIds` that registers nothing: it looks up, through ``subjects``, which ids there are already."""

    def __init__(self, subjects: Subjects) -> None:
        self._subjects = subjects
        self.known: dict[tuple[str, str], int] = {}

    def of_table(self, table: TableSchema, part: Part, schema: str, names: SubjectNames = SubjectNames.TOPIC) -> int:
        """The id; 0 for a schema that is not registered."""
        return self._id(self._subjects.subject(table, part, schema, names), schema)

    def of_statements(self, part: Part, schema: str) -> int:
        """As `of_table`."""
        return self._id(f"{self._subjects.statements_topic}-{part}", schema)

    def _id(self, subject: str, schema: str) -> int:
        found = self._subjects.registry.id_of(subject, schema)
        if found is None:
            return 0
        self.known[subject, digest(schema)] = found
        return found


def _changed_columns(schema: str, before: Sequence[str]) -> list[str]:
    """The columns that differ between ``schema`` and the version ``before``, if there is one."""
    new, old = _columns(schema), _columns(before[-1]) if before else {}
    return [name for name in {**old, **new} if old.get(name) != new.get(name)] if before else []


def _columns(schema: str) -> dict[str, Any]:
    """By name the columns in the schema of a key, or in that of an envelope, whose images have them."""
    fields = {field["name"]: field for field in orjson.loads(schema)["fields"]}
    if "before" in fields:
        image = next((of for of in fields["before"]["type"] if isinstance(of, dict)), {"fields": ()})
        fields = {field["name"]: field for field in image["fields"]}
    return fields
