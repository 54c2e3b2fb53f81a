"""System-versioned tables: a follower gets no rows of those that the pipeline captures no more, and refuses others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from changefeed.errors import FollowerError
from changefeed.mysql.follower_session import FollowerSession

_KIND = "SELECT table_type FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"


@dataclass
class LeftOut:
    """Looks at the tables of the follower of ``session``, each once until `forget`.

    ``captures`` says of a database and a table whether the pipeline captures it now.
    """

    session: FollowerSession
    captures: Callable[[str, str], bool]
    _known: dict[tuple[str, str], bool] = field(default_factory=dict)

    def has(self, database: str, table: str) -> bool:
        """Whether the table gets no rows. Raises as `FollowerSession` does."""
        return not self.captures(database, table) and self._is_versioned(database, table)

    def check(self, database: str, table: str) -> None:
        """Raises FollowerError for a table whose rows cannot be written."""
        if self._is_versioned(database, table):
            raise FollowerError(
                f"{database}.{table} is a system-versioned table: the server itself keeps the history of its rows, and "
                "what the source has cannot be written. Put it into `tables.exclude` of the pipeline: its rows that "
                "are in the topics already are then left out here, too."
            )

    def forget(self) -> None:
        """Tables may be others from now on."""
        self._known.clear()

    def _is_versioned(self, database: str, table: str) -> bool:
        if (database, table) not in self._known:
            self._known[database, table] = ("SYSTEM VERSIONED",) in self.session.rows(_KIND, database, table)
        return self._known[database, table]
