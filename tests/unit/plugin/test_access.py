"""Permission checks with Airflow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.configuration import conf
from airflow.models.dag import DagModel

from changefeed_web import access


@pytest.mark.parametrize(("several_teams", "team"), [("True", "red"), ("False", None)])
def test_permission_checks_name_the_dags_team(
    monkeypatch: pytest.MonkeyPatch, several_teams: str, team: str | None
) -> None:
    asked: list[Any] = []
    manager = SimpleNamespace(is_authorized_dag=lambda **question: asked.append(question["details"]))
    monkeypatch.setattr(access, "get_auth_manager", lambda: manager)
    monkeypatch.setattr(DagModel, "get_team_name", {"changefeed_ingest__shop": "red"}.get)
    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", several_teams)
    assert conf.getboolean("core", "multi_team") == (several_teams == "True")
    access.has_permission("ulf", "GET", "changefeed_ingest__shop")
    access.may_read_logs("ulf", "changefeed_ingest__shop")
    assert [(details.id, details.team_name) for details in asked] == [("changefeed_ingest__shop", team)] * 2
