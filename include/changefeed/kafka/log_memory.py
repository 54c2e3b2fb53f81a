"""What a process knows of a log, so that it does not read all of the log each time.

A continuous run reads the same commit log several times a window. In a process that keeps its clients (`kept_clients`),
readings begin at the last record that it knows, if that is still there. If it is not, because the topic was created
again, or compaction has removed the record, all of the log is read, as without a memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.partition_reader import KafkaRecord, PartitionReader, Start, partition_reader
from changefeed.kept_clients import boot_seconds, keeps_clients, kept_client

State = TypeVar("State")

KNOWN_SECONDS = 300.0
"""After this time without a reading all of the log is read: Kafka may have removed tombstones that were not read."""
_MOST_MEMORIES = 16


class _LogReader:
    """A reader of a log that can be kept."""

    def __init__(self, connection: KafkaConnection, topic: str, purpose: str, start: Start, *, committed: bool) -> None:
        self._open = ExitStack()
        self.reader = self._open.enter_context(
            partition_reader(connection, [(topic, 0)], purpose, start=start, committed=committed, of_a_log=True)
        )

    def is_well(self) -> bool:
        return self.reader.is_well()

    def close(self) -> None:
        self._open.close()


class LogChangedError(Exception):
    """The last record that is known is not in the log any more; `LogMemory.read` then reads all of it."""


@dataclass
class LogMemory(Generic[State]):
    """The ``state`` of a log's records up to ``last``; ``create`` makes the state of an empty log."""

    create: Callable[[], State]
    state: State = field(init=False)
    last: KafkaRecord | None = None
    _read_at: float = 0.0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.state = self.create()

    @property
    def start(self) -> Start:
        """Where the next reading of the log begins."""
        return "first" if self.last is None else {(self.last.topic, self.last.partition): self.last.offset}

    def read(self, read: Callable[[LogMemory[State]], None]) -> None:
        """Call ``read``, which reads the log from `start`, passes the records through `after_last`, and changes the
        state. After any error nothing is known."""
        with self._lock:
            if boot_seconds() - self._read_at > KNOWN_SECONDS:
                self.forget()
            try:
                self._read_again_if_changed(read)
            except BaseException:
                self.forget()
                raise
            self._read_at = boot_seconds()

    def _read_again_if_changed(self, read: Callable[[LogMemory[State]], None]) -> None:
        try:
            read(self)
        except LogChangedError:
            self.forget()
            read(self)

    @contextmanager
    def reader(
        self, connection: KafkaConnection, topic: str, purpose: str, *, committed: bool = True
    ) -> Iterator[PartitionReader]:
        """A reader of the log from `start` on, as of `partition_reader`; for use in the function that `read` calls."""
        opened = False

        def open_reader() -> _LogReader:
            nonlocal opened
            opened = True
            return _LogReader(connection, topic, purpose, self.start, committed=committed)

        with kept_client(connection, (topic, purpose), open_reader) as kept:
            if not opened:
                kept.reader.go_to(0 if self.last is None else self.last.offset)
            yield kept.reader

    def after_last(self, records: Iterable[KafkaRecord]) -> Iterator[KafkaRecord]:
        """The ``records`` from `start` on that are not known yet. Raises LogChangedError unless the last known record
        is the first of them."""
        found = iter(records)
        if self.last is not None and next(found, None) != self.last:
            raise LogChangedError
        yield from self.further(found)

    def further(self, records: Iterable[KafkaRecord]) -> Iterator[KafkaRecord]:
        """The ``records`` that follow the last known one."""
        for record in records:
            yield record
            self.last = record

    def forget(self) -> None:
        """Begin with an empty state."""
        self.state, self.last = self.create(), None


_memories: list[tuple[KafkaConnection, str, str, LogMemory[Any]]] = []
_memories_lock = threading.Lock()


def log_memory(connection: KafkaConnection, topic: str, purpose: str, create: Callable[[], State]) -> LogMemory[State]:
    """What this process knows of ``topic`` for ``purpose``; nothing unless it keeps clients."""
    if not keeps_clients():
        return LogMemory(create)
    with _memories_lock:
        for index, (known, name, what, _) in enumerate(_memories):
            if (name, what) == (topic, purpose) and known == connection:
                _memories.append(_memories.pop(index))  # those that are used stay
                break
        else:
            _memories.append((connection, topic, purpose, LogMemory(create)))
            del _memories[:-_MOST_MEMORIES]
        return _memories[-1][3]
