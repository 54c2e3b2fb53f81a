"""Kafka's ways to say no, in changefeed's words.

Error codes: https://kafka.apache.org/protocol#protocol_error_codes, librdkafka's own are negative.
"""

from __future__ import annotations

import kafka.errors
from confluent_kafka import KafkaError

from changefeed.errors import (
    BadRecordError,
    BrokerUnavailableError,
    ChangefeedError,
    FencedError,
    SettingsError,
    TopicError,
)

_FENCED = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}
_NO_SUCH_TOPIC = {KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART}
_NOT_ALLOWED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.POLICY_VIOLATION,
}
_NOT_LET_IN = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError._SSL,
}
_NO_TRANSACTIONS = {KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION}
BAD_RECORD = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_MSG_SIZE,
    KafkaError.INVALID_RECORD,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_TIMESTAMP,
}


def unavailable(bootstrap: str, seconds: float, said: str) -> BrokerUnavailableError:
    """The error of a cluster that does not answer; ``said`` is what the client library says of it."""
    return BrokerUnavailableError(
        f"Kafka at {bootstrap!r} did not answer within {seconds:g} seconds ({said}). Nothing was published and the "
        "checkpoint stays where it is. Check the address, that a broker runs there, and that its advertised listener "
        "can be reached from here; the next run goes on from the same position."
    )


def refused_by_kafka_python(error: kafka.errors.KafkaError, bootstrap: str, seconds: float) -> ChangefeedError:
    """What an error of kafka-python means to a run."""
    if isinstance(error, kafka.errors.AuthorizationError | kafka.errors.PolicyViolationError):
        return TopicError(
            f"Kafka at {bootstrap!r} does not allow it: {error}. Give the principal that changefeed logs in with "
            "Describe, DescribeConfigs, Create, Read and Write on its topics, and Write on its transactional ids."
        )
    if "uthentication" in f"{type(error).__name__} {error}" or "SSL" in str(error):
        return SettingsError(f"Kafka at {bootstrap!r} refuses the login: {error}. Check the options sasl.* and ssl.*.")
    if isinstance(error, kafka.errors.UnsupportedVersionError):
        return TopicError(
            f"Kafka at {bootstrap!r} is too old for this: {error}. changefeed needs Kafka 2.5 or newer; look with "
            "kafka-broker-api-versions.sh whether each broker is."
        )
    if isinstance(error, kafka.errors.UnknownTopicOrPartitionError):
        return TopicError(f"Kafka at {bootstrap!r} has no such topic or partition: {error}. Was it removed?")
    return unavailable(bootstrap, seconds, str(error))


def refused_by_librdkafka(error: KafkaError, bootstrap: str, wanted: str) -> ChangefeedError:
    """What an error of librdkafka means to a run that tried ``wanted``."""
    code, said = error.code(), f"{error.name()}: {error.str()}"
    if code in _FENCED:
        return FencedError(
            f"{wanted}: another producer took over the transactional id, or the transaction outlived its timeout "
            f"({said}). A newer attempt of this pipeline is at work, or this one stood still for too long; what it had "
            "not committed is aborted, and the next attempt publishes it."
        )
    if code in _NO_SUCH_TOPIC:
        return TopicError(
            f"{wanted}: Kafka at {bootstrap!r} has no such topic or partition ({said}). It was removed, or made "
            "again with fewer partitions, while the run was under way. Nothing of the open transaction is visible; "
            "the next run makes the topic again."
        )
    if code in _NOT_ALLOWED:
        return TopicError(
            f"{wanted}: Kafka at {bootstrap!r} does not allow it ({said}). Give the principal that changefeed logs "
            "in with Write and Describe on its topics, and on transactional ids that begin with 'changefeed.'."
        )
    if code in _NOT_LET_IN:
        return SettingsError(
            f"{wanted}: Kafka at {bootstrap!r} refuses the login ({said}). Check the options sasl.* and ssl.*."
        )
    if code in _NO_TRANSACTIONS:
        return TopicError(
            f"{wanted}: the broker at {bootstrap!r} has no transactions ({said}). changefeed needs Kafka 2.5 or newer."
        )
    if code in BAD_RECORD:
        return BadRecordError(
            f"{wanted}: Kafka at {bootstrap!r} refused a batch of records ({said}). Raise max.message.bytes of the "
            "topic, or set on_bad_record: dead_letter."
        )
    return BrokerUnavailableError(
        f"{wanted}: Kafka at {bootstrap!r} cannot do it now ({said}). What was not committed is aborted, and the next "
        "run publishes it. If it stays so: is every broker up, and can the cluster hold __transaction_state "
        "(transaction.state.log.replication.factor, at most the number of brokers)?"
    )
