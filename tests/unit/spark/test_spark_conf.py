"""Spark's conf for a job: ours, then the pipeline's, then what no setting changes."""

from __future__ import annotations

import pytest

from changefeed.spark.conf import JOB_CONF, job_conf


def test_a_pipelines_settings_go_before_ours() -> None:
    assert job_conf({}) == {**JOB_CONF, "spark.speculation": "false"}
    assert job_conf({"spark.log.level": "INFO"})["spark.log.level"] == "INFO"


def test_speculation_is_off_and_a_setting_that_does_not_count_is_told(caplog: pytest.LogCaptureFixture) -> None:
    assert job_conf({"spark.speculation": "true"})["spark.speculation"] == "false"
    assert "spark.speculation=true, which does not count" in caplog.text
