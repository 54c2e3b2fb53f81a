"""The full name of a table."""

from __future__ import annotations

from typing import NamedTuple


class TableName(NamedTuple):
    """Database and table as the server logs them."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"`{self.database}`.`{self.table}`"
