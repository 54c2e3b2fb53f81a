"""The settings that shape a window's messages, so that a window is not finished by other rules than it began with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from changefeed.errors import BinlogGoneError, SettingsError
from changefeed.formats.by_table import all_formats
from changefeed.formats.style import Kind, Style
from changefeed.kafka.commit_log.records import ReliedRecord
from changefeed.model.connection import ConnectionLookup
from changefeed.model.gtid import GtidSet
from changefeed.model.window import Window
from changefeed.settings.column_settings import SecretSettings
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import compile_routes

_SHAPE_NO_MESSAGE = {
    "name",
    "source",
    "kafka",
    "checkpoint",
    "commit_log",
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
    "followers",
}
"""All other settings count, those that are added some day too."""


_HIDDEN = "**********"
"""What stands for a secret in the digests."""


def message_rules(pipeline: Pipeline) -> dict[str, str]:
    """A digest of each setting that decides which messages a window becomes and where they go.

    Secrets are left out, and where they stand: a weak salt could be guessed by its digest, so `secrets_rule` is by
    itself. So are the numbers of partitions: Kafka says them, and progress keeps them.
    """
    values: dict[str, Any] = pipeline.model_dump(mode="python", exclude=_SHAPE_NO_MESSAGE)
    routes = compile_routes(pipeline)
    usual, *own = [format.style for format in all_formats(routes.format(0))]
    values["style"] = _written_out(usual)  # a format's own too, under `values` or not
    if own:
        values["styles"] = [_written_out(style) for style in own]
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
                del mask[key]  # a mask that has none
    values["rows"] = list(values["rows"].items())
    if isinstance(pipeline.unknown_definition, dict):
        values["unknown_definition"] = list(pipeline.unknown_definition.items())
    values["keys"] = list(values["keys"].items())  # of which the first that takes a table counts
    keyless = list(dict.fromkeys(map(routes.keyless_of, routes.formats)))
    values["keyless"] = keyless if len(keyless) > 1 else keyless[0]
    return {name: _digest(value) for name, value in values.items()}


SECRETS = "secrets"
"""The rule that `secrets_rule` makes."""


def secrets_rule(pipeline: Pipeline, lookup: ConnectionLookup) -> dict[str, str]:
    """A rule that changes with the texts of the pipeline's secrets, those of masks and of transforms; {} without any.

    It is one byte of a slow hash over all of them: of 256 changes it shows 255. Whoever reads the commit log may be one
    who must not know the secrets, and secrets may be few: of a longer digest, under whatever key is stored beside it,
    each guess could be tried. A byte leaves one of 256 guesses standing, however long somebody computes, and it is the
    same byte for each window, and under each name that the pipeline has, so that many do not tell more. A change that
    it does not show is still compared: what a window gave topic-partitions with what is decoded now.

    Raises SettingsError for a secret that its connection or environment variable does not have.
    """
    secrets = [(of, name, where.read(lookup)) for of, name, where in _secrets(pipeline)]
    if not secrets:
        return {}
    text = json.dumps(secrets).encode()
    return {SECRETS: hashlib.scrypt(text, salt=b"changefeed secrets", n=1 << 14, r=8, p=1, dklen=64)[:1].hex()}


def _secrets(pipeline: Pipeline) -> Iterator[tuple[str, str, SecretSettings]]:
    """What each secret is for, and where it stands."""
    for pattern, mask in pipeline.columns.mask.items():
        if mask.secret is not None:
            key, where = mask.secret
            yield pattern, key, where
    for number, transform in enumerate(pipeline.transforms):
        for name, where in sorted(transform.secrets.items()):
            yield str(number), name, where


def rules_digest(rules: Mapping[str, str]) -> str:
    """One digest of all rules but that of secrets, which a snapshot does not have."""
    return _digest({name: rule for name, rule in rules.items() if name != SECRETS})


def check_relied_on(window: Window, relied: ReliedRecord, pipeline: Pipeline, fault: str = "") -> None:
    """A snapshot left rows out because ``window`` publishes them.

    Raises SettingsError where it would not, or otherwise; BinlogGoneError where it is of another server, after a
    failover, which lacks what changed them; its binlog may show that by a ``fault``, where its GTIDs do not.
    """
    now = message_rules(pipeline)
    before = relied.rules
    changed = _shown(name for name in now if name != "tables" and name in before and before[name] != now[name])
    changed += [
        f"tables ({table} is left out now)"
        for table in relied.tables
        if not pipeline.tables.matches(*table.split(".", 1))
    ]
    if changed:
        raise SettingsError(
            f"window {window.number} of pipeline {window.pipeline!r} begins at {window.start}, and snapshot "
            f"{relied.snapshot!r} left out rows whose keys changed before {relied.until}, as windows publish those. "
            f"Since then {', '.join(changed)} of the pipeline's settings changed. Nothing was published. Put the "
            f"settings back until the checkpoint is behind {relied.until}; or delete the tables' topics, seek the "
            "pipeline to latest and take a new snapshot."
        )
    if window.failover is not None and (lost := GtidSet.parse(relied.gtids).subtract(GtidSet.parse(window.head_gtids))):
        fault = f"lacks transactions {lost}"
    if fault:
        raise BinlogGoneError(
            f"window {window.number} of pipeline {window.pipeline!r} is of server {window.server_uuid}, which {fault}: "
            f"snapshot {relied.snapshot!r} left out rows of {', '.join(relied.tables)} that they changed, as windows "
            "publish those. If the server is a replica that catches up, run again later. If they were lost in the "
            "failover, seek the pipeline to where it should resume and take a new snapshot of these tables."
        )


def check_same_rules(window: Window, begun: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raises SettingsError where ``window``, of which a part is in Kafka, was ``begun`` by other rules than ``now``.

    A setting that one of the two does not have is another version's: it is left to the counts.
    """
    changed = _shown(name for name in now if name in begun and begun[name] != now[name])
    if changed:
        raise SettingsError(
            f"window {window.number} of pipeline {window.pipeline!r} ({window.start} to {window.head}) was published "
            f"in part, and since then {', '.join(f'`{name}`' for name in changed)} of the pipeline's settings changed: "
            "which of its messages are in Kafka cannot be known by other settings. Nothing more was published. Put the "
            f"settings back for one run, which finishes the window; or seek the pipeline to {window.start}, "
            "which publishes its messages again as they are now."
        )


def _shown(changed: Iterable[str]) -> list[str]:
    """The settings whose rules ``changed``, as they are called in YAML: a style is of `values`, or of the format."""
    names = set(changed)
    styles = names & {"style", "styles"}
    if styles and "format" not in names and "topics" not in names:
        names.add("values")
    return sorted(names - styles)


def _written_out(style: Style) -> dict[str, str]:
    return {str(kind): str(style[kind]) for kind in Kind}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
