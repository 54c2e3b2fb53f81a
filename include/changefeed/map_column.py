"""A column as a TABLE_MAP describes it.

Source: https://dev.mysql.com/doc/dev/mysql-server/latest/classmysql_1_1binlog_1_1event_1_1Table__map__event.html
"""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.column_types import WIRE_TYPES, WireType


@dataclass
class MapColumn:
    """One column of a TABLE_MAP; what optional metadata did not say is None.

    ``meta`` is the type's metadata: for STRING, ENUM and SET the length, for NEWDECIMAL precision << 8 | scale, for BIT
    the number of bits, else its bytes as a little-endian number.
    """

    type: int
    meta: int
    nullable: bool
    unsigned: bool | None = None
    collation: int | None = None
    name: str | None = None
    labels: tuple[bytes, ...] | None = None
    visible: bool = True
    is_point: bool = False
    """Whether it is a geometry that is known to be a point."""

    @property
    def wire(self) -> WireType:
        """The row of its type in the table of types."""
        return WIRE_TYPES[self.type]
