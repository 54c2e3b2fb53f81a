"""Errors in a failed task's log are shown only to users who may read the log in Airflow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from airflow_site import PIPELINE, Site

NAME = "failed"
DAG = f"changefeed_ingest__{NAME}"
WORDS = "no connection 'mysql_nowhere'"


@pytest.fixture
def failed(airflow_site: Site) -> Iterator[Site]:
    """A pipeline whose run failed, because its source's connection does not exist."""
    file = airflow_site.pipelines / f"{NAME}.yaml"
    text = PIPELINE.format(name=NAME, database=NAME, server_ids="64600-64631", more="")
    file.write_text(text.replace("mysql_shop", "mysql_nowhere"))
    airflow_site.wait_for_dag(DAG)
    assert airflow_site.run(DAG)["plan"] == "failed"
    yield airflow_site
    file.unlink()


def errors_seen(site: Site, user: str) -> list[dict[str, Any]]:
    """The last error in the answers for the pipeline and for all pipelines."""
    with site.client(user) as client:
        listed = client.get("/changefeed/api/pipelines").json()["pipelines"]
        shown = [client.get(f"/changefeed/api/pipelines/{NAME}").json()]
        return [one["last_error"] for one in [*shown, *listed] if one["name"] == NAME]


def test_errors_in_a_log_are_shown_to_its_readers_only(failed: Site) -> None:
    failed.give_rights(f"GET dag {DAG}")
    for error in errors_seen(failed, "rita"):
        assert error["task_id"] == "plan", "the state is there"
        assert "permission for task logs" in error["text"]
        assert WORDS not in str(error)
    failed.give_rights(f"GET dag {DAG}", f"GET task_logs {DAG}")
    for user in ("rita", "vera"):
        errors = errors_seen(failed, user)
        assert [WORDS in error["text"] for error in errors] == [True, True], errors
