"""What tells a binlog file from another one of the same name, on the same server or on another."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from changefeed.errors import BinlogGoneError


@dataclass(frozen=True)
class FileIdentity:
    """A binlog file as its FORMAT_DESCRIPTION event tells it, which a server sends first from whatever position.

    ``begun_seconds`` is the Unix time at which the file was begun, ``server_id`` the number of the server that wrote
    it. After RESET BINARY LOGS, and on a server that was restored to an older point, a file of the same name was begun
    at another time: a server begins a new file with each start.
    """

    name: str
    begun_seconds: int
    server_id: int

    def check(self, found: FileIdentity) -> None:
        """Raises BinlogGoneError unless ``found`` is this very file."""
        if found != self:
            raise BinlogGoneError(
                f"binlog {self} was wanted, found {found}: this is not the binlog that the window was frozen in. It "
                "was reset (RESET BINARY LOGS AND GTIDS) or restored to an older point, or the connection leads to "
                "another server. Nothing of that file was published. Run again to have the position looked up anew, "
                "or seek the pipeline to where it should resume."
            )

    def to_json(self) -> dict[str, Any]:
        """Plain values, part of the window's."""
        return asdict(self)

    def __str__(self) -> str:
        begun = datetime.fromtimestamp(self.begun_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return f"{self.name!r} begun at {begun} by server_id {self.server_id}"
