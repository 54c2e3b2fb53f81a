"""Topic names: names of the topics with a pipeline's state, and names for tables, built from templates."""

from __future__ import annotations

import re
from collections.abc import Mapping

from changefeed.errors import TopicError

_ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]")
_FIELD = re.compile(r"\{(\w+)\}")
_STATE_WORDS = r"(commits|checkpoint|dead-letter|heartbeat|schema-history|schema-changes)([._]|$)"
_STATE = re.compile(rf"changefeed[._].*[._]{_STATE_WORDS}", re.IGNORECASE)
"""Topics with the state of pipelines and backfills.

`.` and `_` count as equal. The broker creates no topic whose name differs from an existing name only in these
characters (Topic.hasCollision). So a topic with such a name would prevent the creation of the state topic."""
_STATE_SUFFIX = re.compile(rf"[._]{_STATE_WORDS}", re.IGNORECASE)
_KAFKAS = frozenset(
    {
        "__cluster_metadata",
        "__consumer_offsets",
        "__remote_log_metadata",
        "__share_group_state",
        "__transaction_state",
    }
)
"""Kafka's own topics."""
_COMMIT_LOG = re.compile(r"changefeed\.([^.]+)\.commits")
_CHECKPOINT = re.compile(r"changefeed\.([^.]+)\.checkpoint")
_LONGEST = 249  # org.apache.kafka.common.internals.Topic.MAX_NAME_LENGTH


def commit_log_topic(pipeline: str) -> str:
    """The compacted topic with the progress, manifests and seeks of a pipeline, and of its backfills."""
    return legal_name(f"changefeed.{pipeline}.commits")


def pipeline_of_commit_log(topic: str) -> str | None:
    """The name of the pipeline whose commit log is ``topic``; None for another topic."""
    found = _COMMIT_LOG.fullmatch(topic)
    return found and found[1]


def checkpoint_topic(pipeline: str) -> str:
    """The compacted topic with the checkpoint of a pipeline whose store is Kafka, and a copy of its schema history."""
    return legal_name(f"changefeed.{pipeline}.checkpoint")


def pipeline_of_checkpoint(topic: str) -> str | None:
    """The name of the pipeline whose checkpoint topic is ``topic``; None for another topic."""
    found = _CHECKPOINT.fullmatch(topic)
    return found and found[1]


def dead_letter_topic(pipeline: str) -> str:
    """The topic of records that Kafka refuses."""
    return legal_name(f"changefeed.{pipeline}.dead-letter")


def heartbeat_topic(pipeline: str) -> str:
    """The compacted topic with the heartbeat of a pipeline."""
    return legal_name(f"changefeed.{pipeline}.heartbeat")


def schema_history_topic(pipeline: str) -> str:
    """The compacted topic of a pipeline's schema history."""
    return legal_name(f"changefeed.{pipeline}.schema-history")


def schema_changes_topic(pipeline: str, suffix: str = "") -> str:
    """The topic of the schema-change records of a pipeline, or of a backfill whose topics end in ``suffix``.

    Raises TopicError if ``suffix`` makes it the name of another state topic.
    """
    if _STATE_SUFFIX.search(suffix):
        raise TopicError(
            f"topics cannot end in {suffix!r}: those of such names keep the progress, the schemas and the dead letters "
            "of pipelines. Nothing was published. Choose another suffix, such as '.replay'."
        )
    return legal_name(f"changefeed.{pipeline}.schema-changes{suffix}")


def is_state_topic(name: str) -> bool:
    """Whether a topic of this name has state of Kafka or of any pipeline."""
    return name in _KAFKAS or _STATE.match(name) is not None


def check_published_to(topic: str, pipeline: str) -> None:
    """Raises TopicError if ``pipeline`` must not publish messages to ``topic``: the last check before publishing.
    A pipeline must not publish to the state topics of Kafka and of pipelines, except to its own topics of schema
    changes and dead letters.
    """
    if is_state_topic(topic) and topic != dead_letter_topic(pipeline):
        changes = schema_changes_topic(pipeline)
        if topic != changes and not topic.startswith(f"{changes}."):
            raise TopicError(
                f"pipeline {pipeline!r} would publish messages to topic {topic!r}, in which pipelines or Kafka keep "
                "their own state: it would be read as progress. Nothing of the transaction is visible. Choose another "
                "name where the pipeline's settings, or a row of an outbox, name this one."
            )


def legal_name(name: str) -> str:
    """``name`` with each character that Kafka does not allow replaced by ``_``.

    Raises TopicError if the result is empty, ``.``, ``..``, or longer than 249 characters.
    """
    legal = _ILLEGAL.sub("_", name)
    if legal in ("", ".", ".."):
        raise TopicError(f"{name!r} cannot be a topic's name: Kafka allows neither '', nor '.', nor '..'")
    if len(legal) > _LONGEST:
        raise TopicError(
            f"topic name {legal!r} has {len(legal)} characters, and Kafka allows {_LONGEST}. Use a shorter template."
        )
    return legal


def topic_name(
    template: str, database: str, table: str, pipeline: str = "", groups: Mapping[str, str] | None = None
) -> str:
    """The topic of a table: ``template`` with {database}, {table} and {pipeline} replaced by their names.

    ``groups`` has the values of further fields by name. Raises TopicError if the result is not a legal name, or is the
    name of a state topic.
    """
    names = {**(groups or {}), "pipeline": pipeline, "database": database, "table": table}
    name = legal_name(_FIELD.sub(lambda field: names.get(field[1], field[0]), template))
    if is_state_topic(name):
        raise TopicError(
            f"the changes of table `{database}`.`{table}` would go to topic {name!r} by the template {template!r}: "
            "topics of such names keep the progress, the schemas and the dead letters of pipelines. Choose another "
            "template or leave the table out."
        )
    return name


def check_chosen_name(name: str) -> None:
    """Raises ValueError for a topic name that is invalid in Kafka, and for the name of a state topic."""
    try:
        legal = legal_name(name)
    except TopicError as error:
        raise ValueError(str(error)) from None
    if legal != name:
        raise ValueError(f"{name!r} cannot be a topic's name: expected letters, digits, '.', '_' and '-'")
    if is_state_topic(name) or name.startswith("__"):
        raise ValueError(f"topic {name!r} is not for rows: it is one that Kafka or pipelines keep their own state in")


def template_fields(template: str) -> list[str]:
    """The field names in the braces of a template. Raises ValueError for braces around anything else."""
    if re.search(r"[{}]", _FIELD.sub("", template)):
        raise ValueError(f"{template!r} has braces around something that is no name: expected a template as {{table}}")
    return _FIELD.findall(template)
