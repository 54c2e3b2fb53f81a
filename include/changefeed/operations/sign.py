"""sign: signs the existing records of a pipeline's logs with its key."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from changefeed.errors import SettingsError
from changefeed.kafka.checkpoint_log import CheckpointLog
from changefeed.kafka.commit_log.owned_log import OwnedLog
from changefeed.kafka.commit_log.records import LogEntry
from changefeed.kafka.fencing import fence
from changefeed.kafka.log_keys import LogKeys
from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.pipeline.connections import PipelineConnections

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
    signature. Afterwards the pipeline reads only signed records. Raises SettingsError without a key, and
    PipelineBusyError while a run is alive.
    """
    keys = connections.kafka.log_keys
    if not keys:
        raise SettingsError(
            f"pipeline {connections.pipeline.name!r} has no `commit_log: {{key: ...}}`: there is nothing to sign with"
        )
    latest = LogKeys(keys.secrets[:1])
    if not connections.commit_log().exists():
        return SignResult(0, 0, schemas=False)
    with connections.lease() as lease:
        fence(lease)
        log = lease.log()
        unsigned = [record for record in log.latest_records() if _is_of(log, record) and latest.fault(record)]
        log.write({record.key or b"": record.value for record in unsigned}, "to sign the records")
        untrusted = [record for record in unsigned if keys.fault(record)]
        schemas = connections.schema_log().sign(lease.writer, latest)
        if connections.pipeline.checkpoint.store == "kafka":
            CheckpointLog(connections.kafka, connections.pipeline.name).sign(latest)
    _log.info("signed %d records of the commit log of %s", len(unsigned), connections.pipeline.name)
    return SignResult(len(unsigned), len(untrusted), schemas)


def _is_of(log: OwnedLog, record: KafkaRecord) -> bool:
    """Whether a record or tombstone belongs to the pipeline, or to one of its snapshots and backfills."""
    entry = LogEntry.of(record)
    return entry is not None and (entry.identity == log.identity or entry.identity.startswith(f"{log.identity}."))
