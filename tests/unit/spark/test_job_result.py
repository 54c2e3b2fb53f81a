"""The counts that a job returns to its task."""

from __future__ import annotations

from pathlib import Path

import pytest

from changefeed.spark.job_result import JOB_RESULT, read_result, write_result


def test_task_reads_the_counts_that_its_job_stored_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    monkeypatch.setenv(JOB_RESULT, str(path))
    write_result(rows={"shop.a": 1}, records={})
    write_result(rows={"shop.a": 1, "shop.b": 2}, records={"shop.b": 3})
    assert read_result(path) == {"rows": {"shop.a": 1, "shop.b": 2}, "records": {"shop.b": 3}}


def test_job_without_the_variable_stores_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(JOB_RESULT, raising=False)
    monkeypatch.chdir(tmp_path)
    write_result(rows={"shop.a": 1}, records={})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", [None, "", '{"rows": {"shop.a"', "[]", '{"rows": 1}', '{"rows": {"a": []}}'])
def test_file_of_a_killed_job_has_no_counts(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "result.json"
    if text is not None:
        path.write_text(text)
    assert read_result(path) == {}
