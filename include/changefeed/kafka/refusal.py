"""Converts errors of Kafka to changefeed's errors.

Error codes: https://kafka.apache.org/protocol#protocol_error_codes, each a class of kafka.errors.
"""

from __future__ import annotations

from kafka import errors

from changefeed.errors import (
    BadRecordError,
    BrokerLoginError,
    BrokerUnavailableError,
    ChangefeedError,
    FencedError,
    SettingsError,
    TopicError,
)
from changefeed.kafka.client_internals import NOT_AUTHENTICATED, RenewedLoginError

_FENCED = (
    errors.ProducerFencedError,
    errors.InvalidProducerEpochError,
    errors.InvalidTxnStateError,  # the brokers ended the transaction
    errors.TransactionCoordinatorFencedError,
)
_NO_SUCH_TOPIC = (errors.UnknownTopicOrPartitionError, errors.UnknownTopicIdError, errors.InconsistentTopicIdError)
_NOT_ALLOWED = (errors.AuthorizationError, errors.PolicyViolationError)
_TOO_OLD = (errors.UnsupportedVersionError, errors.UnsupportedForMessageFormatError)
_BAD_RECORD = (
    errors.MessageSizeTooLargeError,
    errors.RecordListTooLargeError,
    errors.InvalidRecordError,
    errors.CorruptRecordError,
    errors.InvalidTimestampError,
    errors.UnsupportedCompressionTypeError,
)


def unavailable_error(bootstrap: str, seconds: float, reason: str) -> BrokerUnavailableError:
    """The error of a cluster that does not answer; ``reason`` is the text of the client library."""
    return BrokerUnavailableError(
        f"Kafka at {bootstrap!r} did not answer within {seconds:g} seconds ({reason}). Nothing was published and the "
        "checkpoint stays where it is. Check the address, that a broker runs there, and that its advertised listener "
        "can be reached from here; the next run goes on from the same position."
    )


def untrusted_error(address: str, reason: str) -> SettingsError:
    """The error of a broker with which the TLS handshake failed; ``reason`` is the text of Python's ssl."""
    return SettingsError(
        f"Kafka at {address!r} and this machine do not agree on TLS: {reason}. Check the options security.protocol, "
        "ssl.ca.location, ssl.endpoint.identification.algorithm and ssl.cipher.suites of the Kafka connection, and "
        "that it is the port of the broker's TLS listener."
    )


def renewed_login_error(error: BaseException, bootstrap: str, purpose: str = "") -> ChangefeedError | None:
    """The error of a login whose password is new each time, so that a retry may succeed; None for other errors."""
    login: object = error
    while not isinstance(login, RenewedLoginError):
        if not isinstance(login, BaseException):
            return None
        login = login.args[0] if len(login.args) == 1 and isinstance(login.args[0], Exception) else login.__cause__
    before = f"{purpose}: " if purpose else ""
    if login.no_password is not None:
        kind = SettingsError if isinstance(login.no_password, SettingsError) else BrokerUnavailableError
        return kind(f"{before}{login.no_password}")
    return BrokerUnavailableError(
        f"{before}Kafka at {bootstrap!r} refuses the login with the password or token that `passwords` of the site's "
        f"file returned for it: {login}. Nothing of this login was published. Run again: the next login gets another "
        "one. If it never succeeds, check the options sasl.*, and what the command or function returns."
    )


def refusal_error(error: errors.KafkaError, bootstrap: str, seconds: float) -> ChangefeedError:
    """changefeed's error for kafka-python's ``error`` in a request that reads from a cluster."""
    if isinstance(error, _NOT_ALLOWED):
        return TopicError(
            f"Kafka at {bootstrap!r} does not allow it: {error}. Give the principal that changefeed logs in with "
            "Describe, DescribeConfigs, Create, Read and Write on its topics, and Write on its transactional ids."
        )
    if _is_login(error):
        return BrokerLoginError(
            f"Kafka at {bootstrap!r} refuses the login: {error}. Check the options sasl.* and ssl.*."
        )
    if isinstance(error, _TOO_OLD):
        return TopicError(
            f"Kafka at {bootstrap!r} is too old for this: {error}. changefeed needs Kafka 2.5 or newer; look with "
            "kafka-broker-api-versions.sh whether each broker is."
        )
    if isinstance(error, _NO_SUCH_TOPIC):
        return TopicError(f"Kafka at {bootstrap!r} has no such topic or partition: {error}. Was it removed?")
    return unavailable_error(bootstrap, seconds, str(error))


