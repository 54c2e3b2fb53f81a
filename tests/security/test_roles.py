"""Permissions: each route of the application with each role, on a permitted pipeline and on another one.

The expected results are read from the first table of docs/explanation/security.md.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import httpx
import pytest
from airflow_site import OVER_REST, PIPELINE, Site
from starlette.routing import BaseRoute, Mount, Route

from changefeed_web.app import create_app
from devstack.home import PROJECT

PREFIX = "/changefeed"
OWN, OTHER = "walked", "walkedelse"
ROLES = {"anonymous": None, "viewer": "vera", "user": "ulf", "op": "olga", "admin": "ada"}
LIMITED = "of another pipeline"

BODIES = {
    "/pipelines": {"yaml": "name: [\n"},
    "/pipelines/{name}": {"yaml": "name: [\n"},
    "/new-pipeline/yaml": {"name": "new", "source": "m", "kafka": "k", "tables": ["*.*"]},
    "/new-pipeline/servers": {"source": "m", "kafka": "k"},
    "/new-pipeline/columns": {"source": "m", "kafka": "k", "database": "shop", "table": "orders"},
    "/check": {"yaml": "name: [\n"},
    "/seek/plan": {"to": "latest"},
    "/seek": {"to": "latest", "why": "a test"},
    "/backfill/plan": {"from_file": "binlog.000001"},
    "/backfill": {"from_file": "binlog.000001"},
    "/snapshot/plan": {},
    "/snapshot": {},
    "/snapshot/pause": {},
    "/snapshot/resume": {},
    "/verify": {},
    "/unpark": {},
    "/dead-letters/discard/plan": {},
    "/dead-letters/discard": {"up_to": {"0": 0}, "why": "a test"},
}
"""Valid bodies by the end of the path."""

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Row:
    """A route in the table: the required rights, and who may use it, by column."""

    method: str
    path: str
    needs: str
    may: dict[str, str]

    def rights(self, pipeline: str) -> set[str]:
        """The required rights on the pipeline's DAGs, in the form of `LimitedAuthManager`."""
        kinds = "ingest|seek|backfill|snapshot|verify|unpark"
        actual = re.findall(rf"\b(GET|PUT|POST|DELETE) (runs of )?({kinds})\b", self.needs)
        return {f"{method} {'run' if runs else 'dag'} changefeed_{kind}__{pipeline}" for method, runs, kind in actual}


def table() -> list[Row]:
    lines = (PROJECT / "docs" / "explanation" / "security.md").read_text().splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("| route "))
    head = [cell.strip() for cell in lines[begin].strip("|").split("|")]
    rows = []
    for line in lines[begin + 2 :]:
        if not line.startswith("|"):
            return rows
        route, needs, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        method, path = route.strip("`").split()
        rows.append(Row(method, path, needs, dict(zip(head[2:], cells, strict=True))))
    return rows


TABLE = table()


