"""The ids of a pipeline's schemas: known, looked up by content, or registered.

The format chooses the subject of a schema: the name of the topic with `-key` or `-value`, or the name of the record. A
registered schema keeps its id, so every task writes the same bytes at any time.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from changefeed.errors import CompatibilityError
from changefeed.formats.schema_ids import Part, SubjectNames
from changefeed.kafka.schema_registry.client import Registry
from changefeed.kafka.schema_registry.exemptions import Exemptions
from changefeed.model.table_schema import TableSchema

_log = logging.getLogger(__name__)

KnownIds = Mapping[tuple[str, str], int]
"""Schema ids by subject and `digest` of the schema's text."""


def digest(schema: str) -> str:
    """A digest of a schema's text, the key of known ids."""
    return hashlib.sha256(schema.encode()).hexdigest()


@dataclass
class Subjects:
    """A `SchemaIds` of ``registry``: each schema is looked up once.

    ``topic_of`` returns a table's topic; ``statements_topic`` is the topic of schema changes. ``known`` are ids of
    earlier lookups. ``exemptions`` register schemas that the subject's compatibility refuses; without them such a
    schema is an error.
    """

    registry: Registry
    topic_of: Callable[[str, str], str]
    statements_topic: str
    known: KnownIds = field(default_factory=dict)
    exemptions: Exemptions | None = None
    _ids: dict[tuple[str, str], int] = field(default_factory=dict, repr=False)

    def of_table(self, table: TableSchema, part: Part, schema: str, names: SubjectNames = SubjectNames.TOPIC) -> int:
        """See `SchemaIds.of_table`; raises what `Registry` raises, too."""
        return self._id(self.subject(table, part, schema, names), schema, f"{table.database}.{table.table}")

    def subject(self, table: TableSchema, part: Part, schema: str, names: SubjectNames) -> str:
        """The subject of the ``schema`` of a table's keys or values."""
        record = orjson.loads(schema)
        return names.subject(
            self.topic_of(table.database, table.table), part, f"{record['namespace']}.{record['name']}"
        )

    def of_statements(self, part: Part, schema: str) -> int:
        """See `SchemaIds.of_statements`; raises what `Registry` raises, too."""
        return self._id(f"{self.statements_topic}-{part}", schema, "")

    def _id(self, subject: str, schema: str, table: str) -> int:
        key = (subject, digest(schema))
        if key in self.known:
            return self.known[key]
        if key not in self._ids:
            found = self.registry.id_of(subject, schema)
            self._ids[key] = self._register(subject, schema, table) if found is None else found
        return self._ids[key]

    def _register(self, subject: str, schema: str, table: str) -> int:
        try:
            return self.registry.register(subject, schema)
        except CompatibilityError as error:
            if self.exemptions is None:
                raise self._refusal(subject, schema, table, str(error)) from None
        try:
            found = self.exemptions.register(subject, schema)
        except CompatibilityError as error:
            raise self._refusal(subject, schema, table, str(error)) from None
        _log.warning(
            "registered a new schema%s as the next version of subject %r, whose compatibility refuses it: "
            "`on_incompatible: register` of the format says so",
            f" of table {table}" if table else "",
            subject,
        )
        return found

    def _refusal(self, subject: str, schema: str, table: str, why: str) -> CompatibilityError:
        of_table = f" of table {table}" if table else ""
        columns = _changed_columns(schema, self.registry.schemas(subject, latest=True))
        shown = f"The columns that changed are {', '.join(map(repr, columns))}. " if columns else ""
        return CompatibilityError(
            f"a new schema{of_table} cannot be the next version of subject {subject!r} in the schema registry at "
            f"{self.registry.connection}, whose compatibility is {self.registry.level(subject)}. {shown}The registry "
            f"says: {why}. The run stops before it publishes anything of this window, of other tables neither. Allow "
            f"the change once: set the compatibility of {subject!r} to NONE (PUT /config/SUBJECT), run the pipeline, "
            "and set it back; or each such change, by `on_incompatible: register` in the pipeline's `format`. Or "
            "change the column so that it fits (nullable, or with a default), publish the table to another topic, or "
            "leave it out by `tables.exclude`, so that the others go on."
        ).of_tables(*([table] if table else []))


class Lookups:
    """A `SchemaIds` that registers nothing: it looks up existing ids through ``subjects``."""

    def __init__(self, subjects: Subjects) -> None:
        self._subjects = subjects
        self.known: dict[tuple[str, str], int] = {}

    def of_table(self, table: TableSchema, part: Part, schema: str, names: SubjectNames = SubjectNames.TOPIC) -> int:
        """The id; 0 for a schema that is not registered."""
        return self._id(self._subjects.subject(table, part, schema, names), schema)

    def of_statements(self, part: Part, schema: str) -> int:
        """The id; 0 for a schema that is not registered."""
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
    """The columns by name in the schema of a key, or in the images of an envelope's schema."""
    fields = {field["name"]: field for field in orjson.loads(schema)["fields"]}
    if "before" in fields:
        image = next((of for of in fields["before"]["type"] if isinstance(of, dict)), {"fields": ()})
        fields = {field["name"]: field for field in image["fields"]}
    return fields
