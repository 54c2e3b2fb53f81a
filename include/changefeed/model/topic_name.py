"""Names of topics: those of a pipeline itself, and those of tables, which templates make."""

from __future__ import annotations

import re
from collections.abc import Mapping

from changefeed.errors import TopicError

_ILLEGAL = re.compile(r"[^a-zA-Z0-9._-]")
_FIELD = re.compile(r"\{(\w+)\}")
_STATE_WORDS = r"(commits|dead-letter|schema-history|schema-changes)([._]|$)"
_STATE = re.compile(rf"changefeed[._].*[._]{_STATE_WORDS}", re.IGNORECASE)
"""Topics that pipelines make for themselves, and their backfills'; `.` and `_` are one, as the broker makes no topic
whose name differs from another's in these only (Topic.hasCollision): under such a name the true one could not be
made."""
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
_LONGEST = 249  # org.apache.kafka.common.internals.Topic.MAX_NAME_LENGTH


def commit_log_topic(pipeline: str) -> str:
    """The compacted topic with the progress, manifests and seeks of a pipeline, and of its backfills."""
    return legal_name(f"changefeed.{pipeline}.commits")


def pipeline_of_commit_log(topic: str) -> str | None:
    """The pipeline whose commit log ``topic`` is, by its name; None for another topic."""
    found = _COMMIT_LOG.fullmatch(topic)
    return found and found[1]


def dead_letter_topic(pipeline: str) -> str:
    """The topic that gets the records that Kafka refuses."""
    return legal_name(f"changefeed.{pipeline}.dead-letter")


def schema_history_topic(pipeline: str) -> str:
    """The compacted topic that keeps a pipeline's schema history."""
    return legal_name(f"changefeed.{pipeline}.schema-history")


def schema_changes_topic(pipeline: str, suffix: str = "") -> str:
    """The topic of a pipeline's schema-change records, or of a backfill's whose topics end in ``suffix``.

    Raises TopicError for a suffix that makes it a name of another kind of a pipeline's own topics.
    """
    if _STATE_SUFFIX.search(suffix):
        raise TopicError(
            f"topics cannot end in {suffix!r}: those of such names keep the progress, the schemas and the dead letters "
            "of pipelines. Nothing was published. Choose another suffix, such as '.replay'."
        )
    return legal_name(f"changefeed.{pipeline}.schema-changes{suffix}")


def is_state_topic(name: str) -> bool:
    """Whether a topic of this name is one that Kafka or a pipeline, whichever, keeps its own state in."""
    return name in _KAFKAS or _STATE.match(name) is not None


def check_published_to(topic: str, pipeline: str) -> None:
    """The last look at the name of a topic before ``pipeline`` publishes messages to it, whoever chose that name.

    Raises TopicError for a topic that Kafka or pipelines keep their own state in, but those of this pipeline's schema
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

    Raises TopicError where that is not enough: an empty name, ``.``, ``..``, or more than 249 characters.
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
    """The topic of a table by ``template``, in which {database}, {table} and {pipeline} are replaced by their names.

    ``groups`` are further fields by name. Raises TopicError for a name that cannot be made legal, or that is one of a
    pipeline's own topics.
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
    """Raises ValueError for a name that nobody may choose for messages: one that Kafka does not allow, or that is its
    own or a pipeline's own."""
    try:
        legal = legal_name(name)
    except TopicError as error:
        raise ValueError(str(error)) from None
    if legal != name:
        raise ValueError(f"{name!r} cannot be a topic's name: wanted letters, digits, '.', '_' and '-'")
    if is_state_topic(name) or name.startswith("__"):
        raise ValueError(f"topic {name!r} is not for rows: it is one that Kafka or pipelines keep their own state in")


def template_fields(template: str) -> list[str]:
    """The names in braces of a template; raises ValueError for braces around anything else."""
    if re.search(r"[{}]", _FIELD.sub("", template)):
        raise ValueError(f"{template!r} has braces around something that is no name: wanted a template as {{table}}")
    return _FIELD.findall(template)
