"""Calls a function again and again in a thread, while something else goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeated(action: Callable[[], None], every_seconds: float, name: str) -> Iterator[None]:
    """Call ``action`` every ``every_seconds`` in a thread ``name`` during the block, and not after it: the end of the
    block waits for a call that is in progress. ``action`` must not raise."""
    is_over = threading.Event()

    def call_repeatedly() -> None:
        while not is_over.wait(every_seconds):
            action()

    thread = threading.Thread(target=call_repeatedly, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
