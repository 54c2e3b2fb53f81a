"""The accounts of one topic-partition while a task publishes to it."""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

from changefeed.errors import AccountingError
from changefeed.kafka.progress import Progress
from changefeed.kafka.topics import TopicLimits
from changefeed.kafka.transactions import Delivery
from changefeed.model.origin import precedes
from changefeed.records.batch import Batch


@dataclass(frozen=True)
class Receipt:
    """What one call of `publish` did for a topic-partition.

    ``messages`` and ``value_bytes`` were published by it, dead letters not among them; ``already_there`` messages
    were dropped, as the commit log had them. Offsets are of the first and last message published, None where
    nothing was. ``seconds`` is wall time spent on its batches. ``window`` has the totals over all attempts at the
    window.
    """

    topic: str
    partition: int
    messages: int
    value_bytes: int
    already_there: int
    dead_letters: int
    transactions: int
    first_offset: int | None
    last_offset: int | None
    seconds: float
    window: Progress | None


class Account:
    """Counts, offsets and positions of what goes to one topic-partition; ``before`` is the commit log's progress."""

    def __init__(
        self, topic: str, partition: int, limits: TopicLimits, window: int, source: str, before: Progress | None
    ) -> None:
        self.topic, self.partition = topic, partition
        self._limits, self._window, self._source = limits, window, source
        self._before = self._of_window(before)
        self._compared = False
        self._origin, self._position, self._sequence = "", -1, -1
        self.gtid = self._before.gtid if self._before else ""
        self.gtid_messages = self._before.gtid_messages if self._before else 0
        self.messages = self.value_bytes = self.already_there = self.dead_letters = self.transactions = 0
        self._digests = (0, 0)
        self.first_offset: int | None = None
        self.last_offset: int | None = None
        self.seconds = 0.0
        self._sent: list[tuple[Delivery, int]] = []

    def _of_window(self, before: Progress | None) -> Progress | None:
        """What earlier attempts gave of this window; what is of earlier windows is complete, or was sought over."""
        if before is None or before.window < self._window:
            return None
        if before.source == self._source and before.window == self._window:
            return before
        raise AccountingError(
            f"{self._window} is the window to publish to partition {self.partition} of {self.topic!r} from server "
            f"{self._source!r}, and the commit log says that it was given window {before.window} of server "
            f"{before.source!r} (up to {before.where}). Nothing was published; the next run plans again."
        )

    def __str__(self) -> str:
        return f"partition {self.partition} of {self.topic!r} at {self._where}"

    @property
    def _where(self) -> str:
        return f"{self._origin}:{self._position}"

    def pass_given(self, batch: Batch) -> int:
        """Note the messages of ``batch`` that the commit log has already, its first ones; returns how many they are."""
        if self._before is None:
            return 0
        there = self._before.begin_of_rest(batch.origin, batch.positions, batch.sequences)
        self.already_there += there
        self.pass_by(batch.positions[:there], batch.sequences[:there])
        return there

    def pass_by(self, positions: memoryview, sequences: memoryview) -> None:
        """The next messages of the window, whether they are there already or are published now, by where they stand."""
        self._digests = crc32(positions, self._digests[0]), crc32(sequences, self._digests[1])

    @property
    def _digest(self) -> str:
        return "{:08x}{:08x}".format(*self._digests)

    def compare(self) -> None:
        """Called when no further message can be among those that were given before: are they those that were decoded?

        Raises AccountingError where they are not. Messages before the last one given must not be taken for given only
        because they stand before it: they may be others than those that were decoded then.
        """
        if self._before is None or self._compared:
            return
        self._compared = True
        if (self.already_there, self._digest) != (self._before.given, self._before.digest):
            others = "others " if self.already_there == self._before.given else ""
            raise AccountingError(
                f"partition {self.partition} of {self.topic!r} was given {self._before.given} messages of window "
                f"{self._window} up to {self._before.where}, by the commit log, and up to there {self.already_there} "
                f"{others}were decoded now: what decides which messages go there changed since (columns of a key, "
                "filters, secrets and functions of transforms, the version of changefeed). Nothing more was published "
                "to it. Undo that change and run again; or seek the pipeline to where this window began: its messages "
                "are published again."
            )

    def move_over(self, batch: Batch) -> None:
        """The next messages are those of ``batch``. Raises AccountingError when they are not after those before."""
        position, sequence = batch.positions[0], batch.sequences[0]
        if self._origin and batch.origin != self._origin:
            forward = self._is_before(batch.origin)
        else:
            forward = (self._position, self._sequence) < (position, sequence)
        if not forward:
            raise AccountingError(
                f"batches for partition {self.partition} of {self.topic!r} are out of order: {batch.origin}:{position} "
                f"after {self._where}. Nothing of the open transaction is visible. This is a fault of changefeed: "
                "report it."
            )
        self._origin, self._position, self._sequence = batch.origin, batch.positions[-1], batch.sequences[-1]
        self.pass_by(batch.positions, batch.sequences)
        goes_on = batch.gtid_messages == batch.messages and batch.gtid.decode("ascii", "replace") == self.gtid
        self.gtid_messages = batch.gtid_messages + (self.gtid_messages if goes_on else 0)
        self.gtid = batch.gtid.decode("ascii", "replace")

    def _is_before(self, origin: str) -> bool:
        try:
            return precedes(self._origin, origin)
        except ValueError:  # the two have no order
            return False

    def count(self, batch: Batch, delivery: Delivery, *, are_letters: bool = False) -> None:
        """``batch`` was sent; what becomes of it ``delivery`` says. It ``are_letters``, made where it was decoded."""
        if are_letters:
            self.dead_letters += batch.messages
        else:
            self.messages += batch.messages
            self.value_bytes += batch.value_bytes
        self._sent.append((delivery, batch.messages))

    def take_deliveries(self) -> None:
        """Take the offsets of all that was sent. Raises what a batch was refused with."""
        for delivery, messages in self._sent:
            if delivery.error is not None:
                raise delivery.error
            if delivery.offset is not None:
                if self.first_offset is None:
                    self.first_offset = delivery.offset
                self.last_offset = delivery.offset + messages - 1
        self._sent = []

    def progress(self) -> Progress:
        """The record for the commit log, with the window's totals over all attempts."""
        earlier = self._before
        return Progress(
            origin=self._origin,
            position=self._position,
            sequence=self._sequence,
            window=self._window,
            source=self._source,
            gtid=self.gtid,
            gtid_messages=self.gtid_messages,
            messages=self.messages + (earlier.messages if earlier else 0),
            value_bytes=self.value_bytes + (earlier.value_bytes if earlier else 0),
            dead_letters=self.dead_letters + (earlier.dead_letters if earlier else 0),
            first_offset=self.first_offset if earlier is None or earlier.first_offset is None else earlier.first_offset,
            last_offset=earlier.last_offset if earlier and self.last_offset is None else self.last_offset,
            digest=self._digest,
            partitions=self._limits.partitions,
            topic_id=self._limits.topic_id,
        )

    def receipt(self) -> Receipt:
        """What was done, for the driver."""
        return Receipt(
            topic=self.topic,
            partition=self.partition,
            messages=self.messages,
            value_bytes=self.value_bytes,
            already_there=self.already_there,
            dead_letters=self.dead_letters,
            transactions=self.transactions,
            first_offset=self.first_offset,
            last_offset=self.last_offset,
            seconds=self.seconds,
            window=self.progress() if self.messages or self.dead_letters else self._before,
        )
