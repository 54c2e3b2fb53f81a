"""One pipeline: a source, a Kafka cluster, a set of tables, and a checkpoint store."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from changefeed.errors import SettingsError
from changefeed.settings.limits import (
    build_formats,
    check_formats,
    check_replayable,
    find_frozen_schema_problem,
    find_parking_problem,
    find_reference_reader_problem,
    find_windows_problem,
)
from changefeed.settings.pipeline_settings import PipelineSettings


class Pipeline(PipelineSettings):
    """The settings of a file in `include/pipelines/`, checked together.

    Texts for Airflow are limited to the sizes that it accepts: a DAG that it cannot store would end the DAGs of all
    other pipelines.
    """

    @model_validator(mode="after")
    def _check_format_settings(self) -> Self:
        build_formats(self)
        return self

    @model_validator(mode="after")
    def _check_followers(self) -> Self:
        if self.followers:
            try:
                check_replayable(self)
            except SettingsError as error:
                raise ValueError(str(error)) from None
        return self

    @model_validator(mode="after")
    def _check_formats(self) -> Self:
        check_formats(self)
        return self

    @model_validator(mode="after")
    def _check_frozen_schema(self) -> Self:
        if self.freeze_schema and (why := find_frozen_schema_problem(self)):
            raise ValueError(why)
        return self

    @model_validator(mode="after")
    def _check_parking(self) -> Self:
        if self.on_table_error == "park" and (why := find_parking_problem(self)):
            raise ValueError(why)
        return self

    @model_validator(mode="after")
    def _check_windows(self) -> Self:
        if self.windows is not None and (why := find_windows_problem(self)):
            raise ValueError(why)
        return self

    @model_validator(mode="after")
    def _check_reference_reader(self) -> Self:
        if self.reader == "reference" and (why := find_reference_reader_problem(self)):
            raise ValueError(why)
        return self
