"""The topics that a decoder's messages go to, and the groups of their partitions."""

from __future__ import annotations


class Topics:
    """Numbers groups: all partitions of a topic in a row."""

    def __init__(self) -> None:
        self.groups: list[tuple[str, int]] = []
        self._known: dict[str, tuple[int, int]] = {}

    def group_of(self, topic: str, partitions: int) -> int:
        """The number of the topic's partition 0; the others follow it."""
        known = self._known.get(topic)
        if known is not None and known[1] >= partitions:
            return known[0]
        first = len(self.groups)
        self._known[topic] = (first, partitions)
        self.groups += ((topic, partition) for partition in range(partitions))
        return first
