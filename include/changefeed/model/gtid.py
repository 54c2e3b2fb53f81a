"""GTID sets of MySQL, including tags, and GTID positions of MariaDB.

Sources: https://dev.mysql.com/doc/refman/9.7/en/replication-gtids-concepts.html,
https://mariadb.com/kb/en/gtid/
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from changefeed.errors import SettingsError

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")
_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}\Z")
_INTERVAL = re.compile(r"([0-9]{1,20})(?:-([0-9]{1,20}))?\Z")
_MARIADB = re.compile(r"([0-9]{1,10})-([0-9]{1,10})-([0-9]{1,20})\Z")

Interval = tuple[int, int]
"""First and last transaction number, both included."""


@dataclass(frozen=True)
class GtidSet:
    """A set of MySQL GTIDs, or a MariaDB GTID position. The text of an empty set is empty.

    - MySQL: ``intervals`` has the sorted and merged intervals of each "uuid" or "uuid:tag".
    - MariaDB: only the last GTID of each domain counts. ``intervals`` has one interval for each "domain", from 1 to the
      sequence number. ``mariadb_servers`` has the id of the server that wrote it.
    """

    intervals: tuple[tuple[str, tuple[Interval, ...]], ...] = ()
    mariadb_servers: tuple[tuple[str, int], ...] = ()

    @classmethod
    def parse(cls, text: str) -> GtidSet:
        """The set from a ``gtid_executed``, a ``gtid_binlog_pos`` or one GTID; raises SettingsError for other text."""
        by_source: dict[str, list[Interval]] = {}
        servers: dict[str, int] = {}
        for part in re.split(r"[,\s]+", text.strip()):
            if mariadb := _MARIADB.match(part):
                domain, server, number = mariadb.groups()
                by_source.setdefault(domain, []).append((1, int(number)))
                servers[domain] = int(server)
            elif part:
                _parse_mysql(part.lower(), text, by_source)
        return cls._of(by_source, servers)

    @classmethod
    def _of(cls, by_source: dict[str, list[Interval]], servers: dict[str, int]) -> GtidSet:
        sources = tuple(
            (source, merge_intervals(intervals)) for source, intervals in sorted(by_source.items()) if intervals
        )
        return cls(sources, tuple(sorted(servers.items())))

    def union(self, *others: GtidSet) -> GtidSet:
        """The GTIDs of this set and of ``others``."""
        by_source: dict[str, list[Interval]] = {}
        servers: dict[str, int] = {}
        for gtids in (self, *others):
            known = dict(gtids.mariadb_servers)
            for source, intervals in gtids.intervals:
                if source in known and intervals[-1][1] >= max(
                    (last for _, last in by_source.get(source, [])), default=0
                ):
                    servers[source] = known[source]
                by_source.setdefault(source, []).extend(intervals)
        return GtidSet._of(by_source, servers)

    def move_past(self, *later: GtidSet) -> GtidSet:
        """The position after the transactions ``later``, which the server logged in this order after this position.

        For MySQL the result is the union. For MariaDB the last number of each domain counts, not the highest, because
        numbers of a domain may fall (gtid_strict_mode=OFF).
        """
        by_source, servers = dict(self.intervals), dict(self.mariadb_servers)
        for gtids in later:
            if gtids and not gtids.mariadb_servers:
                return self.union(*later)
            by_source.update(gtids.intervals)
            servers.update(gtids.mariadb_servers)
        return GtidSet(tuple(sorted(by_source.items())), tuple(sorted(servers.items())))

    def subtract(self, other: GtidSet) -> GtidSet:
        """The GTIDs of this set that are not in ``other``."""
        removed = dict(other.intervals)
        by_source = {source: _without(intervals, removed.get(source, ())) for source, intervals in self.intervals}
        return GtidSet._of(
            by_source, {domain: server for domain, server in self.mariadb_servers if by_source.get(domain)}
        )

    def contains(self, other: GtidSet) -> bool:
        """Whether each GTID of ``other`` is in this set."""
        return not other.subtract(self)

    @property
    def mariadb_gtids(self) -> list[str]:
        """The last GTID of each domain of a MariaDB position, with the server id; [] for a MySQL set.

        The other methods of this class compare only the numbers of MariaDB's GTIDs. To check that a server has a
        transaction, use `DomainPositions`.
        """
        servers = dict(self.mariadb_servers)
        return [f"{source}-{servers[source]}-{runs[-1][1]}" for source, runs in self.intervals if source in servers]

    def __bool__(self) -> bool:
        return bool(self.intervals)

    def __str__(self) -> str:
        servers = dict(self.mariadb_servers)
        text, last_uuid = "", ""
        for source, intervals in self.intervals:
            uuid, _, tag = source.partition(":")
            if source in servers:
                text += f",{source}-{servers[source]}-{intervals[-1][1]}"
            else:
                spans = (str(first) if first == last else f"{first}-{last}" for first, last in intervals)
                text += ":".join((f":{tag}" if uuid == last_uuid else f",{source}", *spans))
            last_uuid = uuid
        return text.removeprefix(",")


def _parse_mysql(part: str, gtid_set: str, by_source: dict[str, list[Interval]]) -> None:
    uuid, *items = part.split(":")
    if not _UUID.match(uuid) or not items:
        raise SettingsError(
            f"{part!r} in {gtid_set[:200]!r} is no GTID: expected UUID:N-M, UUID:TAG:N or DOMAIN-SERVER-N"
        )
    source = uuid
    for item in items:
        if interval := _INTERVAL.match(item):
            first = int(interval[1])
            last = int(interval[2] or first)
            if not 0 < first <= last:
                raise SettingsError(f"{item!r} in {gtid_set[:200]!r} is no interval: expected N-M with 0 < N <= M")
            by_source.setdefault(source, []).append((first, last))
        elif _TAG.match(item):
            source = f"{uuid}:{item}"
        else:
            raise SettingsError(f"{item!r} in {gtid_set[:200]!r} is neither an interval of transactions nor a tag")
    if not _INTERVAL.match(items[-1]):
        raise SettingsError(
            f"{part!r} in {gtid_set[:200]!r} ends in a tag: expected its transactions, as in UUID:TAG:N-M"
        )


def merge_intervals(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """The same numbers in merged intervals, in order."""
    joined: list[Interval] = []
    for first, last in sorted(intervals):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def _without(intervals: Iterable[Interval], removed: Sequence[Interval]) -> list[Interval]:
    """The numbers of ``intervals`` that are not in ``removed``, in one pass; both are sorted by `merge_intervals`."""
    left: list[Interval] = []
    at = 0
    for first, last in intervals:
        while at < len(removed) and removed[at][1] < first:
            at += 1
        number = at
        while number < len(removed) and removed[number][0] <= last:
            if first < removed[number][0]:
                left.append((first, removed[number][0] - 1))
            first = removed[number][1] + 1
            number += 1
        if first <= last:
            left.append((first, last))
        at = max(at, number - 1)
    return left