def parametrize_rows(rows: list[Row]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", rows, ids=[f"{row.method} {row.path}" for row in rows])


def routes(routes_: list[BaseRoute]) -> set[tuple[str, str]]:
    actual: set[tuple[str, str]] = set()
    for route in routes_:
        if isinstance(route, Mount):
            actual.add(("GET", f"{route.path}/{{path}}"))
        else:
            assert isinstance(route, Route), f"{route} is of a kind that the table does not have"
            actual |= {(method, route.path) for method in route.methods or () if method != "HEAD"}
    return actual


def test_table_has_exactly_the_routes_of_the_application() -> None:
    assert routes(create_app().routes) == {(row.method, row.path) for row in TABLE}
    assert len(TABLE) == len({(row.method, row.path) for row in TABLE})


@pytest.fixture(scope="module")
def walk(airflow_site: Site) -> Iterator[Site]:
    """Two invalid pipelines.

    A permitted request is answered with the pipeline's error, as permissions are checked first, so that no action
    starts.
    """
    files = [airflow_site.pipelines / f"{name}.yaml" for name in (OWN, OTHER)]
    for file in files:
        file.write_text(PIPELINE.format(name=file.stem, database="walk", server_ids="66000-66031", more="retires: 3\n"))
    yield airflow_site
    airflow_site.give_rights()
    for file in files:
        file.unlink()


def send(client: httpx.Client, row: Row, pipeline: str) -> httpx.Response:
    body = next((body for end, body in BODIES.items() if row.path.endswith(end)), None) if row.method != "GET" else None
    path = row.path.format(name=pipeline, path="page.css", run_id="manual__1")
    return client.request(row.method, PREFIX + path, json=body, follow_redirects=False)


def is_allowed(answer: httpx.Response, who: str | None) -> bool:
    """Whether the request was permitted: 403 if not; without a login 401 or, for pages, a redirect to the login."""
    if answer.status_code in (303, 307, 401):
        assert who is None, f"{who} is logged in, and was sent to the login"
        return False
    assert answer.status_code < 500, answer.text
    return answer.status_code != 403


@parametrize_rows(TABLE)
def test_route_is_allowed_to_the_roles_in_the_table(walk: Site, row: Row) -> None:
    actual = {}
    for (role, user), pipeline in product(ROLES.items(), (OWN, OTHER)):
        with walk.client(user) as client:
            actual[role, pipeline] = is_allowed(send(client, row, pipeline), user)
    assert actual == {(role, pipeline): row.may[role] != "–" for role in ROLES for pipeline in (OWN, OTHER)}


@pytest.mark.extended
@parametrize_rows([row for row in TABLE if "{name}" in row.path])
def test_rights_on_one_pipeline_do_not_apply_to_another(walk: Site, row: Row) -> None:
    walk.give_rights(f"* * changefeed_*__{OWN}")
    with walk.client("rita") as limited:
        assert is_allowed(send(limited, row, OWN), "rita")
        assert is_allowed(send(limited, row, OTHER), "rita") == (row.may[LIMITED] != "–") is False


@pytest.mark.extended
@parametrize_rows([row for row in TABLE if row.rights(OWN)])
def test_route_requires_exactly_the_rights_in_the_table(walk: Site, row: Row) -> None:
    rights = row.rights(OWN)
    with walk.client("rita") as limited:
        walk.give_rights(*rights)
        assert is_allowed(send(limited, row, OWN), "rita")
        for right in rights:
            walk.give_rights(f"* * changefeed_*__{OTHER}", *(rights - {right}))
            refused = send(limited, row, OWN)
            assert not is_allowed(refused, "rita"), f"without {right}"
            method, _, dag_id = right.split()
            assert f"permission for {method} on" in refused.json()["detail"]
            assert dag_id in refused.json()["detail"]


def test_the_right_to_start_runs_does_not_cancel_them(walk: Site) -> None:
    """Airflow requires PUT on runs for *mark failed*, too."""
    run = f"run changefeed_ingest__{OWN}"
    path = f"{PREFIX}/api/pipelines/{OWN}/runs/manual__1/cancel"
    with walk.client("rita") as limited:
        walk.give_rights(f"GET dag changefeed_ingest__{OWN}", f"POST {run}", f"GET {run}")
        assert limited.post(path).status_code == 403
        walk.give_rights(f"PUT {run}")
        assert limited.post(path).status_code == 422, "the pipeline's file is invalid"


@pytest.mark.extended
@parametrize_rows([row for row in TABLE if row.may[LIMITED] in ("✓", "–") and not row.rights(OWN)])
def test_rights_on_one_pipeline_allow_no_global_route(walk: Site, row: Row) -> None:
    walk.give_rights(f"* * changefeed_*__{OWN}")
    with walk.client("rita") as limited:
        assert is_allowed(send(limited, row, ""), "rita") == (row.may[LIMITED] == "✓")


@pytest.mark.extended
@parametrize_rows([row for row in TABLE if row.may[LIMITED] == "own"])
def test_list_shows_permitted_pipelines_only(walk: Site, row: Row) -> None:
    for name in ("seen", "hidden"):
        text = PIPELINE.format(name=name, database="walk", server_ids="66100-66131", more="")
        (walk.pipelines / f"{name}.yaml").write_text(text.replace("mysql_shop", "mysql_nowhere"))
    try:
        walk.give_rights("GET dag changefeed_ingest__seen")
        with walk.client("rita") as limited, walk.client("vera") as viewer:
            listed, all_of_it = send(limited, row, "").text, send(viewer, row, "").text
    finally:
        for name in ("seen", "hidden"):
            (walk.pipelines / f"{name}.yaml").unlink()
    assert ("seen" in listed, "hidden" in listed) == (True, False)
    assert ("seen" in all_of_it, "hidden" in all_of_it) == (True, True)
    assert OTHER not in listed, "nor the invalid file of another pipeline"


@pytest.mark.extended
def test_a_change_is_in_the_audit_log_with_its_user_and_pipeline(airflow_site: Site) -> None:
    text = OVER_REST.format(name="audited", database="walk", more="")
    pipelines, idle, runs = f"{PREFIX}/api/pipelines", f"{PREFIX}/api/pipelines/idle", "changefeed_ingest__idle/dagRuns"
    airflow_site.wait_for_dag("changefeed_ingest__idle")
    with airflow_site.client("ulf") as user:
        tag = user.post(pipelines, json={"yaml": text}).headers["ETag"]
        changed = user.put(
            f"{pipelines}/audited", json={"yaml": text + "owner: ulf\n"}, headers={"If-Match": tag}
        ).headers["ETag"]
        assert user.delete(f"{pipelines}/audited", headers={"If-Match": changed}).status_code == 204
        assert user.post(f"{idle}/pause").status_code == 200
        held = user.post(f"{idle}/run", json={"max_bytes": 1}).json()["run_id"]
        assert user.delete(f"/api/v2/dags/{runs}/{held}").status_code == 204
        assert user.post(f"{idle}/resume").status_code == 200
    with sqlite3.connect(
        airflow_site.airflow.directory / "airflow.db"
    ) as database:  # Airflow's REST API has the entries only when the DAG exists
        logged = set(database.execute("SELECT event, dag_id FROM log WHERE owner = 'ulf'"))
    for pipeline, events in {"audited": ("create", "change", "delete"), "idle": ("pause", "run", "resume")}.items():
        assert {(f"changefeed_{event}", f"changefeed_ingest__{pipeline}") for event in events} <= logged
