"""Forgetting what the commit log holds of backfills and snapshots that nobody will try again."""

from __future__ import annotations

import logging

from changefeed.errors import PipelineBusyError
from changefeed.kafka.fencing import fence
from changefeed.pipeline.connections import PipelineConnections

_log = logging.getLogger(__name__)


def forget_older(connections: PipelineConnections, prefix: str, kept: int) -> None:
    """Forget all records of identities that begin with ``prefix``, but for the ``kept`` that wrote last.

    One that is at work again is left as it is. Raises FencedError, BrokerUnavailableError, TopicError.
    """
    identities = [name for name in connections.commit_log().identities() if name.startswith(prefix)]
    for old in identities[:-kept]:
        try:
            with connections.lease(old, brief=True) as lease:
                fence(lease)
                lease.log().forget_everything()
        except PipelineBusyError as error:
            _log.info("%s", error)
