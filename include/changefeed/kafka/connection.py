"""How to reach a Kafka cluster: the settings of kafka-python's clients, and those clients."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import kafka.errors
from kafka import KafkaConsumer
from kafka.admin import KafkaAdminClient

from changefeed.errors import BrokerUnavailableError, ChangefeedError, SettingsError
from changefeed.kafka.client_internals import UNTRUSTED, MendedClient
from changefeed.kafka.log_keys import NO_KEYS, LogKeys
from changefeed.kafka.options import client_settings, is_secret
from changefeed.kafka.refusal import refused, unavailable, untrusted

# What the guarantee rests on is not an option.
_OURS = {
    "bootstrap.servers": "bootstrap",
    "metadata.broker.list": "bootstrap",
    "transactional.id": "nothing: changefeed names its transactions itself",
    "enable.idempotence": "nothing: it is always on",
    "acks": "nothing: it is always 'all'",
    "request.required.acks": "nothing: it is always 'all'",
    "transaction.timeout.ms": "kafka.transaction_timeout_seconds",
    "compression.type": "kafka.compression",
    "compression.codec": "kafka.compression",
}
_PORT = 9092
"""Of a broker whose address has none."""


class _Quiet(logging.Handler):
    """What kafka-python says goes to DEBUG of changefeed.kafka: of a broker that is down it tells ten times a second,
    as errors, and what matters of it stands in the error that we raise."""

    def emit(self, record: logging.LogRecord) -> None:
        logging.getLogger("changefeed.kafka.client").debug("%s: %s", record.name, record.getMessage())


_theirs = logging.getLogger("kafka")
_theirs.addHandler(_Quiet(logging.INFO))  # at DEBUG it tells each request, whole
_theirs.propagate = False


@dataclass(frozen=True)
class KafkaConnection:
    """Address and options of a cluster; nothing is connected before a client is asked for.

    ``bootstrap`` is ``host:port`` with commas between several. ``options`` are named as librdkafka's (`options`).
    No call waits longer than about ``timeout_seconds`` for a broker that does not answer. ``log_keys`` sign the logs
    that a pipeline keeps there. Secrets are left out of the repr.

    Raises SettingsError for an option that changefeed sets itself.
    """

    bootstrap: str
    options: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = 10.0
    log_keys: LogKeys = NO_KEYS

    def __post_init__(self) -> None:
        for name in self.options:
            if name in _OURS:
                raise SettingsError(f"Kafka option {name!r} cannot be set here; use {_OURS[name]}")

    def __repr__(self) -> str:
        shown = {name: "***" if is_secret(name) else value for name, value in self.options.items()}
        return f"KafkaConnection(bootstrap={self.bootstrap!r}, options={shown!r})"

    def kafka_python(self) -> dict[str, Any]:
        """Keyword arguments of kafka-python's clients. Raises SettingsError for an option that cannot be followed."""
        milliseconds = int(self.timeout_seconds * 1000)
        return {
            **client_settings(self.options),
            "bootstrap_servers": [part.strip() for part in self.bootstrap.split(",")],
            "bootstrap_timeout_ms": milliseconds,
            "request_timeout_ms": milliseconds,
            "kafka_client": MendedClient,
        }

    @contextmanager
    def admin(self) -> Iterator[KafkaAdminClient]:
        """kafka-python's admin client, closed afterwards.

        Raises BrokerUnavailableError, TopicError or SettingsError instead of kafka-python's errors, also for those
        out of the block.
        """
        with self.kafka_python_errors():
            client = KafkaAdminClient(**self.kafka_python())
            try:
                yield client
            finally:
                client.close()

    @contextmanager
    def consumer(self, *, nearest: bool = False, **settings: Any) -> Iterator[KafkaConsumer]:
        """kafka-python's consumer without a group, closed afterwards. Raises as `admin` does.

        ``nearest`` lets a replica in `client.rack` answer, which may be behind the leader: for readers that know from
        the leader where a partition ends.
        """
        with self.kafka_python_errors():
            ours: dict[str, Any] = {"group_id": None, "allow_auto_create_topics": False}
            if nearest and "client.rack" in self.options:
                ours["client_rack"] = self.options["client.rack"]
            consumer = KafkaConsumer(**{**self.kafka_python(), **ours, **settings})
            try:
                yield consumer
            finally:
                consumer.close()

    @contextmanager
    def kafka_python_errors(self) -> Iterator[None]:
        """Errors of ours in place of kafka-python's, for a block that asks the cluster for something."""
        try:
            yield
        except ChangefeedError:
            raise
        except kafka.errors.KafkaError as error:
            if UNTRUSTED in str(error):
                raise untrusted(self.bootstrap, str(error)) from error
            ours = refused(error, self.bootstrap, self.timeout_seconds)
            if isinstance(ours, BrokerUnavailableError):
                ours = unavailable(self.bootstrap, self.timeout_seconds, f"{error}; {self._looked_at()}")
            raise ours from error

    def _looked_at(self) -> str:
        """What a plain connection to each broker meets: the client says only for how long it waited.

        Raises SettingsError where TLS is not agreed on.
        """
        context: ssl.SSLContext | None = client_settings(self.options).get("ssl_context")
        seen = []
        for address in self.bootstrap.split(","):
            parts = urlsplit(f"//{address.strip()}")
            try:
                with socket.create_connection((parts.hostname or "", parts.port or _PORT), timeout=2) as plain:
                    if context is not None:
                        context.wrap_socket(plain, server_hostname=parts.hostname).close()
                seen.append(f"{address} is open: is it a broker, and is security.protocol right?")
            except ssl.SSLError as error:
                raise untrusted(address, str(error)) from error
            except (OSError, ValueError) as error:
                seen.append(f"{address}: {error}")
        return ", ".join(seen)

    def broker_count(self) -> int:
        """How many brokers are up. Raises BrokerUnavailableError, or SettingsError where the login is refused."""
        with self.admin() as client:
            return len(client.describe_cluster()["brokers"])

    def check_options(self) -> None:
        """Look at the options, and at the files of keys and certificates that they name; no broker is asked.

        Raises SettingsError for an option that kafka-python does not have, or a value that cannot be followed.
        """
        client_settings(self.options)
