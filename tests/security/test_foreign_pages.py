"""A foreign page in the browser of a logged-in user can neither act nor read: neither by requests to Airflow (CSRF),
nor with its own host name pointed at Airflow (DNS rebinding)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from airflow_site import OVER_REST, Site

import changefeed_web

API = "/changefeed/api"
FOREIGN = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
NEIGHBOUR = {"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-site"}
"""Another server of the same machine, to which browsers send the same cookies, as cookies ignore ports."""
NAMELESS = {"Origin": "null"}
"""A page in a sandboxed frame, in a browser that sends no Sec-Fetch-Site."""

YAML = OVER_REST.format(name="foreign", database="foreign", more="")
WRITES = [
    ("POST", "/pipelines", {"yaml": YAML}),
    ("PUT", "/pipelines/idle", {"yaml": YAML}),
    ("DELETE", "/pipelines/idle", None),
    ("POST", "/pipelines/idle/pause", None),
    ("POST", "/pipelines/idle/run", None),
    ("POST", "/pipelines/idle/run", {}),
    ("POST", "/pipelines/idle/seek", {"to": "latest", "why": "no"}),
    ("POST", "/pipelines/idle/backfill", {"from_file": "binlog.000001"}),
]
LOOKS = ["/changefeed/", "/changefeed/docs", "/changefeed/openapi.json", "/changefeed/metrics", f"{API}/pipelines"]


@pytest.fixture(scope="module")
def browser(airflow_site: Site) -> Iterator[httpx.Client]:
    """A client with the login cookie of an admin, without headers of a page."""
    cookies = {"_token": airflow_site.token("ada")}
    with httpx.Client(base_url=airflow_site.airflow.url, cookies=cookies, timeout=120) as client:
        yield client


def state(site: Site) -> tuple[dict[str, str], bool, int]:
    """State that a write could change: the files, whether the pipeline is paused, the number of runs."""
    with site.client() as client:
        dag = "/api/v2/dags/changefeed_ingest__idle"
        paused = client.get(dag).json()["is_paused"]
        runs = client.get(f"{dag}/dagRuns").json()["total_entries"]
    return {path.name: path.read_text() for path in site.pipelines.glob("*.yaml")}, paused, runs


@pytest.mark.parametrize("page", [FOREIGN, NEIGHBOUR, NAMELESS], ids=["foreign", "neighbour", "nameless"])
def test_a_foreign_page_changes_nothing(airflow_site: Site, browser: httpx.Client, page: dict[str, str]) -> None:
    before = state(airflow_site)
    for method, path, body in WRITES:
        answer = browser.request(method, API + path, json=body, headers={**page, "If-Match": "x"})
        assert answer.status_code == 403, (method, path, answer.text)
        assert "[api] base_url" in answer.json()["detail"]
    assert state(airflow_site) == before


def test_dns_rebinding_page_reads_and_changes_nothing(airflow_site: Site, browser: httpx.Client) -> None:
    port = urlsplit(airflow_site.airflow.url).port
    before = state(airflow_site)
    for host in (f"evil.example:{port}", "evil.example", f"127.0.0.1.evil.example:{port}", f"evil@127.0.0.1:{port}"):
        rebound = {"Host": host, "Origin": f"http://{host}", "X-Forwarded-Host": f"127.0.0.1:{port}"}
        for path in LOOKS:
            answer = browser.get(path, headers={"Host": host, "X-Forwarded-Host": f"127.0.0.1:{port}"})
            assert (answer.status_code, "[api] base_url" in answer.text) == (403, True), (host, path, answer.text)
        for method, path, body in WRITES:
            assert browser.request(method, API + path, json=body, headers=rebound).status_code == 403, (host, path)
    assert state(airflow_site) == before


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""])
def test_body_of_an_html_form_is_refused(browser: httpx.Client, kind: str) -> None:
    answer = browser.post(f"{API}/pipelines/idle/run", content=b"{}", headers={"Content-Type": kind} if kind else {})
    assert (answer.status_code, "application/json" in answer.text) == (415, True), answer.text


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "[::1]"])
def test_airflows_own_page_works_under_each_name_of_this_machine(
    airflow_site: Site, browser: httpx.Client, name: str
) -> None:
    host = f"{name}:{urlsplit(airflow_site.airflow.url).port}"
    own = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    assert browser.get("/changefeed/", headers={"Host": host, "Sec-Fetch-Site": "none"}).status_code == 200
    planned = browser.post(f"{API}/pipelines/idle/seek/plan", json={"to": "yesterday"}, headers=own)
    assert planned.status_code == 422, planned.text
    assert browser.post(f"{API}/pipelines/idle/resume", headers=own).status_code == 200


def test_program_with_a_token_may_use_any_host_name(airflow_site: Site) -> None:
    with airflow_site.client("ulf") as program:
        for host in ("10.1.2.3:8080", "airflow.internal"):
            assert program.get("/changefeed/metrics", headers={"Host": host}).status_code == 200
            assert program.post(f"{API}/pipelines/idle/resume", headers={"Host": host}).status_code == 200


def test_page_with_a_token_is_not_treated_as_a_program(airflow_site: Site, browser: httpx.Client) -> None:
    for token in ("x.y.z", airflow_site.token("ada")):
        answer = browser.post(f"{API}/pipelines/idle/resume", headers={**FOREIGN, "Authorization": f"Bearer {token}"})
        assert answer.status_code == 403
        assert "evil.example" in answer.json()["detail"]


def test_api_description_requires_a_login(airflow_site: Site) -> None:
    with airflow_site.client(None) as nobody, airflow_site.client("vera") as viewer:
        assert nobody.get("/changefeed/openapi.json").status_code == 401
        assert nobody.get("/changefeed/docs").status_code == 307
        forged = nobody.get("/changefeed/", headers={"Authorization": "Bearer x.y.z"})
        assert forged.status_code == 307
        assert viewer.get("/changefeed/openapi.json").json()["info"]["title"] == "changefeed"
        assert viewer.get("/changefeed/docs").status_code == 200


def test_answers_forbid_foreign_frames_and_scripts(browser: httpx.Client) -> None:
    page = Path(changefeed_web.__file__).parent / "page"
    served = [*LOOKS, *(f"/changefeed/static/{file.name}" for file in page.iterdir()), "/changefeed/static/no.js"]
    for path in served:
        headers = browser.get(path).headers
        assert "default-src 'self'" in headers["Content-Security-Policy"], path
        assert "frame-ancestors 'self'" in headers["Content-Security-Policy"], path
        assert headers["X-Content-Type-Options"] == "nosniff", path
