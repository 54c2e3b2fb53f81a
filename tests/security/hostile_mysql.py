"""A fake MySQL server that requests unsafe logins, and records what clients send."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import socket
import ssl
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_TLS = 0x0800
_CAPABILITIES = 0x0001 | 0x0004 | 0x0200 | 0x2000 | 0x8000 | 0x80000
"""LONG_PASSWORD, LONG_FLAG, PROTOCOL_41, TRANSACTIONS, SECURE_CONNECTION, PLUGIN_AUTH."""
OK = bytes([0, 0, 0, 2, 0, 0, 0])
SALT = b"abcdefghijklmnopqrst"


def switch_to(plugin: str) -> bytes:
    """The packet that switches to the authentication ``plugin``."""
    prompt = b"\x04Password: " if plugin == "dialog" else SALT + b"\0"
    return b"\xfe" + plugin.encode() + b"\0" + prompt


def local_infile(path: str) -> bytes:
    """The packet that requests the client's file ``path`` (LOCAL INFILE), as an answer to any statement."""
    return b"\xfb" + path.encode()


@dataclass(frozen=True)
class Certificate:
    """A self-signed certificate for 127.0.0.1, in a file with its key."""

    file: Path

    @classmethod
    def create(cls, folder: Path, name: str = "server") -> Certificate:
        """Create a new certificate in ``folder``."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .sign(key, hashes.SHA256())
        )
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file = folder / f"{name}.pem"
        file.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
        return cls(file)


class HostileMysql:
    """Greets each client with the authentication ``plugin``, and answers its packets with ``answers`` in turn.

    With a ``certificate`` it offers TLS. ``heard`` are all bytes that clients sent, decrypted.
    """

    def __init__(
        self, answers: Sequence[bytes], *, plugin: str = "mysql_native_password", certificate: Certificate | None = None
    ) -> None:
        self.answers, self.plugin, self.certificate = answers, plugin, certificate
        self.heard = b""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> HostileMysql:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # it is closed already
            self._server.shutdown(socket.SHUT_RDWR)  # ends `accept`, which may outlive the socket
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            with contextlib.suppress(OSError), client:
                client.settimeout(10)
                self._serve(client)

    def _serve(self, client: socket.socket) -> None:
        client.sendall(_packet(0, self._greeting()))
        answers = list(self.answers)
        while packet := _read(client):
            number, body = packet
            if self.certificate and len(body) == 32 and not isinstance(client, ssl.SSLSocket):
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(self.certificate.file)
                client = context.wrap_socket(client, server_side=True)
                continue
            self.heard += body
            if not answers:
                return
            client.sendall(_packet(number + 1, answers.pop(0)))

    def _greeting(self) -> bytes:
        capabilities = _CAPABILITIES | (_TLS if self.certificate else 0)
        return (
            b"\x0a8.4.0\0"
            + struct.pack("<I", 1)
            + SALT[:8]
            + b"\0"
            + struct.pack("<HBHHB10x", capabilities & 0xFFFF, 45, 2, capabilities >> 16, 21)
            + SALT[8:]
            + b"\0"
            + self.plugin.encode()
            + b"\0"
        )


class StrippingProxy:
    """A proxy of the server at ``port`` that removes the TLS offer from its greeting (man in the middle)."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.heard = b""
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> StrippingProxy:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # it is closed already
            self._server.shutdown(socket.SHUT_RDWR)  # ends `accept`, which may outlive the socket
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            number, greeting = _read(server) or (0, b"")
            at = greeting.index(b"\0") + 1 + 4 + 8 + 1
            (capabilities,) = struct.unpack_from("<H", greeting, at)
            assert capabilities & _TLS, "the server offers TLS"
            stripped = greeting[:at] + struct.pack("<H", capabilities & ~_TLS) + greeting[at + 2 :]
            client.sendall(_packet(number, stripped))
            for ends in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(*ends, ends[0] is client), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, from_client: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.heard += data if from_client else b""
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def _packet(number: int, body: bytes) -> bytes:
    return struct.pack("<I", len(body))[:3] + bytes([number % 256]) + body


def _read(connection: socket.socket) -> tuple[int, bytes] | None:
    header = _exactly(connection, 4)
    if len(header) < 4:
        return None
    return header[3], _exactly(connection, int.from_bytes(header[:3], "little"))


def _exactly(connection: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size and (more := connection.recv(size - len(read))):
        read += more
    return read
