"""The server_id of each reader of a binlog, chosen so that no reader ends another.

A server ends the older of two dumps with the same server_id. Any number of dumps may use no id (0, as mysqlbinlog
does). So look-ups, backfills and windows use no id. If the pipeline has a range of ids, each task that reads a window
has its own id, and the server's list of replicas shows these readers.
"""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.errors import SettingsError

NO_SERVER_ID = 0
"""The server_id of a reader that neither ends other readers nor is ended by them.

https://dev.mysql.com/doc/refman/9.7/en/mysqlbinlog.html#option_mysqlbinlog_connection-server-id
"""


@dataclass(frozen=True)
class ServerIds:
    """The server_ids of a pipeline, which reads one window at a time; empty for a pipeline without a range of ids.

    A task's id follows from its partition number, which Spark counts from 0 in each stage. A stage has at most `tasks`
    partitions, so no two tasks have the same id. A retry of a task has the id of the first attempt; if the first
    attempt is still connected, the server ends its dump.
    """

    pipeline: str
    ids: range = range(0)

    def tasks(self, slices: int) -> int:
        """The most tasks that may read ``slices`` slices."""
        return min(slices, len(self.ids)) if self.ids else slices

    def of_task(self, task: int) -> int:
        """The id of a task; ``task`` is less than `tasks`."""
        return self.ids[task] if self.ids else NO_SERVER_ID

    def check(self, cores: int) -> None:
        """Raises SettingsError if there are fewer ids than tasks that Spark runs at once."""
        if self.ids and len(self.ids) < cores:
            first = self.ids[0]
            raise SettingsError(
                f"source.server_ids of pipeline {self.pipeline!r} is {self}, {len(self.ids)} ids, and Spark runs "
                f"{cores} tasks at once: each task that reads the binlog needs an id of its own, as the server ends "
                f"the older of two readers that share one. Write a range of at least {cores}, such as "
                f"{first}-{first + cores - 1}, or omit server_ids: readers without an id share the server "
                "without ending each other."
            )

    def check_disjoint(self, other: ServerIds) -> None:
        """Raises SettingsError if ``other``, the ids of another pipeline of the same source, has some of these ids."""
        if shared := range(max(self.ids.start, other.ids.start), min(self.ids.stop, other.ids.stop)):
            raise SettingsError(
                f"source.server_ids of pipeline {self.pipeline!r} is {self}, and that of pipeline {other.pipeline!r}, "
                f"which reads the same source, is {other}: they share {len(shared)} ids, and the server ends the older "
                "of two readers that share one. Give them ranges that do not overlap, or omit server_ids."
            )

    def __str__(self) -> str:
        return f"{self.ids[0]}-{self.ids[-1]}" if self.ids else "none"
