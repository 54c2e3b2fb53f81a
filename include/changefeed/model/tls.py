"""TLS contexts from certificates and keys that a connection's options have as the path of a file or as PEM text."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

_PEM = "-----BEGIN "


def is_pem(value: str) -> bool:
    """Whether ``value`` is the text of certificates or of a key, and not the path of a file."""
    return _PEM in value


def trusting_context(authorities: str | None) -> ssl.SSLContext:
    """A client's context that verifies servers by ``authorities``, a path or PEM text; None: those of the machine.

    Raises OSError for a missing file and for what is not PEM.
    """
    if authorities is None:
        return ssl.create_default_context()
    with _path_of(authorities) as path:
        return ssl.create_default_context(cafile=path)


def add_authorities(context: ssl.SSLContext, authorities: str) -> None:
    """Let ``context`` accept servers of ``authorities``, a path or PEM text, too. Raises what `trusting_context`
    raises."""
    with _path_of(authorities) as path:
        context.load_verify_locations(path)


def present_certificate(context: ssl.SSLContext, certificate: str, key: str | None, password: str = "") -> None:
    """Let ``context`` present ``certificate`` to servers. ``key`` is None if it is beside the certificate.

    Both are a path or PEM text. Raises OSError or ValueError for a missing file, for what is not PEM, for a key of
    another certificate and for a wrong ``password``. Nobody is prompted for a password.
    """
    with _path_of(certificate) as certificate_path, _path_of(key or certificate) as key_path:
        context.load_cert_chain(certificate_path, key_path, password)


@contextmanager
def _path_of(value: str) -> Iterator[str]:
    """The path of a file with ``value``: itself, or one in memory, as OpenSSL reads keys from files only. No other
    user can read that file, and no disk has it."""
    if not is_pem(value):
        yield value
        return
    descriptor = os.memfd_create("changefeed-pem")
    try:
        os.write(descriptor, value.encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
