"""Writing the commit log: only the process that holds the lease does, and only as long as no other has taken it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from changefeed.errors import BadRecordError, TopicError
from changefeed.kafka.commit_log.log import NOTHING_KNOWN, CommitLog, CommitLogState
from changefeed.kafka.commit_log.records import (
    AttemptRecord,
    BegunRecord,
    LogRecord,
    OrderRecord,
    ProgressRecord,
    RenamedRecord,
    SealRecord,
    SoughtRecord,
)
from changefeed.kafka.fenced_writer import FencedWriter
from changefeed.model.manifest import Manifest
from changefeed.model.seek import SeekRecord

KEPT_SEALS, KEPT_SEAL_BYTES = 100, 8 << 20
"""How many seals the log keeps, and how much of it they may take together."""


@dataclass(frozen=True)
class OwnedLog(CommitLog):
    """The log of ``identity``, as `Lease.log` gives it to whoever holds the lease.

    What one call writes becomes visible together or not at all. So what was read under the lease is still so when it
    is written: if another process took the lease meanwhile, nothing is written.

    All that write raise FencedError where another process has taken the lease, BrokerUnavailableError or TopicError;
    after the last two it is unknown whether the records were written. Writing the same record again is harmless.
    """

    writer: FencedWriter = field(kw_only=True)

    def keep(self, *records: LogRecord, forgotten: Iterable[LogRecord] = ()) -> None:
        """Write ``records``, each in place of an earlier one with its key, and forget those ``forgotten``."""
        values: dict[bytes, bytes | None] = {record.key(self.identity): record.value() for record in records}
        values |= {gone.key(self.identity): None for gone in forgotten}
        self.write(values, "to keep records")

    def begin(self, record: BegunRecord, state: CommitLogState, passed: Iterable[LogRecord] = ()) -> None:
        """Write that a window is begun, and forget later ones of ``state``: none of them has given anything.

        They were begun on another server, with marks of what this window had given by then (`pipeline.failover`).
        Records that have ``passed`` are forgotten, too.
        """
        later = [begun for begun in state.of(BegunRecord) if begun.window.number > record.window.number]
        self.keep(record, forgotten=[*passed, *later])

    def seal(
        self,
        manifest: Manifest,
        state: CommitLogState = NOTHING_KNOWN,
        *,
        keep: int = KEPT_SEALS,
        uncommitted: int = 1,
    ) -> None:
        """Write the manifest of a window, and tombstones for the oldest seals of ``state``, as `read` gave it.

        The last ``keep`` stay, or fewer where they take more than KEPT_SEAL_BYTES; the last ``uncommitted`` stay
        whatever they take, as the windows of a run are committed after its last one is sealed.

        Seals of higher numbers are left by a state store that was restored from an older backup since: they are
        forgotten too, so that the highest one is where the pipeline stands.
        """
        window = manifest.window.number
        seal = SealRecord(manifest)
        value = seal.value()
        kept, size_bytes = 1, len(value)
        old = [number for number in state.seals if number > window]
        for number in sorted((number for number in state.seals if number < window), reverse=True):
            size_bytes += state.seals.stored_bytes(number)
            if kept < uncommitted or (kept < keep and size_bytes <= KEPT_SEAL_BYTES):
                kept += 1
            else:
                old.append(number)
        records: dict[bytes, bytes | None] = {seal.key(self.identity): value}
        records |= {SealRecord.key_of(self.identity, number): None for number in old}
        records |= {BegunRecord.key_of(self.identity, number): None for number in (window, *old)}
        ended = {window, *old, *(number for number in state.orders if number < window)}
        records |= {OrderRecord.key_of(self.identity, number): None for number in sorted(ended)}
        self.write(records, f"to seal window {window}")

    def seek(self, record: SeekRecord, state: CommitLogState) -> None:
        """Write the record of a seek, and forget progress and windows begun before it.

        What ``state`` has of them, as `read` gave it, is of coordinates that the seek leaves.
        """
        kinds = (ProgressRecord, BegunRecord, OrderRecord, RenamedRecord)
        left: list[LogRecord] = [record for kind in kinds for record in state.of(kind)]
        self.keep(SoughtRecord(record), forgotten=left)

    def forget(self, topics: Iterable[str], state: CommitLogState, window: int = 0) -> int:
        """Forget the progress of ``topics``, and windows begun up to ``window``; return how many records."""
        names = set(topics)
        keys = [ProgressRecord.key_of(self.identity, *each) for each in state.progress if each[0] in names]
        keys += [BegunRecord.key_of(self.identity, number) for number in state.begun if number <= window]
        keys += [OrderRecord.key_of(self.identity, number) for number in state.orders if number <= window]
        return self._forget(keys)

    def forget_everything(self) -> int:
        """Forget all records of this identity, of unknown kinds too; return how many.

        For a backfill that nobody will try again. Its attempt is forgotten first: a task of it that comes late then
        finds that it may not publish, rather than that nothing was published yet.
        """
        entries = sorted(self._own(), key=lambda entry: entry.kind != AttemptRecord.kind)
        return self._forget([entry.record.key or b"" for entry in entries])

    def _forget(self, keys: Sequence[bytes]) -> int:
        self.write(dict.fromkeys(keys), "to forget records")
        return len(keys)

    def write(self, records: Mapping[bytes, bytes | None], wanted: str) -> None:
        """Write records by their keys, None to forget one; ``wanted`` ("to ...") begins the message of an error."""
        if not records:
            return
        wanted = f"{wanted} of {self.identity!r} in commit log {self.topic!r}"
        try:
            self.writer.write(self.topic, records, wanted)
        except BadRecordError as error:
            largest_bytes = max(len(value or b"") for value in records.values())
            raise TopicError(
                f"{wanted}: the record has {largest_bytes:,} bytes, compressed, and the topic takes "
                f"fewer. Set max.message.bytes of {self.topic!r} to {2 * largest_bytes} or more, with "
                "kafka-configs.sh, and run again: what is published already is not published twice."
            ) from error
