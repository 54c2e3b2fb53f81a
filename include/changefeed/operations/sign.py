"""sign: signs the existing records of a pipeline's logs with its key."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

from changefeed.errors import SettingsError
from changefeed.ingest.commit import commit_sealed
from changefeed.kafka.checkpoint_log import CheckpointLog
from changefeed.kafka.commit_log.log import CommitLog
from changefeed.kafka.commit_log.records import AttemptRecord, ClaimRecord, LogEntry, TakeoverRecord
from changefeed.kafka.fencing import fence
from changefeed.kafka.log_keys import NO_KEYS, LogKeys
from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.kafka.record_writer import RecordWriter
from changefeed.model import fault_point
from changefeed.pipeline.connections import PipelineConnections
from changefeed.state.kafka_store import KafkaCheckpointStore

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SignResult:
    """The result of a sign.

    - ``records``: the number of records of the commit log that were signed.
    - ``untrusted``: the number of them that no key of the pipeline had signed before.
    - ``schemas``: whether the schema history was signed.
    """

    records: int
    untrusted: int
    schemas: bool


def sign(connections: PipelineConnections) -> SignResult:
    """Sign all records of the pipeline's logs that `commit_log.key` has not signed, in one transaction.

    Trusts all existing records: it also signs records with a signature of `previous_keys`, and records without a valid
    signature. Afterwards the pipeline reads only signed records.

    A continuous run has the keys that it began with. If it does not sign with the present key, it ends with success
    before its next window, and the next run publishes on.

    Raises SettingsError without a key, and PipelineBusyError while a run is alive; a continuous one, if its current
    window takes minutes.
    """
    keys, name = connections.kafka.log_keys, connections.pipeline.name
    if not keys:
        raise SettingsError(f"pipeline {name!r} has no `commit_log: {{key: ...}}`: there is nothing to sign with")
    latest, log = LogKeys(keys.secrets[:1]), connections.commit_log()
    if not log.exists():
        return SignResult(0, 0, schemas=False)
    of_last_run = _keys_of_last_run(log)
    ends_run = connections.pipeline.windows is not None and of_last_run.secrets[:1] != latest.secrets
    with connections.lease_between_windows(of_last_run) as lease:
        if ends_run:  # before anything is signed, so that the run can read it
            _end_run(log, lease.number, of_last_run)
            fault_point.reach("after_sign_takeover")
        fence(lease)
        unsigned = [record for record in log.latest_records() if _is_of(log, record) and latest.fault(record)]
        if ends_run:
            unsigned = [record for record in unsigned if record.key != TakeoverRecord.key_of(name)]
        lease.log().write({record.key or b"": record.value for record in unsigned}, "to sign the records")
        untrusted = [record for record in unsigned if keys.fault(record)]
        schemas = connections.schema_log().sign(lease.writer, latest)
        if connections.pipeline.checkpoint.store == "kafka":
            if ends_run:
                _commit_sealed(connections)
            CheckpointLog(connections.kafka, name).sign(latest)
    with RecordWriter(connections.kafka, log.topic) as writer:  # the lease was returned with the key of the last run
        writer.write({ClaimRecord.key_of(name, lease.attempt): None}, f"to sign records in {log.topic!r}")
    _log.info("signed %d records of the commit log of %s", len(unsigned), name)
    return SignResult(len(unsigned), len(untrusted), schemas)


def _keys_of_last_run(log: CommitLog) -> LogKeys:
    """The keys of the pipeline, first the one that the last run signed with; no keys if it had none of them."""
    keys, attempt = log.connection.log_keys, AttemptRecord.key_of(log.identity)
    last = [record for record in log.latest_records() if record.key == attempt]
    if not last:
        return keys
    for secret in keys.secrets:
        if not LogKeys((secret,)).fault(last[0]):
            return LogKeys((secret, *(each for each in keys.secrets if each != secret)))
    return NO_KEYS


def _end_run(log: CommitLog, number: int, of_last_run: LogKeys) -> None:
    """End a continuous run that signs with the first of ``of_last_run``, or not at all, before its next window.

    A run with a key reads only records with its signature, one without a key any record, and it pays attention to
    signed ones before it writes.
    """
    keys = of_last_run or log.connection.log_keys
    as_last_run = CommitLog(replace(log.connection, log_keys=keys), log.topic, log.identity)
    as_last_run.note(TakeoverRecord(number))


def _commit_sealed(connections: PipelineConnections) -> None:
    """Move the checkpoint in its topic over all sealed windows, so that the run, which may have no key, stores nothing
    at its end."""
    trusting = replace(connections.kafka, log_keys=NO_KEYS)  # it is signed after that
    store = KafkaCheckpointStore(trusting, create_topics=False)
    if store.load(connections.pipeline.name) is not None:
        commit_sealed(connections, store)


def _is_of(log: CommitLog, record: KafkaRecord) -> bool:
    """Whether a record or tombstone belongs to the pipeline, or to one of its snapshots and backfills; not a claim,
    whose run repeats or returns it."""
    entry = LogEntry.of(record)
    if entry is None or (entry.kind == ClaimRecord.kind and not entry.is_tombstone):
        return False
    return entry.identity == log.identity or entry.identity.startswith(f"{log.identity}.")
