"""What a topic-partition has already been given: the last message, and the accounts of its window."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from changefeed.coordinates import BinlogCoordinates
from changefeed.errors import CheckpointError

TopicPartition = tuple[str, int]


@dataclass(frozen=True)
class Progress:
    """The last message given to a topic-partition, by its binlog coordinates.

    ``source`` is the UUID of the server whose coordinates these are. ``messages``, ``value_bytes`` and
    ``dead_letters`` count what window number ``window`` has given so far, over all attempts; ``first_offset`` and
    ``last_offset`` are Kafka's, of the same messages, or None while there are none.
    """

    file: str
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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Progress:
        known = {name: value for name, value in values.items() if name in cls.__dataclass_fields__}
        return cls(**known)

    def begin_of_rest(self, file: str, positions: memoryview, sequences: memoryview) -> int:
        """Index of the first message after this one, in arrays of positions and sequences of ``file``.

        Raises CheckpointError for files of another base name: they have no order.
        """
        try:
            ours, theirs = BinlogCoordinates(self.file, 0), BinlogCoordinates(file, 0)
            if ours != theirs:
                return 0 if ours < theirs else len(positions)
        except ValueError as error:
            raise CheckpointError(
                f"the commit log says that messages up to {self.file}:{self.position} were published, and the window "
                f"has {file!r}: the binlog's base name changed, so what is new cannot be told. Seek the pipeline, "
                "which forgets the old progress."
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
