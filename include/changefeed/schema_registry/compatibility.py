"""Whether a reader with one Avro schema can read what was written with another, and why not.

Sources: https://avro.apache.org/docs/1.12.0/specification/#schema-resolution, and Avro's own `SchemaCompatibility`,
which ignores logical types, and compares records by their own names without the namespace.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

Schema = Any
"""An Avro schema as JSON: a name, an object, or the list of a union's branches."""

_PROMOTED = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "string": {"bytes"},
    "bytes": {"string"},
}
"""By the reader's type those that a writer may have had instead."""
_NAMED = ("record", "enum", "fixed")


@dataclass(frozen=True)
class Mismatch:
    """Where a reader cannot read what was written: the path of fields, and the rule of Avro that says so."""

    path: tuple[str, ...]
    rule: str


def mismatch(reader: str, writer: str) -> Mismatch | None:
    """The first mismatch of two schemas' texts; None where all that was written can be read."""
    comparison = _Comparison(_names(orjson.loads(reader)), _names(orjson.loads(writer)))
    return next(comparison.mismatches(orjson.loads(reader), orjson.loads(writer), ()), None)


def _names(schema: Schema, space: str = "") -> dict[str, Schema]:
    """The named types in a schema, by full name."""
    if isinstance(schema, list):
        return {name: of for branch in schema for name, of in _names(branch, space).items()}
    if not isinstance(schema, dict):
        return {}
    found = {}
    if schema["type"] in _NAMED:
        space = schema.get("namespace", schema["name"].rpartition(".")[0] or space)
        found[_full(schema["name"], space)] = {**schema, "namespace": space}
    inside = [field["type"] for field in schema.get("fields", [])]
    inside += [schema[key] for key in ("items", "values") if key in schema]
    if not isinstance(schema["type"], str):
        inside.append(schema["type"])
    for part in inside:
        found |= _names(part, space)
    return found


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


@dataclass
class _Comparison:
    readers: dict[str, Schema]
    writers: dict[str, Schema]
    _seen: set[tuple[str, str]] = field(default_factory=set)

    def mismatches(self, reader: Schema, writer: Schema, path: tuple[str, ...]) -> Iterator[Mismatch]:
        reader, writer = _resolved(reader, self.readers), _resolved(writer, self.writers)
        if isinstance(writer, list):
            for branch in writer:
                yield from self.mismatches(reader, branch, path)
            return
        if isinstance(reader, list):
            if not any(self._can_read(branch, writer) for branch in reader):
                alike = next((branch for branch in reader if _type(_resolved(branch, self.readers)) == "record"), None)
                if alike is not None and _type(writer) == "record":
                    yield from self.mismatches(alike, writer, path)  # says which of its fields it is
                else:
                    yield Mismatch(path, f"{_shown(writer)} was written, which {_shown(reader)} does not have")
            return
        of, was = _type(reader), _type(writer)
        if of != was:
            if was not in _PROMOTED.get(of, ()):
                yield Mismatch(path, f"{_shown(writer)} was written, which cannot be read as {_shown(reader)}")
            return
        match of:
            case "record":
                yield from self._records(reader, writer, path)
            case "array":
                yield from self.mismatches(reader["items"], writer["items"], path)
            case "map":
                yield from self.mismatches(reader["values"], writer["values"], path)
            case "enum":
                yield from _enums(reader, writer, path)
            case "fixed":
                if _own(reader) != _own(writer) or reader["size"] != writer["size"]:
                    yield Mismatch(path, f"{_shown(writer)} was written, which cannot be read as {_shown(reader)}")

    def _records(self, reader: Schema, writer: Schema, path: tuple[str, ...]) -> Iterator[Mismatch]:
        if _own(reader) != _own(writer) and _own(writer) not in map(_last, reader.get("aliases", [])):
            yield Mismatch(path, f"record {_own(writer)!r} was written, which cannot be read as {_own(reader)!r}")
            return
        pair = (str(reader.get("namespace")) + _own(reader), str(writer.get("namespace")) + _own(writer))
        if pair in self._seen:
            return
        self._seen.add(pair)
        fields = {field["name"]: field for field in writer["fields"]}
        for wanted in reader["fields"]:
            inside = (*path, wanted["name"])
            names = [wanted["name"], *wanted.get("aliases", [])]
            written = next((fields[name] for name in names if name in fields), None)
            if written is not None:
                yield from self.mismatches(wanted["type"], written["type"], inside)
            elif "default" not in wanted:
                yield Mismatch(inside, "it was not written, and has no default to be read instead")

    def _can_read(self, reader: Schema, writer: Schema) -> bool:
        # What is tried on one branch after the other must not count as seen on the way to the next.
        tried = _Comparison(self.readers, self.writers, set(self._seen))
        return next(tried.mismatches(reader, writer, ()), None) is None


def _enums(reader: Schema, writer: Schema, path: tuple[str, ...]) -> Iterator[Mismatch]:
    if _own(reader) != _own(writer):
        yield Mismatch(path, f"enum {_own(writer)!r} was written, which cannot be read as {_own(reader)!r}")
    elif "default" not in reader and (gone := [s for s in writer["symbols"] if s not in reader["symbols"]]):
        yield Mismatch(path, f"symbols {', '.join(gone)} may have been written, and are gone")


def _resolved(schema: Schema, names: dict[str, Schema]) -> Schema:
    """``schema`` with a name that stands for a type replaced by that type."""
    if isinstance(schema, str):
        return names.get(schema, names.get(next((name for name in names if _last(name) == schema), ""), schema))
    if isinstance(schema, dict) and not isinstance(schema["type"], str):
        return _resolved(schema["type"], names)
    if isinstance(schema, dict) and schema["type"] in names:
        return names[schema["type"]]
    return schema


def _type(schema: Schema) -> str:
    return str(schema["type"]) if isinstance(schema, dict) else str(schema)


def _own(schema: Schema) -> str:
    return _last(str(schema["name"]))


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _shown(schema: Schema) -> str:
    if isinstance(schema, list):
        return f"[{', '.join(map(_shown, schema))}]"
    kind = _type(schema)
    return f"{kind} {_own(schema)!r}" if isinstance(schema, dict) and kind in _NAMED else kind
