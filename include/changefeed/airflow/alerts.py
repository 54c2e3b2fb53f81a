"""Sends a pipeline's alerts by the Airflow notifiers that its YAML names."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from typing import Any

from airflow.sdk import BaseNotifier, get_current_context

from changefeed.errors import SettingsError
from changefeed.model.freshness import Freshness
from changefeed.settings.alert_limits import AlertLimits
from changefeed.settings.file import load_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import NotifierSettings
from changefeed.settings.site import load_site

_log = logging.getLogger(__name__)

DEAD_LETTERS_SECONDS = 600.0
"""The least time between two alerts of a run for dead letters, except for the last one."""


def notify(pipeline: Pipeline, kind: str, text: str, context: Mapping[str, Any] | None = None) -> None:
    """Send an alert by each notifier of the pipeline. Templates get ``changefeed.kind``, ``.pipeline`` and ``.text``.

    If a notifier fails, the error is logged and the task continues. Without ``context`` the current task's is used.
    """
    notify_by(pipeline.alerts.notify, pipeline.name, kind, text, context)


def notify_by(
    notifiers: Sequence[NotifierSettings],
    pipeline: str,
    kind: str,
    text: str,
    context: Mapping[str, Any] | None = None,
) -> None:
    """As `notify`, for the pipeline of this name, by ``notifiers``."""
    if not notifiers:
        return
    _log.warning("alert %s: %s", kind, text)
    values = {"kind": kind, "pipeline": pipeline, "text": text}
    for settings in notifiers:
        try:
            send = create_notifier(settings)
            send({**(context if context is not None else _context()), "changefeed": values})
        except Exception:
            _log.exception("notifier %s failed", settings.notifier)


def create_notifier(settings: NotifierSettings) -> BaseNotifier:
    """An instance of the configured notifier.

    Raises SettingsError if the site does not allow the class or its arguments do not fit.
    """
    kind = import_notifier_class(settings.notifier)
    arguments: dict[str, Any] = settings.arguments
    try:
        return kind(**arguments)
    except TypeError as error:
        raise SettingsError(
            f"notifier {settings.notifier!r} cannot be created with the configured arguments: {error}"
        ) from error


def import_notifier_class(name: str) -> type[BaseNotifier]:
    """The notifier class with the qualified ``name``. Its module is imported only if the site allows the class.

    Raises SettingsError if the site does not allow the class, or if the module does not define a notifier of this name.
    A class that the module only imports is refused.
    """
    load_site().check_notifier(name)
    module, _, class_name = name.rpartition(".")
    try:
        found: Any = getattr(import_module(module), class_name)
    except (ImportError, AttributeError) as error:
        raise _no_notifier(name, str(error)) from error
    if not (isinstance(found, type) and issubclass(found, BaseNotifier)):
        raise _no_notifier(name, "it is not a subclass of BaseNotifier")
    if found.__module__ != module:
        raise _no_notifier(name, f"it is defined in {found.__module__!r}")
    return found


def require_no_template_file(settings: NotifierSettings) -> None:
    """Raise SettingsError for an argument that Airflow would read as the name of a template file."""
    extensions = tuple(import_notifier_class(settings.notifier).template_ext)
    for name, value in settings.arguments.items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str) and item.endswith(extensions):
                raise SettingsError(
                    f"argument {name!r} of {settings.notifier} ends in one of {', '.join(extensions)}: Airflow "
                    f"would read "
                    "it as a file name and send that file. Write the text itself."
                )


def _no_notifier(name: str, why: str) -> SettingsError:
    return SettingsError(
        f"notifier {name!r} cannot be used: {why}. Expected the qualified name of an Airflow notifier class, by "
        f"the module "
        "that defines it, such as airflow.providers.slack.notifications.slack.SlackNotifier."
    )


def failure_callback(pipeline: Pipeline, kind: str = "window failed") -> Callable[[Any], None]:
    """An `on_failure_callback` for tasks of ``pipeline``, which sends an alert ``kind`` after the last retry failed.

    Airflow may run it in its DAG processor, if the task was killed.
    """

    def send_alert(context: Any) -> None:
        error = context.get("exception")
        task = context["ti"].task_id
        notify(pipeline, kind, f"pipeline {pipeline.name!r}, task {task!r}: {error}", context)

    return send_alert


def first_retry_callback(pipeline: Pipeline, kind: str) -> Callable[[Any], None]:
    """An `on_retry_callback` for tasks that are retried for long: an alert ``kind`` after the first attempt."""
    alert = failure_callback(pipeline, kind)

    def send_first(context: Any) -> None:
        if context["ti"].try_number == 1:
            alert(context)

    return send_first


async def deadline_missed(pipeline: str, notify: list[dict[str, Any]] | None = None, **_: Any) -> None:
    """Alert by the notifiers ``notify`` that a run missed its deadline.

    Runs in the triggerer, which may have no pipelines. Airflow stores this function's name and arguments with each run.
    An earlier release stored no ``notify``: then the notifiers are the pipeline's current ones. Raises SettingsError if
    they are needed, and the triggerer does not have the pipeline.
    """
    text = f"a run of pipeline {pipeline!r} has not finished by its deadline"
    notifiers = await asyncio.to_thread(_notifiers_of, pipeline, notify)
    await asyncio.to_thread(notify_by, notifiers, pipeline, "deadline missed", text, {})


def _notifiers_of(pipeline: str, stored: list[dict[str, Any]] | None) -> Sequence[NotifierSettings]:
    if stored is None:
        return load_pipeline(pipeline).alerts.notify
    return [NotifierSettings.model_validate(each) for each in stored]


class RunAlerts:
    """What a run has sent alerts for, so that one that commits every few seconds does not repeat them.

    ``sent`` has the parked tables and other causes that alert once. Dead letters alert at the first, and then at most
    every DEAD_LETTERS_SECONDS, with their number since the last alert.
    """

    def __init__(self) -> None:
        self.sent: set[str] = set()
        self._dead_letters = 0
        self._next_at: float | None = None

    def add_dead_letters(self, pipeline: Pipeline, count: int) -> None:
        """Count dead letters, and send an alert if it is time."""
        self._dead_letters += count
        if self._next_at is None or time.monotonic() >= self._next_at:
            self.report_rest(pipeline)

    def report_rest(self, pipeline: Pipeline) -> None:
        """Send an alert for dead letters that no alert has counted, if any. It is called at the end of a run."""
        count, self._dead_letters = self._dead_letters, 0
        if not count:
            return
        self._next_at = time.monotonic() + DEAD_LETTERS_SECONDS
        notify(
            pipeline,
            "dead letters",
            f"pipeline {pipeline.name!r}: {count} records were sent to the dead letter topic",
        )


def exceeded_limits(
    pipeline: str,
    limits: AlertLimits,
    *,
    lag_bytes: int,
    lag_seconds: float | None,
    headroom_seconds: float | None,
    freshness: Freshness | None = None,
) -> list[tuple[str, str]]:
    """An alert, as (kind, text), for each limit of lag, freshness and headroom that the pipeline of this name exceeds.

    A value of None is unknown, and exceeds no limit.
    """
    exceeded = []
    if limits.headroom_hours is not None and headroom_seconds is not None:
        hours = headroom_seconds / 3600
        if hours < limits.headroom_hours:
            exceeded.append(
                (
                    "headroom",
                    f"pipeline {pipeline!r}: the binlog at its checkpoint is purged in {hours:.1f} hours (limit "
                    f"{limits.headroom_hours:g}): changes that are not published by then are lost. Run the "
                    f"pipeline, or "
                    "raise binlog_expire_logs_seconds on the source.",
                )
            )
    if limits.lag_bytes is not None and lag_bytes > limits.lag_bytes:
        exceeded.append(("lag", f"pipeline {pipeline!r} is {lag_bytes:,} bytes behind (limit {limits.lag_bytes:,})"))
    if limits.lag_seconds is not None and lag_seconds is not None and lag_seconds > limits.lag_seconds:
        exceeded.append(
            ("lag", f"pipeline {pipeline!r} is {lag_seconds:,.0f} seconds behind (limit {limits.lag_seconds:,})")
        )
    if limits.freshness_seconds is not None and freshness and freshness.p99_seconds > limits.freshness_seconds:
        since = datetime.fromtimestamp(freshness.since_ms / 1000, UTC)
        exceeded.append(
            (
                "freshness",
                f"pipeline {pipeline!r}: for 1 % of the time since {since:%Y-%m-%d %H:%M:%S} UTC a change was in Kafka "
                f"{freshness.p99_seconds:,.1f} seconds or more after its commit (limit {limits.freshness_seconds:g}, "
                f"{freshness.windows:,} windows)",
            )
        )
    return exceeded


def parked_text(pipeline: str, tables: Sequence[str]) -> str:
    """The text of an alert for the parked ``tables`` of the pipeline of this name."""
    return (
        f"pipeline {pipeline!r} leaves out {', '.join(tables)}, parked after an error: changes are missing in Kafka "
        f"until `changefeed unpark {pipeline}`. Unpark before the server purges the binlog"
    )


def _context() -> Mapping[str, Any]:
    try:
        return dict(get_current_context())
    except RuntimeError:
        return {}
