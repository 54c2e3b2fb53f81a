"""The settings that shape a window's messages, so that a window is not finished by other rules than it began with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from changefeed.errors import SettingsError
from changefeed.formats.style import Kind
from changefeed.pipelines.pipeline import Pipeline
from changefeed.window import Window

_SHAPE_NO_MESSAGE = {
    "name",
    "source",
    "kafka",
    "checkpoint",
    "start",
    "schedule",
    "retries",
    "retry_delay_seconds",
    "window_bytes",
    "windows_per_run",
    "pool",
    "deadline_minutes",
    "alerts",
    "owner",
    "tags",
    "spark",
}
"""All other settings count, those that are added some day too."""
_HIDDEN = "**********"
"""What stands for a secret in the digests: stored windows were begun with it."""


def message_rules(pipeline: Pipeline) -> dict[str, str]:
    """A digest of each setting that decides which messages a window becomes and where they go.

    Secrets are left out, and where they stand: a weak salt could be guessed by its digest, and salts decide no
    message's key. So are the numbers of partitions: Kafka says them, and progress keeps them.
    """
    values: dict[str, Any] = pipeline.model_dump(mode="python", exclude=_SHAPE_NO_MESSAGE)
    style = pipeline.message_format(0).style
    values["style"] = {str(kind): str(style[kind]) for kind in Kind}  # a format's own too, under `values` or not
    values["topics"] = pipeline.topics.rules
    values["transforms"] = [
        [transform.tables, transform.function, transform.arguments, sorted(transform.secrets), transform.source.digest]
        for transform in pipeline.transforms
    ]
    for mask in values["columns"]["mask"].values():
        for key in ("text_from", "hmac_sha256", "sha256"):
            if mask[key] is not None:
                mask[key] = _HIDDEN
            elif key != "sha256":
                del mask[key]  # as windows were begun before there were such masks
    values["rows"] = list(values["rows"].items())
    values["keys"] = list(values["keys"].items())  # of which the first that takes a table counts
    return {name: _digest(value) for name, value in values.items()}


def check_same_rules(window: Window, begun: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raises SettingsError where ``window``, of which a part is in Kafka, was ``begun`` by other rules than ``now``.

    A setting that ``begun`` does not have came with a later version of changefeed: the window was begun by its default.
    One that ``now`` does not have, or a window without any rules, is left to the counts.
    """
    before = {**_defaults(), **begun} if begun else now
    changed = sorted(name for name in now if name in before and before[name] != now[name])
    if changed:
        raise SettingsError(
            f"window {window.number} of pipeline {window.pipeline!r} ({window.start} to {window.head}) was published "
            f"in part, and since then {', '.join(f'`{name}`' for name in changed)} of the pipeline's settings changed: "
            "which of its messages are in Kafka cannot be known by other settings. Nothing more was published. Put the "
            "settings back for one run, which finishes the window; or seek the pipeline to "
            f"{window.start}, which publishes the window's messages again as they are now."
        )


@cache
def _defaults() -> dict[str, str]:
    plain = {"name": "defaults", "source": {"connection": "source"}, "kafka": {"connection": "kafka"}}
    return message_rules(Pipeline.model_validate(plain))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
