"""Fencing of earlier attempts, so that only the last attempt at a pipeline publishes.

Two mechanisms stop a zombie (an earlier attempt that still runs). `fence` takes over the transactional ids that an
earlier attempt has used, which aborts its open transactions (KIP-98, KIP-360). If a zombie's task begins afterwards, it
reads in the commit log that another attempt has begun, and stops. So the order is: begin the attempt, then fence, and
only then read progress.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import kafka.errors
from kafka.admin import KafkaAdminClient

from changefeed.kafka.client_internals import take_over
from changefeed.kafka.commit_log.records import AttemptRecord
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.lease import Lease
from changefeed.kafka.refusal import write_error


def transactional_id(identity: str, task: int) -> str:
    """The name under which a task of ``identity`` writes its transactions, the same in each attempt."""
    return f"changefeed.{identity}.{task}"


def fence(lease: Lease, tasks: int = 1) -> str:
    """Fence the publishers of all earlier attempts; return the attempt of ``lease``, for its publishers. A kept lease
    fences once: all tasks of its earlier windows have ended.

    The driver calls it before any of its ``tasks`` starts. The commit log has the number of tasks of earlier attempts.
    The brokers list further publishers, such as those of a deleted log (ListTransactions, KIP-664; since Kafka 3.0).
    Raises FencedError, BrokerUnavailableError, TopicError (ACLs, no transactions), SettingsError.
    """
    if tasks <= lease.fenced_tasks:
        return lease.attempt
    connection, identity, tasks = lease.connection, lease.identity, max(tasks, lease.earlier_tasks)
    lease.log().keep(AttemptRecord(lease.attempt, tasks))
    with connection.admin(is_new=True) as admin:
        ids = {transactional_id(identity, task) for task in range(tasks)} | set(_used_ids(admin, identity))
        _take_over(connection, admin, ids, identity, lease.transaction_seconds)
    lease.fenced_tasks = tasks
    return lease.attempt


def check_transactions(connection: KafkaConnection, identity: str, transaction_timeout_seconds: float) -> None:
    """Check that the brokers allow transactional ids of ``identity`` with the timeout of its publishers.

    No publisher uses the id of this check, so no run is disturbed. Raises the errors that a run would raise.
    """
    with connection.admin() as admin:
        _take_over(connection, admin, [f"changefeed.{identity}.check"], identity, transaction_timeout_seconds)


def _take_over(
    connection: KafkaConnection, admin: KafkaAdminClient, ids: Iterable[str], identity: str, timeout_seconds: float
) -> None:
    try:
        take_over(admin, sorted(ids), connection.timeout_seconds, int(timeout_seconds * 1000))
    except kafka.errors.KafkaError as error:
        purpose = f"to take over transactional ids of {identity!r}, with a timeout of {timeout_seconds:g} seconds"
        raise write_error(error, connection.bootstrap, purpose) from error


def _used_ids(admin: KafkaAdminClient, identity: str) -> Iterable[str]:
    ours = re.compile(re.escape(transactional_id(identity, 0)[:-1]) + r"\d+")
    try:
        for listings in admin.list_transactions().values():
            for listing in listings:
                if ours.fullmatch(listing.transactional_id):
                    yield listing.transactional_id
    except (kafka.errors.AuthorizationError, kafka.errors.UnsupportedVersionError):
        return  # the ACL Describe on the transactional ids is missing, or the brokers are older than the request
