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
    """The result of one call of `publish` for a topic-partition.

    ``messages`` and ``value_bytes`` count what the call published, without dead letters. It skipped ``already_there``
    messages, because according to the commit log they are published. The offsets are of the first and last message that
    it published, None if it published none. ``seconds`` is the wall time spent on its batches. ``window`` has the
    totals over all attempts at the window.
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
    """Counts, offsets and positions of the messages to one topic-partition; ``before`` is the progress in the commit
    log."""

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
        """The progress ``before`` if it is of earlier attempts at this window; None if it is of an earlier window.

        Raises AccountingError if it is of a later window or of another server.
        """
        if before is None or before.window < self._window:
            return None
        if before.source == self._source and before.window == self._window:
            return before
        raise AccountingError(
            f"partition {self.partition} of {self.topic!r}: expected progress of window {self._window} of server "
            f"{self._source!r} in the commit log, found window {before.window} of server {before.source!r} (up to "
            f"{before.where}). Nothing was published; the next run plans again."
        )

    def __str__(self) -> str:
        return f"partition {self.partition} of {self.topic!r} at {self._where}"

    @property
    def _where(self) -> str:
        return f"{self._origin}:{self._position}"

    def skip_published(self, batch: Batch) -> int:
        """Skip the first messages of ``batch`` that are published already; return how many."""
        if self._before is None:
            return 0
        there = self._before.begin_of_rest(batch.origin, batch.positions, batch.sequences)
        self.already_there += there
        self.add_to_digest(batch.positions[:there], batch.sequences[:there])
        return there

    def add_to_digest(self, positions: memoryview, sequences: memoryview) -> None:
        """Add the positions of the window's next messages, published before or now, to the digest."""
        self._digests = crc32(positions, self._digests[0]), crc32(sequences, self._digests[1])

    @property
    def _digest(self) -> str:
        return "{:08x}{:08x}".format(*self._digests)

    def compare(self) -> None:
        """Compare the messages of earlier attempts with the decoded ones, once all of them have been skipped.

        Raises AccountingError if they differ. The position alone does not prove that a message was published: another
        attempt may have decoded other messages.
        """
        if self._before is None or self._compared:
            return
        self._compared = True
        if (self.already_there, self._digest) != (self._before.published, self._before.digest):
            others = "others " if self.already_there == self._before.published else ""
            raise AccountingError(
                f"partition {self.partition} of {self.topic!r}: expected the {self._before.published} messages of "
                f"window {self._window} up to {self._before.where} that the commit log has, found that "
                f"{self.already_there} {others}were decoded now. Something that decides which "
                "messages go to the partition has changed (columns of a key, filters, "
                "secrets and functions of transforms, the version of changefeed). Nothing "
                "more was published to it. Undo that change and run again; or seek the pipeline to the start of this "
                "window, which publishes its messages again."
            )

    def move_over(self, batch: Batch) -> None:
        """Move the position to the end of ``batch``. Raises AccountingError if it is not after the position."""
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
        self.add_to_digest(batch.positions, batch.sequences)
        goes_on = batch.gtid_messages == batch.messages and batch.gtid.decode("ascii", "replace") == self.gtid
        self.gtid_messages = batch.gtid_messages + (self.gtid_messages if goes_on else 0)
        self.gtid = batch.gtid.decode("ascii", "replace")

    def _is_before(self, origin: str) -> bool:
        try:
            return precedes(self._origin, origin)
        except ValueError:  # the two have no order
            return False

    def count(self, batch: Batch, delivery: Delivery, *, are_letters: bool = False) -> None:
        """Count ``batch``, sent with ``delivery``; with ``are_letters`` it has dead letters of the decoding task."""
        if are_letters:
            self.dead_letters += batch.messages
        else:
            self.messages += batch.messages
            self.value_bytes += batch.value_bytes
        self._sent.append((delivery, batch.messages))

    def take_deliveries(self) -> None:
        """Record the offsets of all sent batches. Raises the error of a refused batch."""
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
        """The receipt for the driver."""
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
