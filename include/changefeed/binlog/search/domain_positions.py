"""Whether the very transactions of a MariaDB position stand in a binlog.

A position names the last transaction of each replication domain, DOMAIN-SERVER-NUMBER. Numbers alone prove nothing: a
follower that never got 0-1-11 and became the source goes on with 0-2-9, 0-2-10 and so on, past 11. So each transaction
is looked for as it is, its server included, as a MariaDB source does for a replica that connects with a position.

Source: https://mariadb.com/kb/en/gtid/#gtid_strict_mode
"""

from __future__ import annotations

from collections.abc import Iterable

from changefeed.gtid import GtidSet


class DomainPositions:
    """Takes a binlog's GTIDs in its order, and knows which of ``wanted`` stand in it.

    ``begin`` is the position at which reading begins.
    """

    def __init__(self, wanted: Iterable[str], begin: GtidSet) -> None:
        self._wanted: dict[int, set[tuple[int, int]]] = {}
        for gtid in wanted:
            domain, server, number = map(int, gtid.split("-"))
            self._wanted.setdefault(domain, set()).add((server, number))
        self._last: dict[int, int] = {}
        self._disorder = ""
        for gtid in begin.mariadb_gtids:
            self.see(*map(int, gtid.split("-")))

    def see(self, domain: int, server: int, number: int) -> None:
        """The next transaction's GTID."""
        if domain not in self._wanted:
            return
        if number <= self._last.get(domain, 0):
            self._disorder = self._disorder or f"{domain}-{server}-{number}"
        self._last[domain] = number
        self._wanted[domain].discard((server, number))

    @property
    def complete(self) -> bool:
        """Whether all of them were seen."""
        return not any(self._wanted.values())

    def fault(self, *, at_end: bool = False) -> str:
        """What shows that the binlog is not one behind ``wanted``, as the end of a sentence, or ''.

        A transaction is not in its place when its domain has come past its number; ``at_end`` of the binlog is known
        whether it is there at all. Where numbers of a domain do not rise, two servers wrote to it: then a transaction
        does not tell what stands before it.
        """
        lost = sorted(
            f"{domain}-{server}-{number}"
            for domain, wanted in self._wanted.items()
            for server, number in wanted
            if at_end or number <= self._last.get(domain, 0)
        )
        if lost:
            return f"lacks transactions {', '.join(lost)}"
        if self._disorder:
            return (
                f"has transaction {self._disorder} behind a higher number of its domain, or the same: the server "
                "logged a transaction of its own while it was a replica, with gtid_strict_mode=OFF (ANALYZE TABLE is "
                "enough), so GTIDs do not tell what stands before a position"
            )
        return ""
