"""TCP ports of this machine."""

from __future__ import annotations

import socket

LOCALHOST = "127.0.0.1"


def free_port() -> int:
    """A port of 127.0.0.1, chosen by the kernel, on which no process listens."""
    with socket.socket() as listener:
        listener.bind((LOCALHOST, 0))
        return int(listener.getsockname()[1])


def is_listening(port: int) -> bool:
    """Whether a process accepts connections at 127.0.0.1:*port*."""
    try:
        with socket.create_connection((LOCALHOST, port), timeout=1):
            return True
    except OSError:
        return False
