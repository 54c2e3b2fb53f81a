"""sign: the records of a pipeline's logs, signed with its key as they are."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from changefeed.errors import SettingsError
from changefeed.kafka.commit_log.owned_log import OwnedLog
from changefeed.kafka.commit_log.records import LogEntry
from changefeed.kafka.fencing import fence
from changefeed.kafka.log_keys import LogKeys
from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.pipeline.connections import PipelineConnections

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Signed:
    """How many ``records`` of the commit log were signed, and whether the ``schemas`` were; ``strange`` are those of
    them that none of the keys had signed."""

    records: int
    strange: int
    schemas: bool


def sign(connections: PipelineConnections) -> Signed:
    """Sign with `commit_log.key` what the pipeline's logs hold and that key has not signed: all of it or nothing.

    It believes what is there: for a log that was written without a key, or with one of `previous_keys`. From then on
    the pipeline reads no other records. Raises SettingsError without a key, PipelineBusyError while a run is alive.
    """
    keys = connections.kafka.log_keys
    if not keys:
        raise SettingsError(
            f"pipeline {connections.pipeline.name!r} has no `commit_log: {{key: ...}}`: there is nothing to sign with"
        )
    latest = LogKeys(keys.secrets[:1])
    if not connections.commit_log().exists():
        return Signed(0, 0, schemas=False)
    with connections.lease() as lease:
        fence(lease)
        log = lease.log()
        unsigned = [record for record in log.latest_records() if _is_of(log, record) and latest.fault(record)]
        log.write({record.key or b"": record.value for record in unsigned}, "to sign the records")
        strange = [record for record in unsigned if keys.fault(record)]
        schemas = connections.schema_log().sign(lease.writer, latest)
    _log.info("signed %d records of the commit log of %s", len(unsigned), connections.pipeline.name)
    return Signed(len(unsigned), len(strange), schemas)


def _is_of(log: OwnedLog, record: KafkaRecord) -> bool:
    """Whether a record, or a tombstone, is of the pipeline, or of one of its snapshots and backfills."""
    entry = LogEntry.of(record)
    return entry is not None and (entry.identity == log.identity or entry.identity.startswith(f"{log.identity}."))
