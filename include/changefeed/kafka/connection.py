"""How to reach a Kafka cluster: one set of settings for the two client libraries.

confluent-kafka (librdkafka) carries the rows; kafka-python carries topics, offsets and the reading of the commit
log. A pipeline's YAML names options as librdkafka does:
https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

import kafka.errors
from confluent_kafka import KafkaException, Producer
from kafka import KafkaConsumer
from kafka.admin import KafkaAdminClient

from changefeed.errors import BrokerUnavailableError, ChangefeedError, SettingsError, did_you_mean
from changefeed.kafka.refusal import refused_by_kafka_python, refused_by_librdkafka, unavailable

# Everything librdkafka says goes here, at DEBUG: a broker that is down makes it log ten lines a second, and what
# matters of it stands in the error that we raise.
_log = logging.getLogger("changefeed.kafka.librdkafka")

_KAFKA_PYTHON = {
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_name",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.crl.location": "ssl_crlfile",
    "ssl.cipher.suites": "ssl_ciphers",
    "client.id": "client_id",
    "client.rack": "client_rack",
}
_SSL_CHECKS = {"ssl.endpoint.identification.algorithm", "enable.ssl.certificate.verification"}
_OPTIONS = sorted({*_KAFKA_PYTHON, *_SSL_CHECKS})
"""What may be set of security; librdkafka's own tuning may be set too."""

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
_SECRET_WORDS = ("password", "secret", "pem", "token", "jaas", "oauthbearer")


def _is_secret(option: str) -> bool:
    return any(word in option for word in _SECRET_WORDS)


class _Quiet:
    """The logger that librdkafka is handed."""

    def log(self, _level: int, text: str, *values: object) -> None:
        _log.debug(text, *values)


