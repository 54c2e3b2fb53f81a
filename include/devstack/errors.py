"""What devstack raises on purpose.

::

    DevstackError
    ├── FetchError     a download failed, did not match its checksum, or cannot run on this machine
    └── ServerError    a server did not start, stopped by itself, or was asked something it cannot do
"""

from __future__ import annotations


class DevstackError(Exception):
    """Root of the tree; the message says what to do."""


class FetchError(DevstackError):
    """Software could not be fetched; nothing was left half done."""


class ServerError(DevstackError):
    """A server did not start or stopped by itself; the message shows the end of its log."""
