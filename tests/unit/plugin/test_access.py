"""Which rights Airflow is asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.configuration import conf
from airflow.models.dag import DagModel

from changefeed_web import access


@pytest.mark.parametrize(("several_teams", "team"), [("True", "red"), ("False", None)])
def test_where_airflow_has_teams_it_is_asked_with_the_team_of_the_dag(
    monkeypatch: pytest.MonkeyPatch, several_teams: str, team: str | None
) -> None:
    asked: list[Any] = []
    manager = SimpleNamespace(is_authorized_dag=lambda **question: asked.append(question["details"]))
    monkeypatch.setattr(access, "get_auth_manager", lambda: manager)
    monkeypatch.setattr(DagModel, "get_team_name", {"changefeed_ingest__shop": "red"}.get)
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", several_teams)
    assert conf.getboolean("core", "multi_team") == (several_teams == "True")
    access.may("ulf", "GET", "changefeed_ingest__shop")
    access.may_read_logs("ulf", "changefeed_ingest__shop")
    assert [(details.id, details.team_name) for details in asked] == [("changefeed_ingest__shop", team)] * 2
