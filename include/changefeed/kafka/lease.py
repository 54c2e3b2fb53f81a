"""A lease: only one run of a pipeline works at a time; a second run stops before it publishes anything.

A run writes a claim to the commit log and repeats it every few seconds while it lives. Of two claims the first in the
log wins, so two runs that begin at the same time cannot both continue. The second run watches the claim of the first:

- If the claim is repeated, the first run is alive. The second run raises PipelineBusyError; it waits instead if it has
  a timeout for that, or if the first run's claim says that it is brief.
- If the claim is not repeated for ``seconds``, its run is dead, and the claim is ignored. The second run waits that
  long, because clocks of two machines are not compared. It waits less if the broker sets the timestamps (LogAppendTime,
  as in logs that changefeed creates) and they show that the time is over.

Safety does not depend on claims. A run that was suspended for longer than ``seconds`` looks dead. So the run that gets
the lease takes over the transactional id under which the holder writes the logs (`FencedWriter`). A suspended run that
continues can then write nothing more to the logs, and `fencing` stops its publishers. A holder reads the log, decides
and writes; if its write succeeds, nobody else wrote in between.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from changefeed.errors import ChangefeedError, PipelineBusyError
from changefeed.kafka.commit_log.owned_log import OwnedLog
from changefeed.kafka.commit_log.records import AttemptRecord, ClaimRecord, LogEntry, TakeoverRecord
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.fenced_writer import FencedWriter
from changefeed.kafka.log_keys import is_signed
from changefeed.kafka.log_memory import LogMemory, log_memory
from changefeed.kafka.log_retention import check_first_offsets
from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.kafka.record_writer import RecordWriter
from changefeed.kept_clients import boot_seconds
from changefeed.model.publish_settings import PublishSettings

_log = logging.getLogger(__name__)
_held: set[Lease] = set()
"""The leases that this process holds."""
_idle: set[Lease] = set()
"""Those of them that no window uses now; whoever removes one from the set may use it or give it back."""

BEATS = 5
"""How often a claim is repeated within the time after which a silent run counts as dead."""

BRIEF_SECONDS = 300.0
"""How long a run waits for a brief run, in seconds."""


@dataclass(frozen=True)
class Claim:
    """A run's claim: ``first`` is the offset of its first record, ``offset`` the offset of the latest; see
    `ClaimRecord`.

    ``at_ms`` is the time of the latest record by the broker's clock, None if the log has the times of its writers.
    """

    attempt: str
    first: int
    offset: int
    who: str
    brief: bool
    at_ms: int | None


@dataclass
class Claims:
    """The claims on an identity that were not returned, by attempt, the attempts whose claims were ``returned``, by
    themselves or by a run that took over, the largest number of ``tasks`` of an attempt, and `Lease.last_takeover`."""

    latest: dict[str, Claim] = field(default_factory=dict)
    returned: set[str] = field(default_factory=set)
    tasks: int = 1
    takeover: int = -1


class Lease:
    """The claim of one run on ``identity``; a context manager. ``attempt`` names the run, also to `fencing`.

    In its block, `log` writes the commit log, and `writer` other logs of the pipeline, under a transactional id that
    the next holder takes over. The transaction timeout is ``transaction_seconds`` at most, by default that of the
    publishers. ``earlier_tasks`` is the largest number of tasks of earlier attempts, also of attempts whose records are
    not committed; ``fenced_tasks`` is the number of tasks for which `fencing.fence` was called under this lease.

    The block begins when no other run is alive: at once, or after up to ``seconds`` if another run died without
    returning its claim. Raises PipelineBusyError if another run is alive, BrokerUnavailableError, TopicError, and
    CheckpointError if records of the log were deleted.

    A ``brief`` run takes a few seconds, and other runs wait for it up to BRIEF_SECONDS. This run waits up to
    ``timeout_seconds`` for a run that is not brief. Claims are read and written with the keys of ``claims``, by default
    those of ``connection``.
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topic: str,
        identity: str,
        seconds: float,
        *,
        brief: bool = False,
        timeout_seconds: float = 0.0,
        transaction_seconds: float = PublishSettings.transaction_timeout_seconds,
        claims: KafkaConnection | None = None,
    ) -> None:
        self.attempt = uuid.uuid4().hex
        self.earlier_tasks, self.fenced_tasks = 1, 0
        self.last_takeover = -1
        """The number of the last takeover before this lease, perhaps in a transaction that was aborted; -1 without one.
        For a process without a key, only of one that has a key."""
        self._claim_connection = claims or connection
        self.connection, self.identity, self.transaction_seconds = connection, identity, transaction_seconds
        self._brief, self._timeout_seconds = brief, timeout_seconds
        self._topic, self._seconds = topic, seconds
        self._who = f"process {os.getpid()} on {socket.gethostname()}"
        self._first = -1
        self._first_ms: int | None = None
        self._is_held = self._is_returned = False
        self._repeated_at = 0.0
        self._done = threading.Event()
        self._claims: RecordWriter | None = None
        self._fenced = FencedWriter(connection, identity, [topic], transaction_seconds)
        self._beat = threading.Thread(target=self._repeat, name=f"lease-{identity}", daemon=True)

    def __enter__(self) -> Self:
        for idle in list(_idle):
            if (idle._topic, idle.identity) == (self._topic, self.identity) and idle.take():
                idle.give_back()  # otherwise this process would wait for itself
        self._claims = RecordWriter(self._claim_connection, self._topic)
        try:
            self._first = self._write(self.attempt, ClaimRecord(self.attempt, None, self._who, self._brief))
            self._repeated_at = boot_seconds()
            self._beat.start()
            self._take_over()
            self._is_held = True
            _held.add(self)
        except BaseException:
            self.give_back()
            raise
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.give_back()

    def leave(self) -> None:
        """Keep the claim without a use for it, until `take` or `give_back`; another `Lease` of this process on the
        identity gives it back first."""
        _idle.add(self)

    def take(self) -> bool:
        """Whether the lease that was left is still there; then the caller uses it again, or gives it back."""
        try:
            _idle.remove(self)
        except KeyError:
            return False
        return True

    def is_wanted(self) -> bool:
        """Whether another process has claimed the identity, or this one was asleep, so that another one may have the
        lease. Raises what a lease raises."""
        if boot_seconds() - self._repeated_at > self._seconds / 2:
            return True
        return bool(self._read_claims().latest)

    def _read_claims(self) -> Claims:
        """The claims on the identity now."""
        memory = self._memory()

        def read(memory: LogMemory[Claims]) -> None:
            purpose = f"to read the claims on {self.identity!r}"
            with memory.reader(self.connection, self._topic, purpose, committed=False) as reader:
                records = reader.to_end(timeout_seconds=6 * self.connection.timeout_seconds)
                self._take(memory.after_last(records), memory.state)
            memory.state.tasks, memory.state.takeover = self.earlier_tasks, self.last_takeover

        memory.read(read)
        return memory.state

    @property
    def repeat_seconds(self) -> float:
        """How often the claim is repeated."""
        return self._seconds / BEATS

    @property
    def number(self) -> int:
        """The offset of its first claim in the commit log. Later leases on the identity have larger numbers."""
        return self._first

    @property
    def writer(self) -> FencedWriter:
        """The writer of the pipeline's logs; it writes as long as no other process has taken the lease."""
        assert self._is_held, "the lease is taken first"
        return self._fenced

    def log(self, identity: str | None = None) -> OwnedLog:
        """The commit log, to read and to write: of the lease's identity, or of another ``identity`` that the lease
        covers too."""
        return OwnedLog(self.connection, self._topic, identity or self.identity, writer=self.writer)

    def give_back(self) -> None:
        """Return the claim, once. In a thread, which no signal interrupts: the signal that ends a job may come now."""
        with ThreadPoolExecutor(1, f"lease-{self.identity}") as thread:
            try:
                returned = thread.submit(self._return_claim)
            except RuntimeError:  # Python ends, and starts no thread
                self._return_claim()
            else:
                returned.result()

    def _return_claim(self) -> None:
        if self._is_returned:
            return
        self._is_returned = True
        _idle.discard(self)
        _held.discard(self)
        self._is_held = False
        self._fenced.close()
        try:
            self._write_return()
        except ChangefeedError as error:
            _log.warning("the claim of this run was not given back, the next run waits %g s: %s", self._seconds, error)
        finally:
            if self._claims is not None:
                self._claims.close()

    def _write_return(self) -> None:
        """End the repetition of the claim, and return it. Raises BrokerUnavailableError."""
        self._done.set()
        if self._beat.ident is not None:  # it was started
            self._beat.join()
        if self._first >= 0:
            self._write(self.attempt, None)

    def _claim(self) -> int:
        """Repeat the claim; return the offset of its record."""
        now = boot_seconds()
        offset = self._write(self.attempt, ClaimRecord(self.attempt, self._first, self._who, self._brief))
        self._repeated_at = now
        return offset

    def _repeat(self) -> None:
        """Repeat the claim until the lease is given back. If it was not repeated for so long that this run looked dead,
        another may have taken over, and would take this one for a newer one that is alive: then it is not repeated."""
        while not self._done.wait(self.repeat_seconds):
            if self in _idle:  # whoever waits for it gets it soon
                continue
            try:
                if boot_seconds() - self._repeated_at > self._seconds and self.attempt in self._read_claims().returned:
                    _log.warning("another run took over while this one looked dead: its claim is not repeated")
                    return
                self._claim()
            except ChangefeedError as error:
                _log.warning("the claim of this run could not be repeated: %s", error)

    def _take_over(self) -> None:
        """Read the claims before this run's claim, watch those that were not returned, and fence the writers of the
        logs."""
        self._memory().read(self._watch)

    def _memory(self) -> LogMemory[Claims]:
        return log_memory(self._claim_connection, self._topic, f"claims on {self.identity!r}", Claims)

    def _watch(self, memory: LogMemory[Claims]) -> None:
        """See `_take_over`; the claims up to the last record in ``memory`` are known."""
        state, claims = memory.state, memory.state.latest
        self.earlier_tasks, self.last_takeover = memory.state.tasks, memory.state.takeover
        partition = (self._topic, 0)
        purpose = f"to read the claims on {self.identity!r}"
        with memory.reader(self.connection, self._topic, purpose, committed=False) as reader:
            timeout_seconds = 6 * self.connection.timeout_seconds
            check_first_offsets(reader.first_offsets())
            before = reader.to_end({partition: self._first + 1}, timeout_seconds=timeout_seconds)
            self._take(memory.after_last(before), state)
            earlier = {name for name, claim in claims.items() if claim.first < self._first}
            seen = {name: claims[name].offset for name in earlier}
            for name in [name for name in earlier if self._is_over(claims[name])]:
                del seen[name]
            begun = time.monotonic()
            deadline = begun + self._seconds
            while seen.keys() & claims.keys() and time.monotonic() < deadline:
                self._take(memory.further(reader.poll(0.05)), state)
                for name in seen.keys() & claims.keys():
                    if claims[name].offset == seen[name]:
                        continue
                    timeout_seconds = BRIEF_SECONDS if claims[name].brief else self._timeout_seconds
                    if time.monotonic() - begun >= timeout_seconds:
                        raise PipelineBusyError(
                            f"{self.identity!r} is being published by {claims[name].who} (attempt {name}), which is "
                            "alive. This run stops and has published nothing; run again when the other is done. If it "
                            "hangs, end that process: its claim is void "
                            f"{self._seconds:g} seconds later."
                        )
                    _log.info("waiting for %s (attempt %s), which still works", claims[name].who, name)
                    seen[name] = claims[name].offset
                    deadline = time.monotonic() + self._seconds
            self._fenced.take_over()
            end = self._claim()  # all records of earlier attempts are before it
            self._take(memory.further(reader.to_end({partition: end}, timeout_seconds=timeout_seconds)), state)
        memory.state.tasks, memory.state.takeover = self.earlier_tasks, self.last_takeover
        for name in earlier & claims.keys():
            _log.warning("the run of %s (attempt %s) did not end in order; it is taken over", claims[name].who, name)
            self._write(name, None)

    def _is_over(self, claim: Claim) -> bool:
        if claim.at_ms is None or self._first_ms is None:
            return False
        return self._first_ms - claim.at_ms > self._seconds * 1000

    def _take(self, records: Iterable[KafkaRecord], claims: Claims) -> None:
        for record in records:
            entry = LogEntry.of(record)
            if entry is None or entry.identity != self.identity or self._claim_connection.log_keys.fault(record):
                continue  # ignores records with an invalid signature
            if entry.kind == ClaimRecord.kind and entry.parts:
                self._take_claim(entry, claims)
            elif entry.kind == AttemptRecord.kind and isinstance(attempt := entry.read_note(), AttemptRecord):
                self.earlier_tasks = max(self.earlier_tasks, attempt.tasks)
            elif entry.kind == TakeoverRecord.kind:
                is_other = not self._claim_connection.log_keys and not is_signed(record)
                takeover = None if is_other else entry.read_note()
                self.last_takeover = takeover.number if isinstance(takeover, TakeoverRecord) else -1

    def _take_claim(self, entry: LogEntry, claims: Claims) -> None:
        name, record = str(entry.parts[0]), entry.record
        if record.value is None:
            claims.returned.add(name)
        at_ms = record.timestamp_ms if record.stamped_by_broker else None
        if name == self.attempt:
            self._first_ms = self._first_ms or at_ms
            return
        claim = entry.read_note()
        if claim is None and record.value is not None:
            return
        if isinstance(claim, ClaimRecord):
            first = record.offset if claim.first is None else claim.first
            claims.latest[name] = Claim(name, first, record.offset, claim.who, claim.brief, at_ms)
        else:
            claims.latest.pop(name, None)  # the run returned its claim

    @staticmethod
    def return_held() -> None:
        """Return the claims of the leases that this process holds, at once, because it is killed in a moment.

        What the process still does is fenced by the next holder, as that of a run that looks dead.
        """
        for lease in list(_held):
            with suppress(ChangefeedError):
                lease._write_return()

    def _write(self, attempt: str, claim: ClaimRecord | None) -> int:
        """Write ``claim``, or with None the return of a claim; return the record's offset."""
        key, value = ClaimRecord.key_of(self.identity, attempt), claim.value() if claim else None
        assert self._claims is not None, "the lease is entered first"
        return self._claims.write({key: value}, f"to claim {self.identity!r} in commit log {self._topic!r}")
