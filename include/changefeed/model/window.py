"""Windows of a binlog, their slices, and failovers.

Coordinates of two servers are not comparable. After a failover, published changes are identified by transaction:

- A transaction in the checkpoint's GTID set was published, at any position of the new binlog.
- An unfinished window of the old server was published to each topic-partition up to one transaction. The transactions
  before it in the old server's binlog (`BinlogOrder`) were published completely. Of the transaction itself, as many
  messages were published as the topic-partition's progress counts (`HighWaterMark`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from changefeed.errors import BinlogGoneError
from changefeed.model.coordinates import FIRST_POSITION, BinlogCoordinates, check_file_name
from changefeed.model.file_identity import FileIdentity


@dataclass(frozen=True)
class Failover:
    """The checkpoint of the old server, for a window whose start was found on another server by GTID set.

    ``from_uuid`` is the UUID of the old server. ``window``, ``published`` and ``at`` are the window number, the GTID
    set and the coordinates of the checkpoint.
    """

    from_uuid: str
    window: int
    published: str
    at: str

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `Window.to_json`."""
        return asdict(self)


@dataclass(frozen=True)
class HighWaterMark:
    """The progress of the old server's unfinished window ``window`` in a topic-partition.

    The window published ``given`` messages. The last ``messages`` of them belong to transaction ``gtid``.
    """

    topic: str
    partition: int
    window: int
    gtid: str
    messages: int
    given: int


@dataclass(frozen=True)
class BinlogFile:
    """A binlog file as SHOW BINARY LOGS lists it, or as an archive has it."""

    name: str
    size_bytes: int

    def __post_init__(self) -> None:
        check_file_name(self.name)

    @property
    def number(self) -> int:
        """The number at the end of the name, by which files are ordered. Raises SettingsError if there is none."""
        return BinlogCoordinates(self.name, 0).number


def bytes_between(files: Sequence[BinlogFile], start: BinlogCoordinates, end: BinlogCoordinates) -> int:
    """The size of the binlog from ``start`` to ``end``, in bytes; negative if ``end`` is before ``start``."""
    if end < start:
        return -bytes_between(files, end, start)
    complete_files = sum(file.size_bytes for file in files if start.number <= file.number < end.number)
    return complete_files + end.position - start.position


@dataclass(frozen=True)
class Window:
    """The range ``[start, head)`` of one source's binlog. Both ends are commit boundaries.

    ``number`` counts the windows of a pipeline from 1. ``frozen_at_ms`` is the time at which ``head`` was read. It is
    part of the window, so that a retry creates the same messages.
    """

    pipeline: str
    number: int
    server_uuid: str
    start: BinlogCoordinates
    head: BinlogCoordinates
    start_gtids: str
    head_gtids: str
    frozen_at_ms: int
    plan_seconds: float = 0.0
    """The duration of freezing, in seconds. Only the first window of a run has it."""
    failover: Failover | None = None
    """Set when ``start`` was looked up by GTID set, because the checkpoint is of another server."""
    newest: FileIdentity | None = None
    """The identity, at the time of freezing, of the file of ``head`` or of a later file.

    If it is unchanged, the files before it are unchanged, too. None in windows of archived files."""

    @property
    def after(self) -> int:
        """The number of the window or seek before this window. A failover skips the numbers of begun windows."""
        return self.number - 1 if self.failover is None else self.failover.window

    @property
    def is_empty(self) -> bool:
        """Whether nothing is new: the checkpoint is at the head."""
        return self.start == self.head

    def to_json(self) -> dict[str, Any]:
        """Plain values for an XCom, an argument or a manifest; `from_json` reads them back."""
        values: dict[str, Any] = {
            "pipeline": self.pipeline,
            "number": self.number,
            "server_uuid": self.server_uuid,
            "start": str(self.start),
            "head": str(self.head),
            "start_gtids": self.start_gtids,
            "head_gtids": self.head_gtids,
            "frozen_at_ms": self.frozen_at_ms,
            "plan_seconds": self.plan_seconds,
        }
        for name, optional in (("failover", self.failover), ("newest", self.newest)):
            if optional:
                values[name] = optional.to_json()
        return values

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Window:
        """Read `to_json`."""
        return cls(
            pipeline=str(values["pipeline"]),
            number=int(values["number"]),
            server_uuid=str(values["server_uuid"]),
            start=BinlogCoordinates.parse(str(values["start"])),
            head=BinlogCoordinates.parse(str(values["head"])),
            start_gtids=str(values["start_gtids"]),
            head_gtids=str(values["head_gtids"]),
            frozen_at_ms=int(values["frozen_at_ms"]),
            plan_seconds=float(values["plan_seconds"]),
            failover=Failover(**values["failover"]) if values.get("failover") else None,
            newest=FileIdentity(**values["newest"]) if values.get("newest") else None,
        )


ANONYMOUS = "ANONYMOUS"
"""MySQL's name for the missing GTID of a transaction (gtid_mode=OFF)."""


@dataclass(frozen=True)
class Slice:
    """The range ``[start, end)`` of one binlog file, which one Spark task decodes.

    A slice begins at a commit boundary, or, inside a huge transaction, at a statement boundary. Inside a transaction,
    ``gtid`` is the transaction's GTID or ANONYMOUS, else ''. ``number`` counts the slices of a window from 0 in binlog
    order.
    """

    number: int
    file: str
    start: int
    end: int
    gtid: str = ""
    commit_micros: int = 0
    """With ``gtid``: commit time of that transaction on the original server, in microseconds since 1970; 0 if not
    known."""
    thread: int = 0
    """With ``gtid``: connection id of that transaction; 0 if not known."""

    def __post_init__(self) -> None:
        check_file_name(self.file)

    @property
    def size_bytes(self) -> int:
        """Bytes of binlog in the slice."""
        return self.end - self.start


def file_slices(window: Window, files: Sequence[BinlogFile]) -> Iterator[Slice]:
    """Yield a slice for each binlog file of the window, with the bytes of the file that are in the window.

    ``files`` are the server's files, in order. Raises BinlogGoneError if ``files`` misses a file of the window, because
    no file of a window may be skipped.
    """

    def gone(number: int, have: str) -> str:
        return (
            f"binlog number {number} of window {window.start} to {window.head} is not on the server, which "
            f"has {have}: it was purged after the window was frozen. Publish archived files with a backfill, if "
            "there are any, then seek to their end; and raise binlog_expire_logs_seconds."
        )

    yield from slices_between(window.start, window.head, files, gone)


def slices_between(
    start: BinlogCoordinates, end: BinlogCoordinates, files: Sequence[BinlogFile], gone: Callable[[int, str], str]
) -> Iterator[Slice]:
    """Yield a slice for each binlog file of ``[start, end)``, with the bytes of the file that are in the range.

    ``files`` are the existing files, in order. If a file of the range is missing, raises BinlogGoneError with the text
    of ``gone``. The arguments of ``gone`` are the number of the missing file and a text that lists the existing files.
    """
    by_number = {file.number: file for file in files}
    slices = 0
    for number in range(start.number, end.number + 1):
        file = by_number.get(number)
        begin = max(start.position if number == start.number else FIRST_POSITION, FIRST_POSITION)
        if file is None and number == end.number and end.position <= begin:
            continue
        if file is None:
            raise BinlogGoneError(gone(number, f"{files[0].name} to {files[-1].name}" if files else "none"))
        stop = end.position if number == end.number else file.size_bytes
        if begin < stop:
            yield Slice(slices, file.name, begin, stop)
            slices += 1
