"""Decodes keys, values and headers of any records for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from changefeed.formats.avro_reader import RegisteredRecords
from changefeed.formats.reader import SchemaText


@dataclass
class RecordValues:
    """Decodes keys and values; each of ``schemas`` is read once."""

    schemas: SchemaText | None = None
    _records: RegisteredRecords | None = None

    def decode(self, data: bytes | None) -> Any:
        """A key or a value as JSON types: None for null, otherwise

        - decoded, if its schema is in the registry;
        - its payload, if it contains its schema;
        - its JSON or its text, and if it is not text, its bytes as hexadecimal digits after 0x.

        Raises the errors of ``schemas``.
        """
        if data is None:
            return None
        try:
            found = orjson.loads(data)
        except orjson.JSONDecodeError:
            return self._avro(data)
        return found["payload"] if isinstance(found, dict) and found.keys() == {"schema", "payload"} else found

    def _avro(self, data: bytes) -> Any:
        if self.schemas is None:
            return text_of(data)
        self._records = self._records or RegisteredRecords(self.schemas)
        try:
            return self._records(data)
        except ValueError:
            return text_of(data)


def text_of(data: bytes) -> str:
    """Bytes as text; if they are not text, as hexadecimal digits after 0x."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