@dataclass(frozen=True)
class KafkaConnection:
    """Address and options of a cluster; nothing is connected before a client is asked for.

    ``bootstrap`` is ``host:port`` with commas between several. ``options`` are named as librdkafka's. No call
    waits longer than about ``timeout_seconds`` for a broker that does not answer. Secrets are left out of the repr.

    Raises SettingsError for an option that changefeed sets itself.
    """

    bootstrap: str
    options: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = 10.0

    def __post_init__(self) -> None:
        for name in self.options:
            if name in _OURS:
                raise SettingsError(f"Kafka option {name!r} cannot be set here; use {_OURS[name]}")

    def __repr__(self) -> str:
        shown = {name: "***" if _is_secret(name) else value for name, value in self.options.items()}
        return f"KafkaConnection(bootstrap={self.bootstrap!r}, options={shown!r})"

    def librdkafka(self, **extra: str | int | float | bool) -> dict[str, Any]:
        """librdkafka's configuration; ``extra`` with underscores for dots (``linger_ms=50``) wins."""
        return {
            "bootstrap.servers": self.bootstrap,
            **self.options,
            **{name.replace("_", "."): value for name, value in extra.items()},
        }

    def kafka_python(self) -> dict[str, Any]:
        """The same settings as keyword arguments of kafka-python's clients.

        Options of librdkafka's own tuning have no counterpart and are left out. Raises SettingsError for an option of
        security that kafka-python cannot follow: without it the two would not speak to the cluster alike.
        """
        values: dict[str, Any] = {"bootstrap_servers": [part.strip() for part in self.bootstrap.split(",")]}
        for name, value in self.options.items():
            if name in _KAFKA_PYTHON:
                values[_KAFKA_PYTHON[name]] = value
            elif name.startswith(("sasl.", "ssl.")) and name not in _SSL_CHECKS:
                raise SettingsError(
                    f"Kafka option {name!r} is not supported{did_you_mean(name, _OPTIONS)}: topics and the commit log "
                    f"are read by kafka-python, which has no such option. Supported: {', '.join(_OPTIONS)}"
                )
        if "security_protocol" in values:
            values["security_protocol"] = values["security_protocol"].upper()
        if self.options.get("ssl.endpoint.identification.algorithm") == "none":
            values["ssl_check_hostname"] = False
        if self.options.get("enable.ssl.certificate.verification") == "false":
            values["ssl_context"] = self._unverified(values)
        milliseconds = int(self.timeout_seconds * 1000)
        return {**values, "bootstrap_timeout_ms": milliseconds, "request_timeout_ms": milliseconds}

    @staticmethod
    def _unverified(values: dict[str, Any]) -> ssl.SSLContext:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if "ssl_certfile" in values:
            context.load_cert_chain(values["ssl_certfile"], values.get("ssl_keyfile"), values.get("ssl_password"))
        return context

    @contextmanager
    def admin(self) -> Iterator[KafkaAdminClient]:
        """kafka-python's admin client, closed afterwards.

        Raises BrokerUnavailableError, TopicError or SettingsError instead of kafka-python's errors, also for those
        out of the block.
        """
        with self._kafka_python_errors():
            client = KafkaAdminClient(**self.kafka_python())
            try:
                yield client
            finally:
                client.close()

    @contextmanager
    def consumer(self, **settings: Any) -> Iterator[KafkaConsumer]:
        """kafka-python's consumer without a group, closed afterwards. Raises as `admin` does."""
        with self._kafka_python_errors():
            values = self.kafka_python()
            consumer = KafkaConsumer(**{**values, "group_id": None, "allow_auto_create_topics": False, **settings})
            try:
                yield consumer
            finally:
                consumer.close()

    @contextmanager
    def _kafka_python_errors(self) -> Iterator[None]:
        try:
            yield
        except ChangefeedError:
            raise
        except kafka.errors.KafkaError as error:
            ours = refused_by_kafka_python(error, self.bootstrap, self.timeout_seconds)
            if isinstance(ours, BrokerUnavailableError):
                ours = unavailable(self.bootstrap, self.timeout_seconds, f"{error}; {self._looked_at()}")
            raise ours from error

    def _looked_at(self) -> str:
        """What a plain connection to each broker meets: the client says only for how long it waited."""
        seen = []
        for address in self.bootstrap.split(","):
            parts = urlsplit(f"//{address.strip()}")
            try:
                socket.create_connection((parts.hostname or "", parts.port or _PORT), timeout=2).close()
                seen.append(f"{address} is open: is it a broker, and is security.protocol right?")
            except (OSError, ValueError) as error:
                seen.append(f"{address}: {error}")
        return ", ".join(seen)

    def producer(self, **extra: str | int | float | bool) -> Producer:
        """confluent-kafka's producer; it connects in the background. Raises SettingsError for an unknown option."""
        try:
            return Producer(cast(Any, self.librdkafka(**extra)), logger=cast(Any, _Quiet()))
        except KafkaException as error:
            said = self._without_secrets(error.args[0].str())
            unknown = next((name for name in self.options if f'"{name}"' in said), "")
            raise SettingsError(
                f"an option of the Kafka connection is wrong: {said}{did_you_mean(unknown, _OPTIONS)}. Options are "
                "named as librdkafka's: https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md"
            ) from None

    def _without_secrets(self, text: str) -> str:
        """``text`` of a library, which may quote the value of an option."""
        for name, value in self.options.items():
            if value and _is_secret(name):
                text = text.replace(value, "***")
        return text

    def refused(self, error: KafkaException, wanted: str) -> ChangefeedError:
        """The error of ours that says what librdkafka's does, where ``wanted`` says what for."""
        return refused_by_librdkafka(error.args[0], self.bootstrap, wanted)

    def broker_count(self) -> int:
        """How many brokers are up. Raises BrokerUnavailableError, or SettingsError where the login is refused."""
        with self.admin() as client:
            return len(client.describe_cluster()["brokers"])

    def check_options(self) -> None:
        """Raises SettingsError for an option that a client does not know, or a value that it does not take."""
        self.producer()
        self.kafka_python()
