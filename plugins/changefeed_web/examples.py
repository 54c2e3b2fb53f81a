"""An example of each parameter and each field of a body, in the description of the REST API."""

from collections.abc import Iterator, Mapping
from typing import Any

_COORDINATES = "binlog.000012:157"
EXAMPLES: Mapping[str, Any] = {
    "archive": "s3://backups/binlogs",
    "changed_keys": 1_000_000,
    "checkpoint": "postgres_state",
    "chunk_rows": 10_000,
    "connections": 4,
    "coordinates": _COORDINATES,
    "database": "shop",
    "deep": True,
    "exclude": ["shop.customers.password"],
    "expected": _COORDINATES,
    "finish": True,
    "follower": "mysql_copy",
    "format": "avro",
    "from_coordinates": _COORDINATES,
    "from_file": "binlog.000012",
    "from_time": "2026-01-31T12:00:00Z",
    "gtids": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5",
    "id": f"{_COORDINATES}:0",
    "if-match": '"6f1ed002ab559585"',
    "kafka": "kafka_shop",
    "key": "42",
    "limit": 20,
    "live": False,
    "mask": {"shop.customers.phone": {"characters": 3}},
    "max_bytes": 1_000_000_000,
    "max_seconds": 600,
    "name": "shop",
    "registry": "schema_registry",
    "rows_per_second": 5_000,
    "run_id": "manual__2026-01-31T12:00:00+00:00",
    "sample_percent": 10,
    "schedule": "*/5 * * * *",
    "since": "2026-01-31T12:00:00Z",
    "skip_changes": True,
    "source": "mysql_shop",
    "start": "snapshot",
    "suffix": ".replay",
    "table": "shop.orders",
    "tables": ["shop.orders"],
    "to": "2026-01-31T12:00:00Z",
    "to_coordinates": "binlog.000013:4",
    "to_file": "binlog.000013",
    "to_time": "2026-01-31T13:00:00Z",
    "topic": "shop.orders",
    "up_to": {"0": 41},
    "until": "2026-01-31T13:00:00Z",
    "wait_seconds": 600,
    "where": "id > 1000",
    "why": "the new column was missing",
    "yaml": "name: shop\nsource: …",
}
"""By the name of the parameter or field."""
_OF_MODELS: Mapping[tuple[str, str], Any] = {
    ("RunBounds", "until"): "binlog.000013:4",
    ("TableOfSource", "table"): "orders",
}
"""Where a name has another meaning, by model."""
_ANSWERS = ("HTTPValidationError", "ValidationError")


def add_examples(schema: dict[str, Any]) -> dict[str, Any]:
    """``schema``, an OpenAPI document, with an example of each parameter and field, and what ``name`` of a path is."""
    for operation in _operations(schema):
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "path" and parameter["name"] == "name":
                parameter["description"] = "Name of the pipeline."
            name = parameter["name"].lower()
            is_list = parameter["schema"].get("type") == "array"
            parameter["example"] = [EXAMPLES[name]] if is_list else EXAMPLES[name]
    for model, field, described in fields_of_bodies(schema):
        described["examples"] = [_OF_MODELS.get((model, field), EXAMPLES[field])]
    return schema


def fields_of_bodies(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Model, name and JSON schema of each field of the bodies in an OpenAPI document."""
    for model, described in schema["components"]["schemas"].items():
        if model not in _ANSWERS:
            for field, each in described.get("properties", {}).items():
                yield model, field, each


def _operations(schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for path in schema["paths"].values():
        yield from path.values()
