"""Who may do what: each route of the application as each role, on a pipeline of one's own and on another's.

What is right stands in docs/security.md, in its first table, which this reads.
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
    "/seek/plan": {"to": "latest"},
    "/seek": {"to": "latest", "why": "a test"},
    "/backfill/plan": {"from_file": "binlog.000001"},
    "/backfill": {"from_file": "binlog.000001"},
    "/snapshot/plan": {},
    "/snapshot": {},
    "/snapshot/pause": {},
    "/snapshot/resume": {},
    "/verify": {},
}
"""By the end of the path: bodies of the right shape."""

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Row:
    """A route as the table has it: what it needs, and by column who may."""

    method: str
    path: str
    needs: str
    may: dict[str, str]

    def rights(self, pipeline: str) -> set[str]:
        """The rights that it needs on the pipeline's DAGs, as `LimitedAuthManager` has them."""
        kinds = "ingest|seek|backfill|snapshot|verify"
        found = re.findall(rf"\b(GET|PUT|POST|DELETE) (runs of )?({kinds})\b", self.needs)
        return {f"{method} {'run' if runs else 'dag'} changefeed_{kind}__{pipeline}" for method, runs, kind in found}


def table() -> list[Row]:
    lines = (PROJECT / "docs" / "security.md").read_text().splitlines()
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


def named(rows: list[Row]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", rows, ids=[f"{row.method} {row.path}" for row in rows])


def routes(routes_: list[BaseRoute]) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for route in routes_:
        if isinstance(route, Mount):
            found.add(("GET", f"{route.path}/{{path}}"))
        else:
            assert isinstance(route, Route), f"{route} is of a kind that the table does not have"
            found |= {(method, route.path) for method in route.methods or () if method != "HEAD"}
    return found


def test_each_route_of_the_application_is_in_the_table_and_no_other_is() -> None:
    assert routes(create_app().routes) == {(row.method, row.path) for row in TABLE}
    assert len(TABLE) == len({(row.method, row.path) for row in TABLE})


@pytest.fixture(scope="module")
def walk(airflow_site: Site) -> Iterator[Site]:
    """Two pipelines whose files have a mistake. Whoever has the right to do something is told of that mistake, which
    comes after the right was looked at, and nothing begins."""
    files = [airflow_site.pipelines / f"{name}.yaml" for name in (OWN, OTHER)]
    for file in files:
        file.write_text(PIPELINE.format(name=file.stem, database="walk", server_ids="66000-66031", more="retires: 3\n"))
    yield airflow_site
    airflow_site.give_rights()
    for file in files:
        file.unlink()


def asked(client: httpx.Client, row: Row, pipeline: str) -> httpx.Response:
    body = next((body for end, body in BODIES.items() if row.path.endswith(end)), None) if row.method != "GET" else None
    path = row.path.format(name=pipeline, path="page.css")
    return client.request(row.method, PREFIX + path, json=body, follow_redirects=False)


def allowed(answer: httpx.Response, who: str | None) -> bool:
    """Whether the right was there: 403 without it; without a login 401 or, for pages, the way to the login."""
    if answer.status_code in (303, 307, 401):
        assert who is None, f"{who} is logged in, and was sent to the login"
        return False
    assert answer.status_code < 500, answer.text
    return answer.status_code != 403


@named(TABLE)
def test_a_route_is_for_those_whom_the_table_names(walk: Site, row: Row) -> None:
    found = {}
    for (role, user), pipeline in product(ROLES.items(), (OWN, OTHER)):
        with walk.client(user) as client:
            found[role, pipeline] = allowed(asked(client, row, pipeline), user)
    assert found == {(role, pipeline): row.may[role] != "–" for role in ROLES for pipeline in (OWN, OTHER)}


@pytest.mark.extended
@named([row for row in TABLE if "{name}" in row.path])
def test_rights_on_one_pipeline_are_none_on_another(walk: Site, row: Row) -> None:
    walk.give_rights(f"* * changefeed_*__{OWN}")
    with walk.client("rita") as limited:
        assert allowed(asked(limited, row, OWN), "rita")
        assert allowed(asked(limited, row, OTHER), "rita") == (row.may[LIMITED] != "–") is False


@pytest.mark.extended
@named([row for row in TABLE if row.rights(OWN)])
def test_a_route_needs_the_rights_that_the_table_says_each_of_them_and_no_more(walk: Site, row: Row) -> None:
    rights = row.rights(OWN)
    with walk.client("rita") as limited:
        walk.give_rights(*rights)
        assert allowed(asked(limited, row, OWN), "rita")
        for right in rights:
            walk.give_rights(f"* * changefeed_*__{OTHER}", *(rights - {right}))
            refused = asked(limited, row, OWN)
            assert not allowed(refused, "rita"), f"without {right}"
            method, _, dag_id = right.split()
            assert f"permission for {method} on" in refused.json()["detail"]
            assert dag_id in refused.json()["detail"]


@pytest.mark.extended
@named([row for row in TABLE if row.may[LIMITED] in ("✓", "–") and not row.rights(OWN)])
def test_who_has_rights_on_one_pipeline_has_those_of_no_pipeline_as_the_table_says(walk: Site, row: Row) -> None:
    walk.give_rights(f"* * changefeed_*__{OWN}")
    with walk.client("rita") as limited:
        assert allowed(asked(limited, row, ""), "rita") == (row.may[LIMITED] == "✓")


@pytest.mark.extended
@named([row for row in TABLE if row.may[LIMITED] == "own"])
def test_a_list_shows_what_one_may_see_and_names_nothing_else(walk: Site, row: Row) -> None:
    for name in ("seen", "hidden"):
        text = PIPELINE.format(name=name, database="walk", server_ids="66100-66131", more="")
        (walk.pipelines / f"{name}.yaml").write_text(text.replace("mysql_shop", "mysql_nowhere"))
    try:
        walk.give_rights("GET dag changefeed_ingest__seen")
        with walk.client("rita") as limited, walk.client("vera") as viewer:
            told, all_of_it = asked(limited, row, "").text, asked(viewer, row, "").text
    finally:
        for name in ("seen", "hidden"):
            (walk.pipelines / f"{name}.yaml").unlink()
    assert ("seen" in told, "hidden" in told) == (True, False)
    assert ("seen" in all_of_it, "hidden" in all_of_it) == (True, True)
    assert OTHER not in told, "nor that a file of another pipeline is wrong"


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
    with sqlite3.connect(airflow_site.airflow.directory / "airflow.db") as database:  # its page waits for the DAG
        logged = set(database.execute("SELECT event, dag_id FROM log WHERE owner = 'ulf'"))
    for pipeline, events in {"audited": ("create", "change", "delete"), "idle": ("pause", "run", "resume")}.items():
        assert {(f"changefeed_{event}", f"changefeed_ingest__{pipeline}") for event in events} <= logged
