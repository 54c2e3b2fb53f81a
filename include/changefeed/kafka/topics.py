"""The topics of a pipeline: their limits, and their creation before anything is published."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from kafka import IsolationLevel, OffsetSpec, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import RetriableError, UnknownTopicOrPartitionError, UnsupportedVersionError, for_code
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from changefeed.errors import BrokerUnavailableError, TopicError
from changefeed.kafka.connection import KafkaConnection
from changefeed.records.batch_limits import BatchLimits

_log = logging.getLogger(__name__)

_TOPIC_EXISTS, _NO_SUCH_TOPIC = 36, 3
_NOT_AUTHORIZED = (29, 31)
_RECORDS_A_REQUEST = 1_000
"""Maximum of records in the controller's log for one CreateTopics request. The controller accepts 10,000
(QuorumController's MAX_RECORDS_PER_USER_OP); with fewer the request ends long before its timeout."""
_SECONDS_A_PARTITION = 0.1
"""Time to create a partition, for timeouts: even a busy broker creates ten partitions a second, mostly many more."""

_ASK_AGAIN_SECONDS = 0.2
_NO_TOPIC_ID = str(uuid.UUID(int=0))
DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
_OLDEST = ("message.timestamp.before.max.ms", "message.timestamp.difference.max.ms")
"""The configs that limit the age of the records that a topic accepts; the second one until Kafka 3.6."""
_LIMITING = ["max.message.bytes", "cleanup.policy", "retention.ms", "compression.type", *_OLDEST]
_BROKERS_COMPRESSION = {"uncompressed": "none"} | {name: name for name in ("gzip", "snappy", "lz4", "zstd")}
"""The pipeline's names for the values of a topic's compression.type, except `producer`."""
_FOR_EVER_MS = 1 << 60


@dataclass(frozen=True)
class TopicSettings:
    """The settings of a new topic. ``replication_factor`` -1 is the broker's default. ``configs`` are Kafka's topic
    configs."""

    partitions: int = 1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TopicLimits:
    """What a topic accepts: partitions 0 to ``partitions`` - 1, and record batches up to ``max_message_bytes``.

    ``table`` names the table whose changes go to the topic, for error messages. ``topic_id`` is Kafka's id of the topic
    (KIP-516), '' for brokers before 2.8. ``keeps_ms`` is the maximum age of a record that the topic accepts and keeps
    long enough; None for any age. ``compression`` is the codec with which the broker compresses all batches of the
    topic; None if it stores them as they were sent.
    """

    partitions: int
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    table: str = ""
    topic_id: str = ""
    keeps_ms: int | None = None
    compression: str | None = None

    def for_batches(self) -> BatchLimits:
        """The limits for batches that are made now."""
        oldest_seconds = 0 if self.keeps_ms is None else int(time.time() - self.keeps_ms / 1000)
        return BatchLimits(self.max_message_bytes, oldest_seconds, self.compression)


def commit_log_settings(replication_factor: int = -1) -> TopicSettings:
    """The settings of a commit log: one partition, compacted early, in small segments, because readers read all of it.

    The topic is uncompressed whatever codec the producer uses, so that each client can read it.
    """
    return TopicSettings(
        1,
        replication_factor,
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "segment.bytes": str(4 << 20),
            "segment.ms": str(3600 * 1000),
            "min.cleanable.dirty.ratio": "0.1",
            "delete.retention.ms": str(3600 * 1000),
            "max.message.bytes": str(8 << 20),
            "message.timestamp.type": "LogAppendTime",
        },
    )


