"""The accounts of one topic-partition while a task publishes to it."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import KafkaError, Message

from changefeed.errors import AccountingError
from changefeed.kafka.progress import Progress
from changefeed.origin import precedes


@dataclass(frozen=True)
class Receipt:
    """What one call of `publish` did for a topic-partition.

    ``messages`` and ``value_bytes`` were published by it, dead letters not among them; ``already_there`` messages
    were dropped, as the commit log had them. Offsets are of the first and last message published, None where
    nothing was. ``seconds`` is wall time spent on its blocks. ``window`` has the totals over all attempts at the
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

    def __init__(self, topic: str, partition: int, window: int, source: str, before: Progress | None) -> None:
        self.topic, self.partition = topic, partition
        self._window, self._source = window, source
        self._before = self._comparable(before)
        self._origin, self._position, self._sequence = "", -1, -1
        self.gtid = self._before.gtid if self._before else ""
        self.gtid_messages = self._before.gtid_messages if self._before else 0
        self.messages = self.value_bytes = self.already_there = self.dead_letters = self.transactions = 0
        self.first_offset: int | None = None
        self.last_offset: int | None = None
        self.seconds = 0.0
        self.refusal: KafkaError | None = None

    def _comparable(self, before: Progress | None) -> Progress | None:
        if before is None or before.source == self._source:
            return before
        if before.window >= self._window:
            raise AccountingError(
                f"window {self._window} of partition {self.partition} of {self.topic!r} was begun on server "
                f"{before.source!r} (up to {before.where}, GTID {before.gtid!r}) and cannot be ended "
                f"on server {self._source!r}: its coordinates mean something else there. Nothing was published. "
                f"Point the connection at server {before.source!r} again and run, or seek the pipeline to where it "
                "should resume."
            )
        return None  # the earlier window is complete: the checkpoint moved past it

    def __str__(self) -> str:
        return f"partition {self.partition} of {self.topic!r} at {self._where}"

    @property
    def _where(self) -> str:
        return f"{self._origin}:{self._position}"

    def begin_of_rest(self, origin: str, positions: memoryview, sequences: memoryview) -> int:
        """How many of a block's messages the commit log already has; they are its first messages."""
        return 0 if self._before is None else self._before.begin_of_rest(origin, positions, sequences)

    def move_over(self, origin: str, first: tuple[int, int], last: tuple[int, int]) -> None:
        """The next messages go from ``first`` to ``last``, (position, sequence) both.

        Raises AccountingError when the first is not after what was before.
        """
        position, sequence = first
        if self._origin and origin != self._origin:
            forward = self._is_before(origin)
        else:
            forward = (self._position, self._sequence) < (position, sequence)
        if not forward:
            raise AccountingError(
                f"blocks for partition {self.partition} of {self.topic!r} are out of order: {origin}:{position} after "
                f"{self._where}. Nothing of the open transaction is visible. This is a fault of changefeed: report it."
            )
        self._origin = origin
        self._position, self._sequence = last

    def _is_before(self, origin: str) -> bool:
        try:
            return precedes(self._origin, origin)
        except ValueError:  # the two have no order
            return False

    def count_transaction(self, gtid: str, messages: int, *, alone: bool) -> None:
        """The last ``messages`` are of transaction ``gtid``; ``alone`` where nothing else was queued with them."""
        self.gtid_messages = messages + (self.gtid_messages if alone and gtid == self.gtid else 0)
        self.gtid = gtid

    def count(self, messages: int, value_bytes: int) -> None:
        """Add what was queued."""
        self.messages += messages
        self.value_bytes += value_bytes

    def delivered(self, error: KafkaError | None, record: Message) -> None:
        """Delivery report of the first or last record of a block."""
        if error is not None:
            self.refusal = self.refusal or error
            return
        offset = record.offset()
        if offset is not None:
            if self.first_offset is None:
                self.first_offset = offset
            self.last_offset = offset

    def letter_delivered(self, error: KafkaError | None, _record: Message) -> None:
        """Delivery report of a record in the dead-letter topic."""
        if error is not None:
            self.refusal = self.refusal or error

    def progress(self) -> Progress:
        """The record for the commit log, with the window's totals over all attempts."""
        earlier = self._before if self._before is not None and self._before.window == self._window else None
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
