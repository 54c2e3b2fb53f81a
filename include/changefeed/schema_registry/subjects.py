"""The ids of a pipeline's schemas: known, looked up by content, or registered where compatibility allows it.

A schema's subject is its topic's name and `-key` or `-value`, or has the name of its record, as a format says. A
schema that is registered already gets the id that it has, so whoever asks for it, whenever, writes the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import orjson

from changefeed.errors import CompatibilityError
from changefeed.formats.schema_ids import Part, SubjectNames
from changefeed.schema_registry.client import Registry
from changefeed.schema_registry.compatibility import Mismatch, mismatch
from changefeed.table_schema import TableSchema

KnownIds = Mapping[tuple[str, str], int]
"""By subject and `digest` of a schema's text its id."""

NONE = "NONE"


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
        level = self.registry.level(subject)
        if level != NONE:
            versions = self.registry.schemas(subject, latest=not level.endswith("_TRANSITIVE"))
            for mismatched, rule in _mismatches(level, schema, versions):
                raise _refused(self.registry, subject, level, table, f"{_column(mismatched)}: {rule}")
            if versions and (reasons := self.registry.refusals(subject, schema)):
                raise _refused(self.registry, subject, level, table, "; ".join(reasons))
        found = self.registry.register(subject, schema)
        if found is None:
            raise _refused(self.registry, subject, level, table, "the registry gives no reason (409)")
        return found


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


def _mismatches(level: str, schema: str, versions: list[str]) -> Iterator[tuple[Mismatch, str]]:
    """What ``level`` does not allow, and the rule of that level."""
    for version in reversed(versions):
        if level.startswith(("BACKWARD", "FULL")) and (found := mismatch(schema, version)):
            yield found, f"a reader with the new schema cannot read older records: {found.rule}"
        if level.startswith(("FORWARD", "FULL")) and (found := mismatch(version, schema)):
            yield found, f"a reader with the older schema cannot read new records: {found.rule}"


def _column(found: Mismatch) -> str:
    """A column is a field of an image in the envelope, or of a key."""
    is_image = found.path[:1] in (("before",), ("after",))
    path = found.path[1:] if is_image else found.path
    if not path:
        return "the record itself"
    return f"{'column' if is_image or len(path) == 1 else 'field'} {'.'.join(path)!r}"


def _refused(registry: Registry, subject: str, level: str, table: str, why: str) -> CompatibilityError:
    of_table = f" of table {table}" if table else ""
    return CompatibilityError(
        f"a new schema{of_table} cannot be the next version of subject {subject!r} in the schema registry at "
        f"{registry.connection}, whose compatibility is {level}. {why}. Nothing of it is published. Change the column "
        "so that it fits (nullable, or with a default), publish the table to another topic, or allow the change once: "
        f"set the compatibility of {subject!r} to NONE (PUT /config/SUBJECT), run the pipeline, and set it back."
    )
