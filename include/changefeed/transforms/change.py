"""A row change as users' functions see it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Literal

__all__ = ["Change"]

Op = Literal["c", "u", "d", "r"]
Row = dict[str, Any]
"""Column values by name, as in the pipeline's JSON records: text, numbers, None. The setting `values` chooses the form
of DECIMAL, times, bytes and JSON documents."""


@dataclass(frozen=True, slots=True)
class Coordinates:
    """The place of a change in the binlog: ``row`` is the number of the row in the event at ``position``."""

    file: str
    position: int
    row: int

    def __str__(self) -> str:
        return f"{self.file}:{self.position} row {self.row}"


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of a change; see `Change`."""

    op: Op
    database: str
    table: str
    before: Row | None
    after: Row | None
    key: tuple[str, ...]
    topic: str
    timestamp: datetime
    gtid: str | None
    coordinates: Coordinates
    members: dict[str, Any] = field(default_factory=dict)


class Change(_Fields):
    """One row change. A function returns the change, a copy made by `replace`, a list of changes, or None.

    - ``op`` is c (insert), u (update), d (delete), or r (a row that a snapshot read).
    - ``before`` is None for c and r, ``after`` is None for d. With binlog_row_image=MINIMAL columns are missing.
    - ``key`` has the names of the columns of the message key; () for none.
    - ``topic`` is the topic of the message.

    A function may change these five fields. ``timestamp`` is the time of the source, in UTC and in whole seconds;
    ``gtid`` is None if the transaction has none. ``members`` are added to the record after the members of its format:
    `change.ext = 1` sets one.
    """

    __slots__ = ()

    @property
    def row(self) -> Row:
        """The row of the change: ``before`` of a delete, else ``after``."""
        return (self.before if self.op == "d" else self.after) or {}

    @property
    def rows(self) -> tuple[Row, ...]:
        """``before`` and ``after``, without None."""
        return tuple(row for row in (self.before, self.after) if row is not None)

    def replace(self, **given: Any) -> Change:
        """A change like this one, with other fields and members: `change.replace(topic="orders.eu")`."""
        members = dict(given.pop("members", self.members))
        for name in [name for name in given if name not in _NAMES]:
            _check_member(name)
            members[name] = given.pop(name)
        return replace(self, **given, members=members)

    def __getattr__(self, name: str) -> Any:
        """The member ``name``; raises AttributeError if it was not set."""
        if not name.startswith("_") and name not in _NAMES and name in self.members:
            return self.members[name]
        raise AttributeError(f"a change has no {name!r}, and no function has set it{_near(name)}")

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a member; raises AttributeError for a field and for a name similar to a field's."""
        _check_member(name)
        self.members[name] = value

    def __delattr__(self, name: str) -> None:
        """Delete a member."""
        if name not in self.members:
            raise AttributeError(f"a change has no member {name!r}{_near(name)}")
        del self.members[name]


_NAMES = tuple(each.name for each in fields(Change))
_FIXED = ("database", "table", "timestamp", "gtid", "coordinates")
_OWN = (*_NAMES, "row", "rows", "changed")


def _check_member(name: str) -> None:
    """Raise AttributeError for a ``name`` that no member may have."""
    if name in _FIXED:
        raise AttributeError(f"{name!r} of a change says where it comes from, and stays")
    if name in ("row", "rows", "members", "changed"):
        raise AttributeError(f'{name!r} of a change cannot be set: change what is in it, such as `change.row["x"] = 1`')
    if name in _NAMES:
        raise AttributeError(f"{name!r} of a change cannot be set: return `change.replace({name}=...)`")
    near = _near(name)
    if near or name.startswith("_"):
        raise AttributeError(
            f"a change has no {name!r}{near}. If a member of the record is to be called that, set "
            f"`change.members[{name!r}]`"
        )


def _near(name: str) -> str:
    near = get_close_matches(name.lower(), _OWN, 1, 0.8)
    return f" (did you mean {near[0]!r}?)" if near else ""
