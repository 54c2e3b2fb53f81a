"""Errors that devstack raises.

::

    DevstackError
    ├── FetchError     a download failed, did not match its checksum, or does not run on this machine
    └── ServerError    a server did not start, stopped by itself, or refused a request
"""

from __future__ import annotations


class DevstackError(Exception):
    """Base class of all errors of devstack."""


class FetchError(DevstackError):
    """Software could not be fetched. No incomplete installation is left."""


class ServerError(DevstackError):
    """A server did not start, stopped by itself, or refused a request; the message has the end of its log."""
