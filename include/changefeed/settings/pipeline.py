"""One pipeline: a source, a Kafka cluster, a set of tables, and where its checkpoint is kept."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from changefeed.errors import SettingsError
from changefeed.settings.limits import check_formats, check_replayable, made_formats, reference_refusal
from changefeed.settings.pipeline_settings import PipelineSettings


class Pipeline(PipelineSettings):
    """What a file of `include/pipelines/` says: settings that go together.

    What Airflow gets is no larger than it takes: one DAG that it cannot make or keep ends those of all other pipelines.
    """

    @model_validator(mode="after")
    def _format_takes_the_settings(self) -> Self:
        made_formats(self)
        return self

    @model_validator(mode="after")
    def _can_be_followed(self) -> Self:
        if self.followers:
            try:
                check_replayable(self)
            except SettingsError as error:
                raise ValueError(str(error)) from None
        return self

    @model_validator(mode="after")
    def _goes_with_its_formats(self) -> Self:
        check_formats(self)
        return self

    @model_validator(mode="after")
    def _reference_is_plain(self) -> Self:
        if self.reader == "reference" and (why := reference_refusal(self)):
            raise ValueError(why)
        return self
