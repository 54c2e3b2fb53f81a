"""Digests of the settings that shape messages. A window is finished under the same settings under which it began."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from changefeed.errors import BinlogGoneError, SettingsError, SourceUnavailableError
from changefeed.formats.by_table import all_formats
from changefeed.formats.style import Kind, Style
from changefeed.kafka.commit_log.records import DependencyRecord
from changefeed.model.connection import ConnectionLookup
from changefeed.model.gtid import GtidSet
from changefeed.model.window import Window
from changefeed.settings.column_settings import SecretSettings
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import compile_routes

_NOT_IN_MESSAGES = {
    "name",
    "source",
    "kafka",
    "checkpoint",
    "commit_log",
    "start",
    "snapshot",
    "schedule",
    "retries",
    "retry_delay_seconds",
    "window_bytes",
    "windows_per_run",
    "windows",
    "pool",
    "deadline_minutes",
    "heartbeat",
    "alerts",
    "owner",
    "tags",
    "spark",
    "followers",
    "on_table_error",
}
"""Settings that do not shape messages. All other settings do, including settings that are added later."""


_UNKNOWN_SCHEMA_RULE = "unknown_definition"
"""Name of the rule of the setting `unknown_schema` in existing commit logs."""

_HIDDEN = "**********"
"""Placeholder of a secret in the digests."""


def message_rules(pipeline: Pipeline) -> dict[str, str]:
    """A digest of each setting that decides a window's messages and their topics, by the rule's name.

    Secrets and where they are stored are not included, because a weak salt could be guessed from its digest: see
    `secrets_rule`. Numbers of partitions are not included either: Kafka and the progress records have them.
    """
    values: dict[str, Any] = pipeline.model_dump(mode="python", exclude=_NOT_IN_MESSAGES)
    values["tables"] = pipeline.tables.model_dump()  # with the field `within` of a backfill's tables
    routes = compile_routes(pipeline)
    usual, *own = [format.style for format in all_formats(routes.format(0))]
    values["style"] = _style_values(usual)  # includes the format's own style
    if own:
        values["styles"] = [_style_values(style) for style in own]
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
                del mask[key]  # windows that began before these kinds of masks existed have rules without them
    values["rows"] = list(values["rows"].items())
    unknown = values.pop("unknown_schema")
    values[_UNKNOWN_SCHEMA_RULE] = list(unknown.items()) if isinstance(unknown, dict) else unknown
    values["keys"] = list(values["keys"].items())  # their order counts
    keyless = list(dict.fromkeys(map(routes.find_keyless, routes.formats)))
    values["keyless"] = keyless if len(keyless) > 1 else keyless[0]
    return {name: _digest(value) for name, value in values.items()}


SECRETS = "secrets"
"""Name of the rule that `secrets_rule` returns."""


def secrets_rule(pipeline: Pipeline, lookup: ConnectionLookup) -> dict[str, str]:
    """A rule that changes with the secrets of masks and transforms; {} without secrets.

    The rule is one byte of a slow hash over all secrets. It detects 255 of 256 changes. The others are detected when
    the decoded messages are compared with the progress.

    A reader of the commit log could use a longer digest to find the secrets by guessing. One byte excludes only 255 of
    256 guesses. It is the same in all windows and under all names of the pipeline, so several windows give no more
    information than one.

    Raises SettingsError if a connection or an environment variable does not have its secret.
    """
    secrets = [(of, name, where.read(lookup)) for of, name, where in _secrets(pipeline)]
    if not secrets:
        return {}
    text = json.dumps(secrets).encode()
    return {SECRETS: hashlib.scrypt(text, salt=b"changefeed secrets", n=1 << 14, r=8, p=1, dklen=64)[:1].hex()}


def _secrets(pipeline: Pipeline) -> Iterator[tuple[str, str, SecretSettings]]:
    """The owner, the name and the place of each secret."""
    for pattern, mask in pipeline.columns.mask.items():
        if mask.secret is not None:
            key, where = mask.secret
            yield pattern, key, where
    for number, transform in enumerate(pipeline.transforms):
        for name, where in sorted(transform.secrets.items()):
            yield str(number), name, where


def rules_digest(rules: Mapping[str, str]) -> str:
    """One digest of all rules except the rule of secrets, which a snapshot does not have."""
    return _digest({name: rule for name, rule in rules.items() if name != SECRETS})


def check_snapshot_dependency(
    window: Window, dependency: DependencyRecord, pipeline: Pipeline, fault: str = ""
) -> None:
    """Check that ``window`` publishes the rows that a snapshot left out because windows publish them.

    Raises SettingsError if the settings changed since the snapshot. If the window reads another server after a
    failover, and that server does not have the transactions that changed these rows, raises SourceUnavailableError if
    it may get them yet, by its GTIDs; or BinlogGoneError if the caller knows that it cannot, and passes ``fault``.
    """
    now = message_rules(pipeline)
    before = dependency.rules
    changed = _list_setting_names(
        name for name in now if name != "tables" and name in before and before[name] != now[name]
    )
    changed += [
        f"tables ({table} is left out now)"
        for table in dependency.tables
        if not pipeline.tables.matches(*table.split(".", 1))
    ]
    if changed:
        raise SettingsError(
            f"window {window.number} of pipeline {window.pipeline!r} begins at {window.start}, and snapshot "
            f"{dependency.snapshot!r} left out rows whose keys changed before {dependency.until}, as windows publish "
            f"those. Since then {', '.join(changed)} of the pipeline's settings changed. Nothing was published. "
            f"Restore the settings until the checkpoint is after {dependency.until}; or delete the tables' topics, "
            "seek the pipeline to latest and take a new snapshot."
        )
    is_behind = window.failover is not None and (
        lost := GtidSet.parse(dependency.gtids).subtract(GtidSet.parse(window.head_gtids))
    )
    if is_behind:
        fault = f"does not have transactions {lost}"
    if fault:
        kind = SourceUnavailableError if is_behind else BinlogGoneError
        raise kind(
            f"window {window.number} of pipeline {window.pipeline!r} is of server {window.server_uuid}, which {fault}: "
            f"snapshot {dependency.snapshot!r} left out rows of {', '.join(dependency.tables)} that they changed, as "
            "windows publish those. If the server is a replica that catches up, run again later. If they were lost in "
            "the failover, seek the pipeline to where it should resume and take a new snapshot of these tables."
        )


def check_same_rules(window: Window, begun: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raises SettingsError if ``window``, which is partly in Kafka, began under other rules (``begun``) than ``now``.

    If only one of the two has a rule, another version of changefeed wrote it, and the rule is not compared.
    """
    changed = _list_setting_names(name for name in now if name in begun and begun[name] != now[name])
    if changed:
        raise SettingsError(
            f"window {window.number} of pipeline {window.pipeline!r} ({window.start} to {window.head}) was published "
            f"in part, and since then {', '.join(f'`{name}`' for name in changed)} of the pipeline's settings changed: "
            "with other settings it is not known which of its messages are in Kafka. Nothing more was published. "
            f"Restore the settings for one run, which finishes the window; or seek the pipeline to {window.start}, "
            "which publishes its messages again under the current settings."
        )


def setting_name(rule: str) -> str:
    """The name in YAML of the setting that a rule is a digest of."""
    return "unknown_schema" if rule == _UNKNOWN_SCHEMA_RULE else rule


def _list_setting_names(changed: Iterable[str]) -> list[str]:
    """The names in YAML of the settings whose rules ``changed``.

    A changed style is reported as `values`, unless the format or a route, which also have styles, changed.
    """
    names = set(map(setting_name, changed))
    styles = names & {"style", "styles"}
    if styles and "format" not in names and "topics" not in names:
        names.add("values")
    return sorted(names - styles)


def _style_values(style: Style) -> dict[str, str]:
    return {str(kind): str(style[kind]) for kind in Kind}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
