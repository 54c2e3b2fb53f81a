"""The scrape token reads the metrics of all pipelines, and nothing else: no other route or method accepts it."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from airflow_site import PIPELINE, SCRAPE_TOKEN, Site
from security.test_roles import OWN, TABLE, send

from changefeed.airflow.connections import job_environment, job_variables
from changefeed.settings.file import parse_pipeline

METRICS = "/changefeed/metrics"

pytestmark = pytest.mark.timeout(600)


def scraper(site: Site, token: str = SCRAPE_TOKEN) -> httpx.Client:
    return httpx.Client(base_url=site.airflow.url, headers={"Authorization": f"Bearer {token}"}, timeout=120)


def test_scrape_token_reads_metrics_of_all_pipelines_without_a_user(airflow_site: Site) -> None:
    with scraper(airflow_site) as prometheus, airflow_site.client("ada") as admin:
        answer = prometheus.get(METRICS)
        assert answer.status_code == 200, answer.text
        assert answer.headers["Content-Type"].startswith("text/plain")
        names = [line for line in admin.get(METRICS).text.splitlines() if line.startswith("changefeed_up")]
        assert names
        assert [line for line in answer.text.splitlines() if line.startswith("changefeed_up")] == names


@pytest.mark.parametrize("token", [SCRAPE_TOKEN[:-1], SCRAPE_TOKEN + "a", SCRAPE_TOKEN.upper(), "x" * 40, ""])
def test_wrong_scrape_token_is_refused(airflow_site: Site, token: str) -> None:
    with scraper(airflow_site, token or "-") as prometheus:
        assert prometheus.get(METRICS).status_code in (401, 403)
        assert httpx.get(airflow_site.airflow.url + METRICS).status_code == 401
        as_cookie = httpx.get(airflow_site.airflow.url + METRICS, cookies={"_token": SCRAPE_TOKEN})
        assert as_cookie.status_code in (401, 403)


def test_scrape_token_opens_no_other_route(airflow_site: Site) -> None:
    others = [row for row in TABLE if row.may["anonymous"] == "–" and row.path != "/metrics"]
    assert len(others) > 25
    with scraper(airflow_site) as prometheus:
        for row in others:
            assert send(prometheus, row, OWN).status_code in (303, 307, 401, 403), row
        for path in ("/api/v2/dags", "/api/v2/connections", "/api/v2/variables"):
            assert prometheus.get(path).status_code in (401, 403), path
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert prometheus.request(method, METRICS).status_code == 405, method


def test_scrape_token_is_in_no_log(airflow_site: Site) -> None:
    with scraper(airflow_site) as prometheus:
        assert prometheus.get(METRICS, params={"verbose": "1"}).status_code == 200
    for log in airflow_site.airflow.logs.values():
        assert SCRAPE_TOKEN not in Path(log).read_text()


def test_scrape_token_is_not_in_the_environment_of_jobs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("scrape_token: {environment: CHANGEFEED_SCRAPE_TOKEN}\n")
    monkeypatch.setenv("CHANGEFEED_SITE", str(site))
    monkeypatch.setenv("CHANGEFEED_SCRAPE_TOKEN", SCRAPE_TOKEN)
    monkeypatch.setenv("AIRFLOW_CONN_MYSQL_SHOP", "mysql://a:b@127.0.0.1")
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_SHOP", "kafka://127.0.0.1:9092")
    text = PIPELINE.format(name="shop", database="shop", server_ids="1-9", more="")
    pipeline = parse_pipeline(text, "shop.yaml")
    environment = job_environment(pipeline)
    assert environment["CHANGEFEED_SITE"] == str(site)
    assert SCRAPE_TOKEN not in {**environment, **job_variables(pipeline)}.values()
