"""`alerts` of a pipeline's YAML: what is sent to whom, and when."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from changefeed.pipelines.section import Positive, Section


class NotifierSettings(Section):
    """An Airflow notifier: its class, and the arguments it is made with, which may be templates."""

    notifier: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*\.[A-Za-z_]\w*$")]
    arguments: dict[str, str | int | float | bool | list[str]] = Field(default={}, repr=False)


class AlertSettings(Section):
    """What is sent to the notifiers, besides failed windows and dead letters, which always are."""

    headroom_hours: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """The server purges the binlog that the checkpoint stands in, in less than so many hours."""
    lag_bytes: Positive | None = None
    lag_seconds: Positive | None = None
    notify: list[NotifierSettings] = Field(default=[])
