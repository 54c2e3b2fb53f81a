"""The connection to a Kafka cluster: settings for kafka-python's clients, and the clients."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import kafka.errors
from kafka import KafkaConsumer
from kafka.admin import KafkaAdminClient

from changefeed.errors import BrokerUnavailableError, ChangefeedError, SettingsError
from changefeed.kafka.client_internals import UNTRUSTED, PatchedClient, is_well
from changefeed.kafka.log_keys import NO_KEYS, LogKeys
from changefeed.kafka.options import client_settings, is_secret
from changefeed.kafka.refusal import (
    refusal_error,
    renewed_login_error,
    unavailable_error,
    untrusted_error,
)
from changefeed.kept_clients import kept_client
from changefeed.model.password_source import PasswordSource

# Users cannot set options that exactly-once delivery depends on.
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
_NO_CONTROLLER = "Failed to find active controller"
"""The text of the RuntimeError that kafka-python raises while the cluster elects a controller."""
_PORT = 9092
"""Default port of a broker address."""


class _Admin:
    """An admin client that can be kept."""

    def __init__(self, connection: KafkaConnection) -> None:
        self.client = KafkaAdminClient(**connection.kafka_python())

    def is_well(self) -> bool:
        return is_well(self.client)

    def close(self) -> None:
        self.client.close()


class _Quiet(logging.Handler):
    """Passes kafka-python's log records to the logger changefeed.kafka at level DEBUG. kafka-python logs ten errors a
    second for a broker that is down; the error that changefeed raises has the important part of them."""

    def emit(self, record: logging.LogRecord) -> None:
        logging.getLogger("changefeed.kafka.client").debug("%s: %s", record.name, record.getMessage())


_theirs = logging.getLogger("kafka")
_theirs.addHandler(_Quiet(logging.INFO))  # at DEBUG it logs each request in full
_theirs.propagate = False


@dataclass(frozen=True)
class KafkaConnection:
    """Address and options of a cluster; a connection opens with the first client.

    ``bootstrap`` is ``host:port``, or several separated by commas. ``options`` have the names of librdkafka's options
    (`options`). No call waits longer than about ``timeout_seconds`` for a broker that does not answer. ``log_keys``
    sign the pipeline's logs in the cluster. ``password_source``, if any, returns the password or the token of each
    login, in place of the option `sasl.password`. The repr has no secrets.

    Raises SettingsError for an option that changefeed sets itself.
    """

    bootstrap: str
    options: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = 10.0
    log_keys: LogKeys = NO_KEYS
    password_source: PasswordSource | None = None

    def __post_init__(self) -> None:
        for name in self.options:
            if name in _OURS:
                raise SettingsError(f"Kafka option {name!r} cannot be set here; use {_OURS[name]}")

    def __repr__(self) -> str:
        shown = {name: "***" if is_secret(name) else value for name, value in self.options.items()}
        return f"KafkaConnection(bootstrap={self.bootstrap!r}, options={shown!r})"

    def kafka_python(self) -> dict[str, Any]:
        """Keyword arguments of kafka-python's clients. Raises SettingsError for an unsupported option."""
        milliseconds = int(self.timeout_seconds * 1000)
        renewing = partial(PatchedClient, new_password=self._new_password)
        return {
            **self._client_settings(),
            "bootstrap_servers": [part.strip() for part in self.bootstrap.split(",")],
            "bootstrap_timeout_ms": milliseconds,
            "request_timeout_ms": milliseconds,
            "kafka_client": PatchedClient if self.password_source is None else renewing,
        }

    def _client_settings(self) -> dict[str, Any]:
        return client_settings(self.options, renews_password=self.password_source is not None)

    def _new_password(self, host: str, port: int) -> str:
        assert self.password_source is not None, "kafka_python passes this function only with a source"
        return self.password_source.password(host, port, self.options.get("sasl.username", ""))

    @contextmanager
    def admin(self, *, is_new: bool = False) -> Iterator[KafkaAdminClient]:
        """kafka-python's admin client, closed afterwards if the process keeps no clients (`kept_clients`).

        One that ``is_new`` knows all brokers that are up now. Raises BrokerUnavailableError, TopicError or
        SettingsError instead of kafka-python's errors, also for errors raised in the block.
        """
        with self.kafka_python_errors():
            if is_new:
                with closing(_Admin(self)) as opened:
                    yield opened.client
            else:
                with kept_client(self, "admin", lambda: _Admin(self)) as kept:
                    yield kept.client

    @contextmanager
    def consumer(self, *, nearest: bool = False, **settings: Any) -> Iterator[KafkaConsumer]:
        """kafka-python's consumer without a group, closed afterwards. Raises what `admin` raises.

        With ``nearest`` a replica in `client.rack` may answer, which may lag behind the leader. Use it for readers that
        got the end of a partition from the leader.
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
        """In the block, replace kafka-python's errors by changefeed's errors."""
        try:
            yield
        except ChangefeedError:
            raise
        except kafka.errors.KafkaError as error:
            if UNTRUSTED in str(error):
                raise untrusted_error(self.bootstrap, str(error)) from error
            if renewed := renewed_login_error(error, self.bootstrap):
                raise renewed from error
            ours = refusal_error(error, self.bootstrap, self.timeout_seconds)
            if isinstance(ours, BrokerUnavailableError):
                ours = unavailable_error(self.bootstrap, self.timeout_seconds, f"{error}; {self._probe_brokers()}")
            raise ours from error
        except RuntimeError as error:
            if _NO_CONTROLLER not in str(error):
                raise
            raise unavailable_error(self.bootstrap, self.timeout_seconds, str(error)) from error

    def _probe_brokers(self) -> str:
        """The result of a plain TCP connection to each broker, for error messages: kafka-python only reports how long
        it waited.

        Raises SettingsError if TLS negotiation fails, unless the connection is closed during it: a proxy without a
        broker does that, and a broker that restarts.
        """
        context: ssl.SSLContext | None = self._client_settings().get("ssl_context")
        seen = []
        for address in self.bootstrap.split(","):
            parts = urlsplit(f"//{address.strip()}")
            try:
                with socket.create_connection((parts.hostname or "", parts.port or _PORT), timeout=2) as plain:
                    if context is not None:
                        context.wrap_socket(plain, server_hostname=parts.hostname).close()
                seen.append(f"{address} is open: is it a broker, and is security.protocol right?")
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError):
                seen.append(
                    f"{address} closed the connection during the TLS handshake: if it always does, is it the port of "
                    "the broker's TLS listener?"
                )
            except ssl.SSLError as error:
                raise untrusted_error(address, str(error)) from error
            except (OSError, ValueError) as error:
                seen.append(f"{address}: {error}")
        return ", ".join(seen)

    def broker_count(self) -> int:
        """The number of brokers that are up. Raises BrokerUnavailableError, or SettingsError if the login is
        refused."""
        with self.admin() as client:
            return len(client.describe_cluster()["brokers"])

    def check_options(self) -> None:
        """Check the options, and the files of keys and certificates that they name, without a broker.

        Raises SettingsError for an option that kafka-python does not have, or an unsupported value.
        """
        self._client_settings()
