"""Kafka clients that stay open for their next use.

Opening a client takes some milliseconds and three requests, which a continuous run would pay twenty times a window.
After `keep_clients` this process keeps clients that ended their use without an error. A client serves one user at a
time, and is closed after KEPT_SECONDS: so passwords are renewed, and brokers end no connection that is in use.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from changefeed.kafka.connection import KafkaConnection

KEPT_SECONDS = 300.0
"""How long a client is used."""
_MOST_IDLE = 16


class Client(Protocol):
    """What can be kept."""

    def close(self) -> Any:
        """Close the connections."""


Opened = TypeVar("Opened", bound=Client)


@dataclass(frozen=True)
class _Kept:
    """An idle client, by its connection and purpose; ``until`` is the time at which it is closed."""

    connection: KafkaConnection
    purpose: Hashable
    client: Any
    until: float


_is_on = False
_idle: list[_Kept] = []
_lock = threading.Lock()


def keep_clients() -> None:
    """From now on, this process keeps clients open."""
    global _is_on
    _is_on = True


def keeps_clients() -> bool:
    """Whether this process keeps clients open."""
    return _is_on


@contextmanager
def kept_client(connection: KafkaConnection, purpose: Hashable, open_client: Callable[[], Opened]) -> Iterator[Opened]:
    """A client for ``purpose``: an idle one, or one of ``open_client``. After an error in the block it is closed."""
    kept = _take(connection, purpose) or _Kept(connection, purpose, open_client(), _now() + KEPT_SECONDS)
    is_good = False
    try:
        yield kept.client
        is_good = _is_on
    finally:
        _close(_put_back(kept) if is_good else [kept])


def _take(connection: KafkaConnection, purpose: Hashable) -> _Kept | None:
    with _lock:
        old = [kept for kept in _idle if kept.until <= _now()]
        _idle[:] = [kept for kept in _idle if kept.until > _now()]
        found = next((kept for kept in _idle if kept.purpose == purpose and kept.connection == connection), None)
        if found is not None:
            _idle.remove(found)
    _close(old)
    return found


def _put_back(kept: _Kept) -> list[_Kept]:
    """Keep a client; return those that are too many."""
    with _lock:
        _idle.append(kept)
        many = _idle[:-_MOST_IDLE]
        del _idle[:-_MOST_IDLE]
    return many


def _close(unused: list[_Kept]) -> None:
    for kept in unused:
        kept.client.close()


def _now() -> float:
    """Seconds, which go on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
