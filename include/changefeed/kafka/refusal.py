"""Kafka's ways to say no, in changefeed's words.

Error codes: https://kafka.apache.org/protocol#protocol_error_codes, each a class of kafka.errors.
"""

from __future__ import annotations

from kafka import errors

from changefeed.errors import (
    BadRecordError,
    BrokerUnavailableError,
    ChangefeedError,
    FencedError,
    SettingsError,
    TopicError,
)
from changefeed.kafka.client_internals import NOT_LET_IN

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


def unavailable(bootstrap: str, seconds: float, said: str) -> BrokerUnavailableError:
    """The error of a cluster that does not answer; ``said`` is what the client library says of it."""
    return BrokerUnavailableError(
        f"Kafka at {bootstrap!r} did not answer within {seconds:g} seconds ({said}). Nothing was published and the "
        "checkpoint stays where it is. Check the address, that a broker runs there, and that its advertised listener "
        "can be reached from here; the next run goes on from the same position."
    )


def untrusted(address: str, said: str) -> SettingsError:
    """The error of a broker that TLS is not agreed on with; ``said`` is what Python's ssl says of it."""
    return SettingsError(
        f"Kafka at {address!r} and this machine do not agree on TLS: {said}. Check the options security.protocol, "
        "ssl.ca.location, ssl.endpoint.identification.algorithm and ssl.cipher.suites of the Kafka connection, and "
        "that it is the port of the broker's TLS listener."
    )


def refused(error: errors.KafkaError, bootstrap: str, seconds: float) -> ChangefeedError:
    """What an error of kafka-python means to a run that asked a cluster for something."""
    if isinstance(error, _NOT_ALLOWED):
        return TopicError(
            f"Kafka at {bootstrap!r} does not allow it: {error}. Give the principal that changefeed logs in with "
            "Describe, DescribeConfigs, Create, Read and Write on its topics, and Write on its transactional ids."
        )
    if _is_login(error):
        return SettingsError(f"Kafka at {bootstrap!r} refuses the login: {error}. Check the options sasl.* and ssl.*.")
    if isinstance(error, _TOO_OLD):
        return TopicError(
            f"Kafka at {bootstrap!r} is too old for this: {error}. changefeed needs Kafka 2.5 or newer; look with "
            "kafka-broker-api-versions.sh whether each broker is."
        )
    if isinstance(error, _NO_SUCH_TOPIC):
        return TopicError(f"Kafka at {bootstrap!r} has no such topic or partition: {error}. Was it removed?")
    return unavailable(bootstrap, seconds, str(error))


def refused_to_write(error: Exception, bootstrap: str, wanted: str) -> ChangefeedError:
    """What an error of kafka-python means to a run that tried ``wanted``, which is to write or to begin to."""
    while len(error.args) == 1 and isinstance(error.args[0], errors.KafkaError):
        error = error.args[0]  # kafka-python hands some on in a bare KafkaError
    said = f"{type(error).__name__}: {error}"
    if isinstance(error, _FENCED):
        return FencedError(
            f"{wanted}: another producer took over the transactional id, or the transaction outlived its timeout "
            f"({said}). A newer attempt of this pipeline is at work, or this one stood still for too long; what it had "
            "not committed is aborted, and the next attempt publishes it."
        )
    if isinstance(error, _NO_SUCH_TOPIC):
        return TopicError(
            f"{wanted}: Kafka at {bootstrap!r} has no such topic or partition ({said}). It was removed, or made "
            "again with fewer partitions, while the run was under way. Nothing of the open transaction is visible; "
            "the next run makes the topic again."
        )
    if isinstance(error, _NOT_ALLOWED):
        return TopicError(
            f"{wanted}: Kafka at {bootstrap!r} does not allow it ({said}). Give the principal that changefeed logs "
            "in with Write and Describe on its topics, and on transactional ids that begin with 'changefeed.'."
        )
    if _is_login(error):
        return SettingsError(
            f"{wanted}: Kafka at {bootstrap!r} refuses the login ({said}). Check the options sasl.* and ssl.*."
        )
    if isinstance(error, _TOO_OLD):
        return TopicError(
            f"{wanted}: the broker at {bootstrap!r} has no transactions ({said}). changefeed needs Kafka 2.5 or newer."
        )
    if isinstance(error, _BAD_RECORD):
        return BadRecordError(
            f"{wanted}: Kafka at {bootstrap!r} refused a batch of records ({said}). Raise max.message.bytes of the "
            "topic, or set on_bad_record: dead_letter."
        )
    if isinstance(error, errors.InvalidTransactionTimeoutError):
        return SettingsError(
            f"{wanted}: the brokers at {bootstrap!r} allow no transaction timeout as long as that "
            f"({type(error).__name__}). Nothing "
            "was published. Set kafka.transaction_timeout_seconds of the pipeline to the brokers' "
            "transaction.max.timeout.ms or less, and kafka.transaction_seconds to less than that; or raise what the "
            "brokers allow."
        )
    return BrokerUnavailableError(
        f"{wanted}: Kafka at {bootstrap!r} cannot do it now ({said}). What was not committed is aborted, and the next "
        "run publishes it. If it stays so: is every broker up, and can the cluster hold __transaction_state "
        "(transaction.state.log.replication.factor, at most the number of brokers)?"
    )


def _is_login(error: Exception) -> bool:
    return isinstance(error, NOT_LET_IN) or "uthentication" in f"{type(error).__name__} {error}" or "SSL" in str(error)