def ensure_topics(
    connection: KafkaConnection,
    required: Mapping[str, TopicSettings],
    *,
    create: bool = True,
    known: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Create the missing topics of ``required``; return the actual number of partitions of each topic. What is
    ``known``, a result of `partition_counts` of a moment ago, is not asked again.

    An existing topic is used as it is; a warning is logged if its number of partitions differs from the expected one.
    Several processes may create the same topics at the same time.

    Raises TopicError with the broker's text if it refuses a topic, and without ``create`` for missing topics;
    BrokerUnavailableError if the broker does not answer, or the cluster cannot create them now.
    """
    if not required:
        return {}
    with connection.admin() as admin:
        counts = dict(known) if known is not None else _partitions(admin, required)
        missing = [name for name in required if name not in counts]
        if missing:
            if not create:
                raise not_there(connection, {name: required[name] for name in missing})
            _create(admin, {name: required[name] for name in missing}, connection)
            counts |= _new_partitions(admin, missing, connection)
    for name, settings in required.items():
        if counts[name] != settings.partitions and name not in missing:
            required_count = settings.partitions
            _log.warning("topic %r has %d partitions, expected %d: used as it is", name, counts[name], required_count)
    return {name: counts[name] for name in required}


def _new_partitions(admin: KafkaAdminClient, names: Sequence[str], connection: KafkaConnection) -> dict[str, int]:
    """The number of partitions of each new topic of ``names``. A broker may learn of them later than another one.

    Raises BrokerUnavailableError if one is still missing after the connection's timeout.
    """
    until = time.monotonic() + connection.timeout_seconds
    while True:
        counts = _partitions(admin, names)
        lost = [name for name in names if name not in counts]
        if not lost:
            return counts
        if time.monotonic() > until:
            raise BrokerUnavailableError(
                f"topics {lost} were created, and Kafka at {connection.bootstrap!r} does not list them after "
                f"{connection.timeout_seconds:g} seconds: its brokers lag behind, or the topics were removed at the "
                "same time. Nothing was published to them. Run again: topics that are missing then are created."
            )
        time.sleep(_ASK_AGAIN_SECONDS)


def not_there(connection: KafkaConnection, missing: Mapping[str, TopicSettings]) -> TopicError:
    """The error for ``missing`` topics of a pipeline that creates no topics."""
    lines = [
        f"{name!r} ({settings.partitions} partitions" + _settings_text(settings.configs) + ")"
        for name, settings in missing.items()
    ]
    return TopicError(
        f"{len(missing)} topics are not in the cluster at {connection.bootstrap!r}, and the pipeline makes none "
        f"(`topics.create: false`): {', '.join(lines)}. Nothing was published. Make them, or leave `topics.create` out."
    )


def _settings_text(configs: Mapping[str, str]) -> str:
    return "".join(f", {key}={value}" for key, value in configs.items())


def missing_topics(connection: KafkaConnection, required: Mapping[str, TopicSettings]) -> list[str]:
    """The missing topics of ``required``, which the broker would create. Nothing is created.

    Raises TopicError with the broker's text if it would refuse a topic, and what `ensure_topics` raises.
    """
    if not required:
        return []
    with connection.admin() as admin:
        counts = _partitions(admin, required)
        missing = {name: settings for name, settings in required.items() if name not in counts}
        _create(admin, missing, connection, validate_only=True)
    return list(missing)


def _create(
    admin: KafkaAdminClient,
    required: Mapping[str, TopicSettings],
    connection: KafkaConnection,
    *,
    validate_only: bool = False,
) -> None:
    for part in _requests(required):
        _create_at_once(admin, part, connection, validate_only=validate_only)


def _requests(required: Mapping[str, TopicSettings]) -> Iterator[dict[str, TopicSettings]]:
    """``required`` in parts for one request each: a topic, each of its partitions and each of its configs count as a
    record."""
    part: dict[str, TopicSettings] = {}
    records = 0
    for name, settings in required.items():
        more = 1 + settings.partitions + len(settings.configs)
        if part and records + more > _RECORDS_A_REQUEST:
            yield part
            part, records = {}, 0
        part[name] = settings
        records += more
    if part:
        yield part


def _create_at_once(
    admin: KafkaAdminClient, required: Mapping[str, TopicSettings], connection: KafkaConnection, *, validate_only: bool
) -> None:
    asked = {
        name: {
            "num_partitions": settings.partitions,
            "replication_factor": settings.replication_factor,
            "configs": dict(settings.configs),
        }
        for name, settings in required.items()
    }
    milliseconds = int(connection.timeout_seconds * 1000)
    answer = admin.create_topics(asked, timeout_ms=milliseconds, validate_only=validate_only, raise_errors=False)
    for topic in answer["topics"]:
        code = topic["error_code"]
        if for_code(code).retriable:
            raise _not_now(topic, "created")
        if code not in (0, _TOPIC_EXISTS):
            settings = required[topic["name"]]
            remedy = (
                "Give changefeed the ACL Create" if code in _NOT_AUTHORIZED else "Change the pipeline's topic settings"
            )
            raise TopicError(
                f"topic {topic['name']!r} with {settings.partitions} partitions, replication factor "
                f"{settings.replication_factor} and configs {dict(settings.configs)} cannot be made: the broker at "
                f"{connection.bootstrap!r} says {topic['error_message'] or f'error code {code}'!r}. {remedy}, or "
                "make the topic yourself."
            )
    if not validate_only:
        admin.wait_for_topics(list(required), timeout_ms=milliseconds)


def _not_now(topic: Mapping[str, Any], done: str) -> BrokerUnavailableError:
    """The error of a topic that cannot be ``done`` for a reason that may pass."""
    words = topic.get("error_message") or f"error code {topic['error_code']}"
    return BrokerUnavailableError(
        f"topic {topic['name']!r} cannot be {done} now: Kafka answers {for_code(topic['error_code']).__name__} "
        f"({words}). Run again; if it stays so, check that the cluster has a controller and the topic's partitions "
        "have leaders, and the quotas of the principal that changefeed logs in with."
    )


def partition_counts(connection: KafkaConnection, names: Iterable[str]) -> dict[str, int]:
    """The number of partitions of each topic of ``names``; missing topics are left out.

    Raises TopicError if the ACL Describe is missing, BrokerUnavailableError if no broker answers.
    """
    with connection.admin() as admin:
        return _partitions(admin, names)


def _partitions(admin: KafkaAdminClient, names: Iterable[str]) -> dict[str, int]:
    return {name: len(topic["partitions"]) for name, topic in _describe_topics(admin, names).items()}


def _describe_topics(admin: KafkaAdminClient, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    described: dict[str, dict[str, Any]] = {}
    for topic in admin.describe_topics(list(names)):
        if topic["error_code"] == 0:
            described[topic["name"]] = topic
        elif topic["error_code"] == _NO_SUCH_TOPIC:
            continue
        elif for_code(topic["error_code"]).retriable:
            raise _not_now(topic, "described")
        else:
            raise TopicError(
                f"topic {topic['name']!r} cannot be described: Kafka's error code is {topic['error_code']} (29: the "
                "ACL Describe is missing)"
            )
    return described


def topic_limits(
    connection: KafkaConnection,
    names: Iterable[str],
    tables: Mapping[str, str] | None = None,
    *,
    must_exist: bool = True,
) -> dict[str, TopicLimits]:
    """The limits of each topic, from the broker; the driver reads them once and passes them to the tasks.

    ``tables`` has the "database.table" of each topic, for error messages. Raises TopicError for a missing topic if all
    ``must_exist``; else it is left out. Without the ACL DescribeConfigs, Kafka's default size is assumed.
    """
    asked_for = list(dict.fromkeys(names))
    if not asked_for:
        return {}
    with connection.admin() as admin:
        described = _describe_topics(admin, asked_for)
        for name in asked_for:
            if must_exist and name not in described:
                raise TopicError(
                    f"topic {name!r} is not in the cluster at {connection.bootstrap!r}: it was removed after the run "
                    "had made sure of it. Nothing of an open transaction is visible; the next run makes it again."
                )
        required = [name for name in asked_for if name in described]
        if not required:
            return {}
        asked = [ConfigResource(ConfigResourceType.TOPIC, name, _LIMITING) for name in required]
        answer: dict[str, dict[str, Any]] = dict(admin.describe_configs(asked, config_filter="all")).get("topic", {})
    limits = {}
    for name in required:
        configs = {option: str(config["value"]) for option, config in answer.get(name, {}).items()}
        topic = described[name]
        limits[name] = TopicLimits(
            len(topic["partitions"]),
            int(configs.get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES)),
            (tables or {}).get(name, ""),
            str(topic.get("topic_id") or "").replace(_NO_TOPIC_ID, ""),
            _keeps_ms(configs),
            _BROKERS_COMPRESSION.get(configs.get("compression.type", "")),
        )
    return limits


@dataclass(frozen=True)
class PartitionContents:
    """The offsets ``[first_offset, end_offset)`` of a topic-partition, and the timestamp of its newest record.

    The offsets of aborted, removed and control records are among them, so they are an upper bound of the records.
    ``newest_ms`` (Unix milliseconds) is None for an empty partition, and for brokers before Kafka 3.0.
    """

    topic: str
    partition: int
    first_offset: int
    end_offset: int
    newest_ms: int | None

    def to_json(self) -> dict[str, Any]:
        """Plain values, for the REST API."""
        return asdict(self)


def partition_contents(connection: KafkaConnection, names: Iterable[str]) -> list[PartitionContents]:
    """The contents of each partition of the topics ``names``, whatever wrote them; missing topics are left out.

    Raises TopicError if the ACL Describe is missing, BrokerUnavailableError if no broker answers.
    """
    with connection.admin() as admin:
        counts = _partitions(admin, dict.fromkeys(names))
        partitions = [TopicPartition(name, number) for name in sorted(counts) for number in range(counts[name])]
        if not partitions:
            return []
        first = admin.list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
        end = admin.list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST), IsolationLevel.READ_COMMITTED)
        newest = _newest_records(admin, partitions)
    return [
        PartitionContents(at.topic, at.partition, first[at].offset, end[at].offset, newest.get(at)) for at in partitions
    ]


def offsets_of(
    connection: KafkaConnection, partitions: Iterable[tuple[str, int]], spec: OffsetSpec
) -> dict[tuple[str, int], int]:
    """The offset of each of the ``partitions`` that ``spec`` names, also of records in open transactions.

    It asks again while a leader does not know the answer yet, as after an election. Raises BrokerUnavailableError,
    TopicError.
    """
    asked = {TopicPartition(*partition): spec for partition in partitions}
    again = Retrying(
        retry=retry_if_exception_type((RetriableError, UnknownTopicOrPartitionError)),
        wait=wait_fixed(_ASK_AGAIN_SECONDS),
        stop=stop_after_delay(connection.timeout_seconds),
        reraise=True,
    )
    with connection.admin() as admin:
        found = again(admin.list_partition_offsets, asked)
    return {(at.topic, at.partition): offset.offset for at, offset in found.items()}


def _newest_records(admin: KafkaAdminClient, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    try:
        newest = admin.list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.MAX_TIMESTAMP))
    except UnsupportedVersionError:
        return {}
    return {at: record.timestamp for at, record in newest.items() if record.timestamp >= 0}


def delete_oldest_records(connection: KafkaConnection, topic: str, partition: int, up_to: int) -> None:
    """Delete the records of a partition up to and including the offset ``up_to``, as its retention would.

    Raises TopicError if the ACL Delete is missing or the topic is only compacted, BrokerUnavailableError.
    """
    try:
        with connection.admin() as admin:
            admin.delete_records({TopicPartition(topic, partition): up_to + 1})
    except TopicError as error:
        raise TopicError(
            f"the records of partition {partition} of topic {topic!r} cannot be deleted: {error} To delete records, "
            "the principal needs Delete on the topic, and its cleanup.policy must contain delete."
        ) from error


def compacted_topics(connection: KafkaConnection, names: Iterable[str]) -> set[str]:
    """The compacted ones of the topics ``names``; without the ACL DescribeConfigs none.

    Raises BrokerUnavailableError.
    """
    return {name for name, policy in cleanup_policies(connection, names).items() if "compact" in policy}


def cleanup_policies(connection: KafkaConnection, names: Iterable[str]) -> dict[str, str]:
    """The cleanup.policy of each existing topic of ``names``; '' if the ACL DescribeConfigs is missing.

    Raises BrokerUnavailableError.
    """
    with connection.admin() as admin:
        required = list(_describe_topics(admin, dict.fromkeys(names)))
        if not required:
            return {}
        asked = [ConfigResource(ConfigResourceType.TOPIC, name, ["cleanup.policy"]) for name in required]
        answer: dict[str, dict[str, Any]] = dict(admin.describe_configs(asked, config_filter="all")).get("topic", {})
    return {name: str(answer.get(name, {}).get("cleanup.policy", {}).get("value", "")) for name in required}


def _keeps_ms(configs: Mapping[str, str]) -> int | None:
    """`TopicLimits.keeps_ms` of a topic with these configs: half of its limits.

    It is half of the retention, so that consumers have time to read records that are old when they arrive. It is half
    of the accepted age, because records get older on their way.
    """
    bounds = [int(configs[option]) for option in _OLDEST if option in configs]
    if "delete" in configs.get("cleanup.policy", ""):
        bounds.append(int(configs.get("retention.ms", -1)))
    return min((bound // 2 for bound in bounds if 0 <= bound < _FOR_EVER_MS), default=None)
