"""Taking over from earlier attempts, so that of all attempts at a pipeline only the last one publishes.

Two things keep a zombie out. `fence` takes over the transactional ids that an earlier attempt has used, which
aborts its open transactions (KIP-98, KIP-360). A zombie's task that begins afterwards reads in the commit log that
another attempt has begun, and stops. So the order is: begin the attempt, then fence, and only then read progress.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import KafkaException

from changefeed.errors import TopicError
from changefeed.kafka.commit_log import CommitLog
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.log_record import AttemptRecord

_AT_ONCE = 16


def transactional_id(identity: str, task: int) -> str:
    """The name under which a task of ``identity`` writes its transactions, the same in each attempt."""
    return f"changefeed.{identity}.{task}"


def fence(connection: KafkaConnection, identity: str, tasks: int, commit_log_topic: str, attempt: str = "") -> str:
    """Stop every earlier attempt of ``identity``; return the name of this attempt, for its publishers.

    Called by the driver before any task starts. For ids beyond ``tasks`` that an earlier attempt used the brokers are
    asked (ListTransactions, KIP-664; Kafka 3.0); where they do not answer that, only those of ``tasks`` are
    taken over. Raises BrokerUnavailableError, TopicError (ACLs, no transactions), SettingsError.
    """
    attempt = attempt or uuid.uuid4().hex
    CommitLog(connection, commit_log_topic, identity).keep(AttemptRecord(attempt))
    ids = {transactional_id(identity, task) for task in range(tasks)} | set(_used(connection, identity))
    with ThreadPoolExecutor(min(_AT_ONCE, max(1, len(ids)))) as pool:
        for _ in pool.map(lambda name: _take_over(connection, name), sorted(ids)):
            pass
    return attempt


def _used(connection: KafkaConnection, identity: str) -> Iterable[str]:
    ours = re.compile(re.escape(transactional_id(identity, 0)[:-1]) + r"\d+")
    try:
        with connection.admin() as admin:
            for listings in admin.list_transactions().values():
                for listing in listings:
                    if ours.fullmatch(listing.transactional_id):
                        yield listing.transactional_id
    except TopicError:
        return  # the ACL Describe on the transactional ids is missing, or the brokers are older than the request


def _take_over(connection: KafkaConnection, name: str) -> None:
    producer = connection.producer(transactional_id=name)
    try:
        producer.init_transactions(connection.timeout_seconds)
    except KafkaException as error:
        raise connection.refused(error, f"to take over transactional id {name!r}") from error
