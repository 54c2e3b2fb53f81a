"""Alerts through Airflow's notifiers, as a pipeline's YAML names them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from airflow.sdk import BaseNotifier, get_current_context

from changefeed.errors import SettingsError
from changefeed.settings.file import load_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import NotifierSettings
from changefeed.settings.site import load_site

_log = logging.getLogger(__name__)


def notify(pipeline: Pipeline, kind: str, text: str, context: Mapping[str, Any] | None = None) -> None:
    """Tell all notifiers of the pipeline. Their templates find ``changefeed.kind``, ``.pipeline`` and ``.text``.

    A notifier that fails is logged and stops nothing: the data matters more than the message about it.
    """
    if not pipeline.alerts.notify:
        return
    _log.warning("alert %s: %s", kind, text)
    values = {"kind": kind, "pipeline": pipeline.name, "text": text}
    for settings in pipeline.alerts.notify:
        try:
            made = notifier(settings)
            made({**(context if context is not None else _context()), "changefeed": values})
        except Exception:
            _log.exception("notifier %s failed", settings.notifier)


def notifier(settings: NotifierSettings) -> BaseNotifier:
    """The notifier that the settings name; raises SettingsError where it is not allowed, or cannot be made."""
    kind = notifier_class(settings.notifier)
    arguments: dict[str, Any] = settings.arguments
    try:
        return kind(**arguments)
    except TypeError as error:
        raise SettingsError(f"notifier {settings.notifier!r} cannot be made with these arguments: {error}") from error


def notifier_class(name: str) -> type[BaseNotifier]:
    """The class that ``name`` is the module and the name of. Nothing is imported or called that is not allowed.

    Raises SettingsError where the site does not allow it, and for what is no notifier that is defined in its module: a
    module's names are also those of what it imports.
    """
    load_site().check_notifier(name)
    module, _, class_name = name.rpartition(".")
    try:
        named: Any = getattr(import_module(module), class_name)
    except (ImportError, AttributeError) as error:
        raise _no_notifier(name, str(error)) from error
    if not (isinstance(named, type) and issubclass(named, BaseNotifier)):
        raise _no_notifier(name, "it is none")
    if named.__module__ != module:
        raise _no_notifier(name, f"it is defined in {named.__module__}")
    return named


def check_reads_no_file(settings: NotifierSettings) -> None:
    """Raise SettingsError for an argument that Airflow would take for the name of a template's file, and read it."""
    extensions = tuple(notifier_class(settings.notifier).template_ext)
    for name, value in settings.arguments.items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, str) and item.endswith(extensions):
                raise SettingsError(
                    f"argument {name!r} of {settings.notifier} ends in one of {', '.join(extensions)}: a file of that "
                    "name would be sent. Write the text itself."
                )


def _no_notifier(name: str, why: str) -> SettingsError:
    return SettingsError(
        f"notifier {name!r} cannot be used: {why}. Wanted the class of an Airflow notifier by the module that defines "
        "it, as in airflow.providers.slack.notifications.slack.SlackNotifier."
    )


def on_failure(name: str) -> Callable[[Any], None]:
    """A task's `on_failure_callback`: the window failed, and no retry is left."""

    def tell(context: Any) -> None:
        error = context.get("exception")
        task = context["ti"].task_id
        notify(load_pipeline(name), "window failed", f"pipeline {name!r}, task {task!r}: {error}", context)

    return tell


async def deadline_missed(pipeline: str, **_: Any) -> None:
    """Callback of the DAG's deadline; runs in the triggerer."""
    text = f"a run of pipeline {pipeline!r} is not done by its deadline"
    await asyncio.to_thread(notify, load_pipeline(pipeline), "deadline missed", text, {})


def limits_passed(
    pipeline: Pipeline, *, lag_bytes: int, lag_seconds: float | None, headroom_seconds: float | None
) -> list[tuple[str, str]]:
    """(kind, text) of each limit of the pipeline that is passed now."""
    alerts = pipeline.alerts
    passed = []
    if alerts.headroom_hours is not None and headroom_seconds is not None:
        hours = headroom_seconds / 3600
        if hours < alerts.headroom_hours:
            passed.append(
                (
                    "headroom",
                    f"pipeline {pipeline.name!r}: its binlog is purged in {hours:.1f} hours (limit "
                    f"{alerts.headroom_hours:g}): changes not published by then are lost. Let it catch up, or raise "
                    "binlog_expire_logs_seconds.",
                )
            )
    if alerts.lag_bytes is not None and lag_bytes > alerts.lag_bytes:
        passed.append(("lag", f"pipeline {pipeline.name!r} is {lag_bytes:,} bytes behind (limit {alerts.lag_bytes:,})"))
    if alerts.lag_seconds is not None and lag_seconds is not None and lag_seconds > alerts.lag_seconds:
        passed.append(
            ("lag", f"pipeline {pipeline.name!r} is {lag_seconds:,.0f} seconds behind (limit {alerts.lag_seconds:,})")
        )
    return passed


def _context() -> Mapping[str, Any]:
    try:
        return dict(get_current_context())
    except RuntimeError:
        return {}
