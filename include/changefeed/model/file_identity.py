"""The identity of a binlog file: distinguishes files of one name, on one server or on several."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from changefeed.errors import BinlogGoneError
from changefeed.model.iso_time import utc_text


@dataclass(frozen=True)
class FileIdentity:
    """The identity of a binlog file, from its FORMAT_DESCRIPTION event, which a server sends first at any position.

    ``begun_seconds`` is the Unix time at which the server began the file. ``server_id`` is the id of that server. After
    RESET BINARY LOGS, or after a restore to an older point, a file of the same name has another begin time, because a
    server begins a new file at each start.
    """

    name: str
    begun_seconds: int
    server_id: int

    def check(self, found: FileIdentity) -> None:
        """Raises BinlogGoneError unless ``found`` is this file."""
        if found != self:
            raise BinlogGoneError(
                f"expected binlog {self}, found {found}: this is not the binlog that the window was frozen in. It "
                "was reset (RESET BINARY LOGS AND GTIDS) or restored to an older point, or the connection leads to "
                "another server. Nothing of that file was published. Run again to have the position looked up anew, "
                "or seek the pipeline to where it should resume."
            )

    def to_json(self) -> dict[str, Any]:
        """Plain values, for `Window.to_json`."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.name!r} begun at {utc_text(self.begun_seconds)} by server_id {self.server_id}"