def write_error(error: Exception, bootstrap: str, purpose: str) -> ChangefeedError:
    """changefeed's error for kafka-python's ``error`` in a write or at the start of a transaction; ``purpose`` ("to
    ...") begins its message."""
    while len(error.args) == 1 and isinstance(error.args[0], errors.KafkaError):
        error = error.args[0]  # kafka-python wraps some errors in a plain KafkaError
    if renewed := renewed_login_error(error, bootstrap, purpose):
        return renewed
    reason = f"{type(error).__name__}: {error}"
    if isinstance(error, _FENCED):
        return FencedError(
            f"{purpose}: another producer took over the transactional id, or the transaction outlived its timeout "
            f"({reason}). A newer attempt of this pipeline is running, or this one paused for too long. What it "
            "had not committed is aborted, and the next attempt publishes it."
        )
    if isinstance(error, _NO_SUCH_TOPIC):
        return TopicError(
            f"{purpose}: Kafka at {bootstrap!r} has no such topic or partition ({reason}). It was removed, or made "
            "again with fewer partitions, while the run was under way. Nothing of the open transaction is visible; "
            "the next run makes the topic again."
        )
    if isinstance(error, _NOT_ALLOWED):
        return TopicError(
            f"{purpose}: Kafka at {bootstrap!r} does not allow it ({reason}). Give the principal that changefeed logs "
            "in with Write and Describe on its topics, and on transactional ids that begin with 'changefeed.'."
        )
    if _is_login(error):
        return BrokerLoginError(
            f"{purpose}: Kafka at {bootstrap!r} refuses the login ({reason}). Check the options sasl.* and ssl.*."
        )
    if isinstance(error, _TOO_OLD):
        return TopicError(
            f"{purpose}: the broker at {bootstrap!r} has no transactions ({reason}). changefeed needs Kafka 2.5 or "
            "newer."
        )
    if isinstance(error, _BAD_RECORD):
        return BadRecordError(
            f"{purpose}: Kafka at {bootstrap!r} refused a batch of records ({reason}). Raise max.message.bytes of the "
            "topic, or set on_bad_record: dead_letter."
        )
    if isinstance(error, errors.InvalidTransactionTimeoutError):
        return SettingsError(
            f"{purpose}: the brokers at {bootstrap!r} allow no transaction timeout as long as that "
            f"({type(error).__name__}). Nothing "
            "was published. Set kafka.transaction_timeout_seconds of the pipeline to the brokers' "
            "transaction.max.timeout.ms or less, and kafka.transaction_seconds to less than that; or raise what the "
            "brokers allow."
        )
    return BrokerUnavailableError(
        f"{purpose}: Kafka at {bootstrap!r} cannot do it now ({reason}). What was not committed is aborted, and the "
        "next run publishes it. If it stays so: is every broker up, and can the cluster hold __transaction_state "
        "(transaction.state.log.replication.factor, at most the number of brokers)?"
    )


_LOST_DURING_LOGIN = ("EOF", "Authentication timed out")
"""What the text of an error has if the connection was closed during a login, or the broker did not answer it."""


def _is_login(error: Exception) -> bool:
    """Whether the broker refused a login, or TLS failed."""
    text = f"{type(error).__name__} {error}"
    if isinstance(error, NOT_AUTHENTICATED):
        return True
    return ("uthentication" in text or "SSL" in text) and not any(words in text for words in _LOST_DURING_LOGIN)
