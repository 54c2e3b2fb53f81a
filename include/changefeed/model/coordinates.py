"""Binlog coordinates: the byte position of an event boundary in a numbered file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering

from changefeed.errors import SettingsError

FILE_PATTERN = r"^[^/\\\x00-\x1f\x7f-\x9f]+\.[0-9]{6,20}$"
COORDINATES_PATTERN = r"^[^/\\\x00-\x1f\x7f-\x9f]+\.[0-9]{6,20}:[0-9]{1,20}$"
"""Patterns of a file's name and of FILE:POSITION, for the validation of forms."""

_FILE = re.compile(FILE_PATTERN.removesuffix("$") + r"\Z")
_POSITION = re.compile("[0-9]{1,20}")
_LONGEST_NAME = 255
"""Limit of a file's name in bytes."""

FIRST_POSITION = 4
"""Position of a file's first event: the magic number takes four bytes."""
LAST_DUMP_POSITION = 0xFFFFFFFF
"""The last position from which a server can send a file.

To read an event after it, the reader starts at the first position of the file. A file exceeds this size only if one
transaction does."""


@total_ordering
@dataclass(frozen=True)
class BinlogCoordinates:
    """A byte position in a binlog file, ordered by the file's number and then by position.

    Names are not compared as strings: ``bin.1000000`` comes after ``bin.999999``. Coordinates with different base names
    have no order. Comparing them raises ``ValueError``, because the source was reset or renamed.
    """

    file: str
    position: int

    def __post_init__(self) -> None:
        check_file_name(self.file)
        if not _FILE.match(self.file):
            raise SettingsError(f"binlog file {self.file!r} has no number at its end, as in 'binlog.000012'")
        if self.position < 0:
            raise SettingsError(f"binlog position {self.position} is negative")

    @classmethod
    def parse(cls, text: str) -> BinlogCoordinates:
        """Read ``file:position``; raises SettingsError for anything else."""
        file, _, position = text.rpartition(":")
        try:
            return cls(file, int(position) if _POSITION.fullmatch(position) else -1)
        except SettingsError:
            raise SettingsError(
                f"{text!r} is not binlog coordinates: expected FILE:POSITION, as in 'binlog.000012:4077'"
            ) from None

    @property
    def base(self) -> str:
        """The file's name without its number: the end of `log_bin_basename`."""
        return self.file.rpartition(".")[0]

    @property
    def number(self) -> int:
        """The file's number, by which files are ordered."""
        return int(self.file.rpartition(".")[2])

    def has_reached(self, other: BinlogCoordinates) -> bool:
        """Whether a reader at these coordinates has read everything before ``other``."""
        return self >= other

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, BinlogCoordinates):
            return NotImplemented
        if self.base != other.base:
            raise ValueError(f"binlogs {self.file!r} and {other.file!r} have no order: their base names differ")
        return (self.number, self.position) < (other.number, other.position)

    def __str__(self) -> str:
        return f"{self.file}:{self.position}"


def check_file_name(file: str) -> None:
    """Raises SettingsError for a name that a binlog file cannot have.

    Such a name has a slash, a backslash or an unprintable character, or is too long. Names come from a server, a form,
    a checkpoint or the commit log. Call this before you use a name in a path or show it.
    """
    if "/" in file or "\\" in file or not file.isprintable():
        raise SettingsError(
            f"binlog file {file[:80]!a} has a character in its name that no binlog file has: expected printable ones "
            "without / and \\, as in 'binlog.000012'. Nothing of it is read; see which server the connection leads to"
        )
    if len(file.encode()) > _LONGEST_NAME:
        raise SettingsError(f"binlog file {file[:80]!r}… has a name of more than {_LONGEST_NAME} bytes")


def file_number(file: str) -> int:
    """The number at the end of a file's name; 0 for a name without one, as a copied file may have."""
    number = file.rpartition(".")[2]
    return int(number) if number.isdecimal() else 0


def sequence_number(file: str, position: int, row: int) -> int:
    """The sequence number of row ``row`` of the event at ``position``. Sequence numbers rise along the binlog.

    The number rises by 2^40 from file to file, and by the event's size in bytes from event to event. A row takes at
    least one byte, so two rows do not have the same number. Exception: all rows of a compressed transaction share its
    position, so they may have the numbers of rows after the transaction.
    """
    return (file_number(file) << 40) + position + row
