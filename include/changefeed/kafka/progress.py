"""What a topic-partition has already been given: the last message, and the accounts of its window."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from changefeed.errors import CheckpointError
from changefeed.model.origin import is_chunk, precedes

TopicPartition = tuple[str, int]

_FILE, _CHUNK = "file", "chunk"
"""What the origin is called in the stored record."""


@dataclass(frozen=True)
class Progress:
    """The last message given to a topic-partition: where it came from, and what has been given of its window.

    ``origin`` is the binlog file or the chunk that it came from (see `origin`), ``position`` and ``sequence`` are its
    own in there. ``source`` is the UUID of the server that it came from. ``messages``, ``value_bytes`` and
    ``dead_letters`` count what window number ``window`` has given so far, over all attempts; ``first_offset`` and
    ``last_offset`` are Kafka's, of the same messages, or None while there are none.
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
    """How many messages of transaction ``gtid`` were given: where a window goes on after a failover."""
    digest: str = ""
    """Of where all messages given of the window stand, in their order."""
    partitions: int = 0
    """How many partitions the topic had for the window's keys."""
    topic_id: str = ""
    """Kafka's own id of the topic, which a topic that is made again does not share; '' where it is not known."""

    def to_json(self) -> dict[str, Any]:
        """What is stored. The origin's name says its kind, so that records of files are what they always were."""
        values = asdict(self)
        origin = values.pop("origin")
        return {_CHUNK if is_chunk(origin) else _FILE: origin, **values}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Progress:
        """What `to_json` made; fields of a newer version are left out."""
        known = {name: value for name, value in values.items() if name in cls.__dataclass_fields__}
        return cls(origin=values[_CHUNK] if _CHUNK in values else values[_FILE], **known)

    @property
    def given(self) -> int:
        """How many of the window's messages need not be given again."""
        return self.messages + self.dead_letters

    @property
    def where(self) -> str:
        """Origin and position, for people."""
        return f"{self.origin}:{self.position}"

    def begin_of_rest(self, origin: str, positions: memoryview, sequences: memoryview) -> int:
        """Index of the first message after this one, in arrays of positions and sequences of ``origin``.

        Raises CheckpointError for an origin that has no order with this one's.
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
