"""Progress of a topic-partition: its last published message, and the totals of its window."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from changefeed.errors import CheckpointError
from changefeed.model.origin import is_chunk, precedes

TopicPartition = tuple[str, int]

_FILE, _CHUNK = "file", "chunk"
"""Names of the origin in the stored record."""


@dataclass(frozen=True)
class Progress:
    """The last message published to a topic-partition: its origin, and the totals of its window.

    ``origin`` is the binlog file or the chunk that the message came from (see `origin`); ``position`` and ``sequence``
    are the message's place in it. ``source`` is the UUID of the source server. ``messages``, ``value_bytes`` and
    ``dead_letters`` count the published messages of window number ``window``, over all attempts. ``first_offset`` and
    ``last_offset`` are the Kafka offsets of these messages, None if there are none.
    """

    origin: str
    position: int
    sequence: int
    window: int
    source: str = ""
    gtid: str = ""
    messages: int = 0
    value_bytes: int = 0
    dead_letters: int = 0
    first_offset: int | None = None
    last_offset: int | None = None
    gtid_messages: int = 0
    """How many messages of transaction ``gtid`` were published: a window resumes there after a failover."""
    digest: str = ""
    """Digest of the positions of all published messages of the window, in order."""
    partitions: int = 0
    """The number of partitions over which the window's keys are distributed."""
    topic_id: str = ""
    """Kafka's id of the topic, which changes if the topic is created again; '' if it is not known."""

    def to_json(self) -> dict[str, Any]:
        """The stored values. The field of the origin is named `file` or `chunk` after its kind, so that older stored
        records stay valid."""
        values = asdict(self)
        origin = values.pop("origin")
        return {_CHUNK if is_chunk(origin) else _FILE: origin, **values}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Progress:
        """The progress of stored values; fields of a newer version are ignored."""
        known = {name: value for name, value in values.items() if name in cls.__dataclass_fields__}
        return cls(origin=values[_CHUNK] if _CHUNK in values else values[_FILE], **known)

    @property
    def published(self) -> int:
        """How many messages of the window are published, dead letters included."""
        return self.messages + self.dead_letters

    @property
    def where(self) -> str:
        """Origin and position, for messages."""
        return f"{self.origin}:{self.position}"

    def begin_of_rest(self, origin: str, positions: memoryview, sequences: memoryview) -> int:
        """The index of the first message after the last published one, in arrays of positions and sequences of
        ``origin``.

        Raises CheckpointError if it is not known which of the two origins comes first.
        """
        try:
            if origin != self.origin:
                return 0 if precedes(self.origin, origin) else len(positions)
        except ValueError as error:
            raise CheckpointError(
                f"the commit log says that messages up to {self.where} were published, and now come those of "
                f"{origin!r}: {error}, so which of them are new is not known. The binlog's base name may have changed. "
                "Seek the pipeline, which forgets the old progress."
            ) from error
        low, high = 0, len(positions)
        last = (self.position, self.sequence)
        while low < high:
            middle = (low + high) // 2
            if (positions[middle], sequences[middle]) <= last:
                low = middle + 1
            else:
                high = middle
        return low
