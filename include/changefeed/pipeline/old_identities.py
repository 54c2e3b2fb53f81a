"""Forgets the records of backfills, snapshots and returns of parked tables that are not retried any more."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from changefeed.errors import PipelineBusyError
from changefeed.kafka.fencing import fence
from changefeed.pipeline.connections import PipelineConnections

_log = logging.getLogger(__name__)


def forget_older(connections: PipelineConnections, prefix: str, kept: int, always_kept: Collection[str] = ()) -> None:
    """Forget all records of identities that begin with ``prefix``, except the ``kept`` most recent ones and
    ``always_kept``.

    An identity that is in use again is not changed. Raises FencedError, BrokerUnavailableError, TopicError.
    """
    identities = [name for name in connections.commit_log().identities() if name.startswith(prefix)]
    forget_identities(connections, [name for name in identities[:-kept] if name not in always_kept])


def forget_identities(connections: PipelineConnections, identities: Iterable[str]) -> None:
    """Forget all records of ``identities`` that are not in use. Raises what `forget_older` raises."""
    for old in identities:
        try:
            with connections.lease(old, brief=True) as lease:
                fence(lease)
                lease.log().forget_everything()
        except PipelineBusyError as error:
            _log.info("%s", error)
