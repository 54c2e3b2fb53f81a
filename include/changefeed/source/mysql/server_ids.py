"""The server_id that each reader of a binlog names, so that no reader ends another.

A server drops the older of two dumps that name the same server_id. It leaves dumps alone that name no id (0, as
mysqlbinlog does), however many there are. So look-ups and backfills name no id, nor do a pipeline's windows, unless the
pipeline has a range of ids: then each task that reads has an id of its own, and the server's list of replicas shows who
reads.
"""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.errors import SettingsError

NO_SERVER_ID = 0
"""What a reader names that ends no other and that no other ends.

https://dev.mysql.com/doc/refman/9.7/en/mysqlbinlog.html#option_mysqlbinlog_connection-server-id
"""


@dataclass(frozen=True)
class ServerIds:
    """The server_ids of one pipeline's windows, of which one at a time is read; empty for a pipeline without.

    A task's id is that of its number among the tasks that read, which Spark counts from 0 in each stage: there are
    never more of them than `tasks` allows, so no two at once have the same. A task that is tried again has the id of
    its first attempt; when that attempt is still connected, the server drops it.
    """

    pipeline: str
    ids: range = range(0)

    def tasks(self, slices: int) -> int:
        """Into how many tasks a number of slices may go at most."""
        return min(slices, len(self.ids)) if self.ids else slices

    def of_task(self, task: int) -> int:
        """The id of a task; ``task`` is less than what `tasks` said."""
        return self.ids[task] if self.ids else NO_SERVER_ID

    def check(self, cores: int) -> None:
        """Raises SettingsError where there are fewer ids than tasks that Spark runs at once."""
        if self.ids and len(self.ids) < cores:
            first = self.ids[0]
            raise SettingsError(
                f"source.server_ids of pipeline {self.pipeline!r} is {self}, {len(self.ids)} ids, and Spark runs "
                f"{cores} tasks at once: each task that reads the binlog needs an id of its own, as the server ends "
                f"the older of two readers that share one. Write a range of at least {cores}, such as "
                f"{first}-{first + cores - 1}, or leave server_ids out: readers that name no id share the server "
                "without ending each other."
            )

    def check_disjoint(self, other: ServerIds) -> None:
        """Raises SettingsError where ``other``, another pipeline of the same source, has some of these ids."""
        if shared := range(max(self.ids.start, other.ids.start), min(self.ids.stop, other.ids.stop)):
            raise SettingsError(
                f"source.server_ids of pipeline {self.pipeline!r} is {self}, and that of pipeline {other.pipeline!r}, "
                f"which reads the same source, is {other}: they share {len(shared)} ids, and the server ends the older "
                "of two readers that share one. Give them ranges that do not overlap, or leave server_ids out."
            )

    def __str__(self) -> str:
        return f"{self.ids[0]}-{self.ids[-1]}" if self.ids else "none"
