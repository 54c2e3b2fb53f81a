"""Clients of Kafka and MySQL that stay open for their next use.

Opening a client takes some milliseconds and several requests, which a continuous run would pay twenty times a window.
After `keep_clients` this process keeps clients that ended their use without an error. A client serves one user at a
time, and is closed some time after it was opened: so passwords and certificates are renewed. After an error all idle
clients of its connection are closed, as the same may have happened to them.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

_log = logging.getLogger(__name__)

KEPT_SECONDS = 180.0
"""How long a client is used: less than firewalls keep an idle connection."""
_MOST_IDLE = 16
_CLOSE_EVERY_SECONDS = 30.0


class Client(Protocol):
    """What can be kept."""

    def is_well(self) -> bool:
        """Whether all connections that it had are open, or were closed in order."""

    def close(self) -> Any:
        """Close the connections."""


Opened = TypeVar("Opened", bound=Client)


@dataclass(frozen=True)
class _Kept:
    """An idle client, by its connection and purpose; ``until`` is the time at which it is closed."""

    connection: object
    purpose: Hashable
    client: Any
    until: float


_is_on = False
_idle: list[_Kept] = []
_lock = threading.RLock()  # a signal may end the process while it is held


def keep_clients() -> None:
    """From now on, this process keeps clients open."""
    global _is_on
    with _lock:
        if not _is_on:
            threading.Thread(target=_close_old_clients, name="changefeed-clients", daemon=True).start()
            atexit.register(_close_all)  # later their threads are gone, and closing them would wait for ever
        _is_on = True


def keeps_clients() -> bool:
    """Whether this process keeps clients open."""
    return _is_on


@contextmanager
def kept_client(
    connection: object,
    purpose: Hashable,
    open_client: Callable[[], Opened],
    seconds: float = KEPT_SECONDS,
    *,
    only_last: bool = False,
) -> Iterator[Opened]:
    """A client for ``purpose``: an idle one, or one of ``open_client``, which is kept for ``seconds``. After an error
    in the block it is closed. If ``only_last``, it is kept in place of idle clients of its class for other purposes."""
    kept = _take(connection, purpose) or _Kept(connection, purpose, open_client(), boot_seconds() + seconds)
    is_good = False
    try:
        yield kept.client
        is_good = True
    finally:
        if is_good and _is_on:
            if only_last:
                _close(_remove(lambda idle: type(idle.client) is type(kept.client) and idle.connection == connection))
            _put_back(kept)
        else:
            _close([kept])
        if not is_good:
            _close(_remove(lambda idle: idle.connection == connection))


def _take(connection: object, purpose: Hashable) -> _Kept | None:
    with _lock:
        found = next((kept for kept in _idle if kept.purpose == purpose and kept.connection == connection), None)
        if found is None:
            return None
        _idle.remove(found)
    if found.until > boot_seconds() and found.client.is_well():
        return found
    _close([found])
    return None


def _put_back(kept: _Kept) -> None:
    with _lock:
        _idle.append(kept)
        many = _idle[:-_MOST_IDLE]
        del _idle[:-_MOST_IDLE]
    _close(many)


def _remove(is_unused: Callable[[_Kept], bool]) -> list[_Kept]:
    with _lock:
        unused = [kept for kept in _idle if is_unused(kept)]
        _idle[:] = [kept for kept in _idle if not is_unused(kept)]
    return unused


def _close_all() -> None:
    """Close all idle clients, and keep none any more."""
    global _is_on
    _is_on = False
    _close(_remove(lambda _: True))


def _close_old_clients() -> None:
    while True:
        time.sleep(_CLOSE_EVERY_SECONDS)
        _close(_remove(lambda kept: kept.until <= boot_seconds()))


def _close(unused: list[_Kept]) -> None:
    for kept in unused:
        try:
            kept.client.close()
        except Exception as error:  # nobody uses it any more
            _log.debug("a client for %s did not close in order: %s", kept.purpose, error)


def boot_seconds() -> float:
    """Seconds, which go on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
