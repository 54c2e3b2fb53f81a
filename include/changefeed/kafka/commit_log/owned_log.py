"""Writes the commit log, for the process that holds the lease; its writes fail once another process has taken the
lease."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from changefeed.errors import BadRecordError, TopicError
from changefeed.kafka.commit_log.log import EMPTY_STATE, CommitLog, CommitLogState
from changefeed.kafka.commit_log.periods import merge_seals
from changefeed.kafka.commit_log.records import (
    AttemptRecord,
    BegunRecord,
    CompleteTablesRecord,
    LogRecord,
    OrderRecord,
    ProgressRecord,
    RenamedRecord,
    SealRecord,
    SeekLogRecord,
)
from changefeed.kafka.fenced_writer import FencedWriter
from changefeed.model.manifest import Manifest
from changefeed.model.seek import SeekRecord

KEPT_SEALS, KEPT_SEAL_BYTES = 100, 8 << 20
"""The maximum number of seals in the log, and their maximum total size in bytes."""
KEPT_CONTINUOUS_SEALS = 2000
"""The maximum number with continuous runs: half an hour of a window a second."""


@dataclass(frozen=True)
class OwnedLog(CommitLog):
    """Writes the log of ``identity`` for the holder of the lease; `Lease.log` creates it.

    The records of one call become visible together or not at all. If another process took the lease, nothing is
    written. So if a write succeeds, all that was read under the lease was still valid.

    All methods that write raise FencedError if another process has taken the lease, BrokerUnavailableError or
    TopicError; after the last two it is unknown whether the records were written. It does no harm to write the same
    record again.
    """

    writer: FencedWriter = field(kw_only=True)

    def keep(self, *records: LogRecord, forgotten: Iterable[LogRecord] = ()) -> None:
        """Write ``records``, which replace earlier ones with their keys, and forget the records ``forgotten``."""
        values: dict[bytes, bytes | None] = {record.key(self.identity): record.value() for record in records}
        values |= {gone.key(self.identity): None for gone in forgotten}
        self.write(values, "to keep records")

    def begin(self, record: BegunRecord, state: CommitLogState, obsolete: Iterable[LogRecord] = ()) -> None:
        """Record that a window is begun, and forget the windows of ``state`` that were begun after it and the records
        ``obsolete``.

        Those windows were begun on another server, with the high-water marks of this window (`pipeline.failover`).
        Nothing of them is published.
        """
        later = [begun for begun in state.of(BegunRecord) if begun.window.number > record.window.number]
        self.keep(record, forgotten=[*obsolete, *later])

    def seal(
        self,
        manifest: Manifest,
        state: CommitLogState = EMPTY_STATE,
        *,
        keep: int = KEPT_SEALS,
        uncommitted: int = 1,
        complete: CompleteTablesRecord | None = None,
    ) -> None:
        """Write the manifest of a window, and merge the oldest seals of ``state``, which `read` returned, by hour.

        ``complete`` is the record of complete tables after the window; without it an earlier one is forgotten.

        The last ``keep`` seals stay, or fewer if they exceed KEPT_SEAL_BYTES; the others are merged once they are a
        tenth more. The last ``uncommitted`` seals always stay, because the windows of a run are committed after its
        last one is sealed.

        If the state store was restored from an older backup, the log has seals with higher numbers. They are forgotten
        and not merged, so that the highest seal is the position of the pipeline.
        """
        window = manifest.window.number
        seal = SealRecord(manifest)
        value = seal.value()
        old = _seals_to_merge(state, window, len(value), keep=keep, uncommitted=uncommitted)
        gone = {*old, *(number for number in state.seals if number > window)}
        records: dict[bytes, bytes | None] = {seal.key(self.identity): value}
        records |= merge_seals(state, old, self.identity)
        records |= {SealRecord.key_of(self.identity, number): None for number in sorted(gone)}
        begun = {window, *(number for number in state.begun if number < window or number in gone)}
        records |= {BegunRecord.key_of(self.identity, number): None for number in sorted(begun)}
        ended = {window, *(number for number in state.orders if number < window or number in gone)}
        records |= {OrderRecord.key_of(self.identity, number): None for number in sorted(ended)}
        records |= {each.key(self.identity): None for each in state.of(CompleteTablesRecord)}
        records |= {complete.key(self.identity): complete.value()} if complete else {}
        self.write(records, f"to seal window {window}")

    def seek(self, record: SeekRecord, state: CommitLogState) -> None:
        """Write the record of a seek, and forget the progress and the begun windows of ``state``.

        `read` returned ``state``. Its progress and windows belong to the coordinates before the seek.
        """
        kinds = (ProgressRecord, BegunRecord, OrderRecord, RenamedRecord)
        left: list[LogRecord] = [record for kind in kinds for record in state.of(kind)]
        self.keep(SeekLogRecord(record), forgotten=left)

    def forget(self, topics: Iterable[str], state: CommitLogState, window: int = 0) -> int:
        """Forget the progress of ``topics``, and begun windows up to number ``window``; return the number of
        records."""
        names = set(topics)
        keys = [ProgressRecord.key_of(self.identity, *each) for each in state.progress if each[0] in names]
        keys += [BegunRecord.key_of(self.identity, number) for number in state.begun if number <= window]
        keys += [OrderRecord.key_of(self.identity, number) for number in state.orders if number <= window]
        return self._forget(keys)

    def forget_everything(self) -> int:
        """Forget all records of this identity, also of unknown kinds; return their number.

        For a backfill that is not retried. Its attempt record is forgotten first, so that a late task of it sees that
        it may not publish, instead of an empty log.
        """
        entries = sorted(self._own(), key=lambda entry: entry.kind != AttemptRecord.kind)
        return self._forget([entry.record.key or b"" for entry in entries])

    def _forget(self, keys: Sequence[bytes]) -> int:
        self.write(dict.fromkeys(keys), "to forget records")
        return len(keys)

    def write(self, records: Mapping[bytes, bytes | None], purpose: str) -> None:
        """Write ``records``, values by key; None forgets a record. ``purpose`` ("to ...") begins the message of an
        error."""
        if not records:
            return
        purpose = f"{purpose} of {self.identity!r} in commit log {self.topic!r}"
        try:
            self.writer.write(self.topic, records, purpose)
        except BadRecordError as error:
            largest_bytes = max(len(value or b"") for value in records.values())
            raise TopicError(
                f"{purpose}: the record has {largest_bytes:,} bytes, compressed, and the topic takes "
                f"fewer. Set max.message.bytes of {self.topic!r} to {2 * largest_bytes} or more, with "
                "kafka-configs.sh, and run again: what is published already is not published twice."
            ) from error


def _seals_to_merge(state: CommitLogState, window: int, size_bytes: int, *, keep: int, uncommitted: int) -> list[int]:
    """The numbers of the seals of ``state`` that are not kept beside the seal of ``window``, which has ``size_bytes``.

    None of them until the limits are exceeded by a tenth, so that few seals write the record of their hour again.
    """
    keep = max(keep, uncommitted)
    sizes = {number: state.seals.stored_bytes(number) for number in state.seals if number < window}
    if len(sizes) < keep + keep // 10 and size_bytes + sum(sizes.values()) <= KEPT_SEAL_BYTES * 11 // 10:
        return []
    kept, merged = 1, []
    for number in sorted(sizes, reverse=True):
        size_bytes += sizes[number]
        if kept < keep and (size_bytes <= KEPT_SEAL_BYTES or kept < uncommitted):
            kept += 1
        else:
            merged.append(number)
    return merged
