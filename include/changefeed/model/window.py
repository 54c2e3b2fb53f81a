"""The part of a binlog that is published as one, the slices that it is decoded in, and what a failover says of it.

Coordinates of two servers have nothing in common, so after a failover what was published is known by transaction:

- a transaction in the checkpoint's GTID set was published, wherever it stands in the new binlog;
- an unfinished window of the old server gave each topic-partition the messages up to some transaction. Those before it
  in the old server's binlog (`BinlogOrder`) were given in full, and of the last of them as many messages as its
  progress counts (`Mark`).
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
    """That a window's start was looked up by GTID set on another server than its checkpoint's.

    ``window`` is the checkpoint's number and ``published`` its GTID set; ``from_uuid`` the old server, and ``at`` the
    checkpoint's coordinates there.
    """

    from_uuid: str
    window: int
    published: str
    at: str

    def to_json(self) -> dict[str, Any]:
        """Plain values, part of the window's."""
        return asdict(self)


@dataclass(frozen=True)
class Mark:
    """How far unfinished window number ``window`` of the old server gave a topic-partition: ``given`` messages, the
    last ``messages`` of them of transaction ``gtid``."""

    topic: str
    partition: int
    window: int
    gtid: str
    messages: int
    given: int


@dataclass(frozen=True)
class BinlogFile:
    """A binlog file as SHOW BINARY LOGS lists it, or as it stands in an archive."""

    name: str
    size_bytes: int

    def __post_init__(self) -> None:
        check_file_name(self.name)

    @property
    def number(self) -> int:
        """The number at the end of the name, by which files are ordered; raises SettingsError for a name without."""
        return BinlogCoordinates(self.name, 0).number


@dataclass(frozen=True)
class Window:
    """Half-open ``[start, head)`` of one source's binlog; both ends are commit boundaries.

    ``number`` counts a pipeline's windows from 1. ``frozen_at_ms`` is when ``head`` was read; it is part of the
    window, so that a retry makes the same messages.
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
    """Seconds that freezing it took; where a run has several windows, they stand in the first."""
    failover: Failover | None = None
    """Set when ``start`` was looked up by GTID set, because the checkpoint is another server's."""
    newest: FileIdentity | None = None
    """The file of ``head``, or a later one, as it was when the window was frozen: where it still is that, so are the
    files before it. None in windows of archived files."""

    @property
    def after(self) -> int:
        """The number of the window or seek that it follows; a failover leaves out those of windows that were begun."""
        return self.number - 1 if self.failover is None else self.failover.window

    @property
    def is_empty(self) -> bool:
        """Whether nothing is new: the checkpoint stands at the head."""
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
        """Read what `to_json` gave."""
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
"""What MySQL calls the GTID of a transaction that has none (gtid_mode=OFF)."""


@dataclass(frozen=True)
class Slice:
    """``[start, end)`` of one binlog file: what one Spark task decodes.

    Begins at a commit boundary, or, inside a huge transaction, at a statement boundary; then ``gtid`` is that
    of the transaction it begins in, or ANONYMOUS, else ''. Slices of a window are numbered from 0 in binlog order.
    """

    number: int
    file: str
    start: int
    end: int
    gtid: str = ""
    commit_micros: int = 0
    """With ``gtid``: when that transaction was committed where it was made, in microseconds since 1970; 0 where nothing
    says it."""
    thread: int = 0
    """With ``gtid``: the connection that made that transaction; 0 where nothing says it."""

    def __post_init__(self) -> None:
        check_file_name(self.file)

    @property
    def size_bytes(self) -> int:
        """Bytes of binlog in the slice."""
        return self.end - self.start


def whole_file_slices(window: Window, files: Sequence[BinlogFile]) -> Iterator[Slice]:
    """A slice for each binlog file between the window's ends, as large as the window has of it.

    ``files`` is what the server has, in order. Raises BinlogGoneError when a file of the window is missing
    from it: nothing between the ends may be passed over.
    """

    def gone(number: int, have: str) -> str:
        return (
            f"binlog number {number} of window {window.start} to {window.head} is not on the server, which "
            f"has {have}: it was purged after the window was frozen. Publish archived files with a backfill, if "
            "there are any, then seek behind them; and raise binlog_expire_logs_seconds."
        )

    yield from slices_between(window.start, window.head, files, gone)


def slices_between(
    start: BinlogCoordinates, end: BinlogCoordinates, files: Sequence[BinlogFile], gone: Callable[[int, str], str]
) -> Iterator[Slice]:
    """A slice for each binlog file of ``[start, end)``, as large as the range has of it.

    ``files`` are those that are there, in order. Raises BinlogGoneError, with what ``gone`` says of the number and of
    those that are there, when one with bytes of the range is missing.
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
