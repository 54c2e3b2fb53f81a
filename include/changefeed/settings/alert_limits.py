"""Limits of alerts: of one pipeline, or of a site's pipelines that have none of their own."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from changefeed.settings.section import Positive, Section


class AlertLimits(Section):
    """Limits that send an alert."""

    freshness_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Alert if, for 1 % of the time in the last hour, a change was in Kafka later than this after its commit."""
    headroom_hours: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Alert if the server purges the checkpoint's binlog file in less than this."""
    lag_bytes: Positive | None = None
    """Alert if more than this is not published."""
    lag_seconds: Positive | None = None
    """Alert if the oldest change of the pipeline's tables that is not published is older than this."""
    late_minutes: Annotated[int, Field(gt=0, le=525_600)] | None = None
    """Alert if a change that was there when a run was due is not published this much later, and nothing was committed
    since. Without a schedule: if a change is not published within this time, and nothing was committed in it."""
