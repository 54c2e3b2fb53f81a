"""The keys of a pipeline's logs: records of the commit log and of the schema history are signed with them.

Without signatures anyone who may write to these topics could change what changefeed publishes. A signature is an
HMAC-SHA256 (RFC 2104) over the record's topic, partition, key and value and the time of signing, in a header of the
record; its key is derived from the pipeline's secret by HKDF (RFC 5869). So a forged record, a changed record and a
copy of a record from another log are detected. A copy of a record that is written to the same log later is detected by
the time of signing, if the broker sets the timestamps.
"""

from __future__ import annotations

import hmac
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import urandom
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from changefeed.kafka.partition_reader import KafkaRecord

SIGNATURE = "changefeed.signature"
"""The header with the signature of a record: the time of signing (eight bytes, milliseconds since 1970) and the
HMAC."""
OLDEST_SECONDS = 900
"""How far the broker's timestamp may be after the time of signing, in seconds: Kafka's limit for an open
transaction."""
_TIME_BYTES, _NONCE_BYTES = 8, 12


@dataclass(frozen=True)
class LogKeys:
    """The ``secrets`` of a pipeline's logs. The first one signs; records signed with any of them are accepted. Without
    secrets no record is signed, and every record is accepted."""

    secrets: tuple[str, ...] = field(default=(), repr=False)

    def __bool__(self) -> bool:
        return bool(self.secrets)

    def headers(self, topic: str, key: bytes, value: bytes | None) -> list[tuple[str, bytes]]:
        """The headers, with the signature, of a record that is written to partition 0 of ``topic``."""
        if not self.secrets:
            return []
        at = int(time.time() * 1000).to_bytes(_TIME_BYTES, "big")
        return [(SIGNATURE, at + _mac(self.secrets[0], topic, 0, at, key, value))]

    def fault(self, record: KafkaRecord) -> str:
        """Why ``record`` has no valid signature for its place in this log; '' if it has one."""
        if not self.secrets:
            return ""
        signature = next((value for name, value in record.headers if name == SIGNATURE), b"")
        if not signature:
            return "it is not signed"
        at, mac = signature[:_TIME_BYTES], signature[_TIME_BYTES:]
        signed = (record.topic, record.partition, at, record.key or b"", record.value)
        if not any(hmac.compare_digest(mac, _mac(secret, *signed)) for secret in self.secrets):
            return "its signature is not of this record under commit_log.key"
        late_ms = record.timestamp_ms - int.from_bytes(at, "big")
        if record.stamped_by_broker and late_ms > OLDEST_SECONDS * 1000:
            return f"it was signed {late_ms // 1000} seconds before it was written: an old record was written again"
        return ""


def is_signed(record: KafkaRecord) -> bool:
    """Whether ``record`` has a signature, of any key."""
    return any(name == SIGNATURE for name, _ in record.headers)


NO_KEYS = LogKeys()
"""The keys of a pipeline without `commit_log.key`."""


def _mac(secret: str, topic: str, partition: int, at: bytes, key: bytes, value: bytes | None) -> bytes:
    parts = (topic.encode(), str(partition).encode(), at, key, b"" if value is None else b"=" + value)
    text = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hmac.digest(_derive_key(secret, "signature of logs"), text, "sha256")


_DERIVED: dict[tuple[str, str], bytes] = {}


def _derive_key(secret: str, purpose: str) -> bytes:
    if (secret, purpose) not in _DERIVED:
        from cryptography.hazmat.primitives.hashes import SHA256  # imported only by pipelines that have a secret
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        function = HKDF(SHA256(), 32, salt=None, info=f"changefeed: {purpose}".encode())
        _DERIVED[secret, purpose] = function.derive(secret.encode())
    return _DERIVED[secret, purpose]


@dataclass(frozen=True)
class TextCipher:
    """Encrypts secret texts in a log that others may read (AES-256-GCM). The first of ``secrets`` encrypts; any of them
    decrypts."""

    secrets: Sequence[str] = field(repr=False)

    def encrypt(self, text: str, about: str) -> str:
        """The encrypted ``text``, as text; only the same ``about`` decrypts it."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = urandom(_NONCE_BYTES)
        sealed = AESGCM(_derive_key(self.secrets[0], "texts of logs")).encrypt(nonce, text.encode(), about.encode())
        return urlsafe_b64encode(nonce + sealed).decode()

    def decrypt(self, text: str, about: str) -> str | None:
        """The text that was encrypted; None if no secret fits or the text was changed."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            sealed = urlsafe_b64decode(text)
        except ValueError:
            return None
        for secret in self.secrets:
            try:
                cipher = AESGCM(_derive_key(secret, "texts of logs"))
                return cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], about.encode()).decode()
            except (InvalidTag, ValueError):
                continue
        return None
