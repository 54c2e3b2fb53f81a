"""The contract of the REST API: its answers and refusals."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from airflow_site import OVER_REST, Site, wait_until

API = "/changefeed/api"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def rest(airflow_site: Site) -> Iterator[Site]:
    airflow_site.mysql.execute("CREATE DATABASE rest", "CREATE TABLE rest.t (id INT PRIMARY KEY)")
    airflow_site.add_pipeline("rest", "rest")
    yield airflow_site
    (airflow_site.pipelines / "rest.yaml").unlink(missing_ok=True)
    airflow_site.mysql.execute("DROP DATABASE rest")


def yaml_of(name: str, more: str = "") -> str:
    return OVER_REST.format(name=name, database="rest", more=more)


WRITES = [
    ("POST", "/pipelines", {"yaml": yaml_of("other")}),
    ("PUT", "/pipelines/rest", {"yaml": yaml_of("rest")}),
    ("DELETE", "/pipelines/rest", None),
    ("POST", "/pipelines/rest/pause", None),
    ("POST", "/pipelines/rest/resume", None),
    ("POST", "/pipelines/rest/run", {}),
    ("POST", "/pipelines/rest/runs/manual__1/cancel", None),
    ("POST", "/pipelines/rest/seek", {"to": "latest", "why": "no"}),
    ("POST", "/pipelines/rest/backfill", {"from_file": "binlog.000001"}),
    ("POST", "/pipelines/rest/snapshot", {}),
]


@pytest.mark.parametrize(("method", "path", "body"), WRITES, ids=lambda value: str(value)[:24])
def test_a_write_is_refused_without_a_token_and_without_the_permission(
    rest: Site, method: str, path: str, body: object
) -> None:
    before = {one.name: one.read_text() for one in rest.pipelines.glob("*.yaml")}
    with rest.client(None) as nobody, rest.client("vera") as viewer:
        assert nobody.request(method, API + path, json=body).status_code == 401
        forged = nobody.request(method, API + path, json=body, headers={"Authorization": "Bearer x.y.z"})
        assert forged.status_code in (401, 403)
        refused = viewer.request(method, API + path, json=body)
        assert refused.status_code == 403
        assert "permission" in refused.json()["detail"]
    assert {one.name: one.read_text() for one in rest.pipelines.glob("*.yaml")} == before


@pytest.mark.parametrize(
    "path",
    [
        "/pipelines",
        "/pipelines/rest",
        *(f"/pipelines/rest/{what}" for what in ("windows", "schema", "tables", "seeks", "binlogs")),
    ],
)
def test_reading_requires_a_token_only(rest: Site, path: str) -> None:
    with rest.client(None) as nobody, rest.client("vera") as viewer:
        assert nobody.get(API + path).status_code == 401
        assert viewer.get(API + path).status_code == 200


def test_pipeline_shows_its_state_and_lag(rest: Site) -> None:
    with rest.client() as client:
        content = client.get(f"{API}/pipelines/rest").json()
        assert content["position"]["state"] in ("new", "current", "behind")
        assert content["topics"] == {"rest.t": "rest.t"}
        assert content["dag"]["dag_id"] == "changefeed_ingest__rest"
        listed = client.get(f"{API}/pipelines").json()
        assert "rest" in [one["name"] for one in listed["pipelines"]]
        assert {"source": "mysql_shop", "kafka": "kafka_shop"} in listed["connections"]
        assert "connection: " + listed["connections"][0]["source"] in listed["template"]
        assert client.get(f"{API}/pipelines/nosuch").status_code == 404
        newest = client.get(f"{API}/pipelines/rest/binlogs").json()["files"][0]
        assert newest["name"] == rest.mysql.head().partition(":")[0]
        assert abs(newest["begun_seconds"] - time.time()) < 86_400


@pytest.mark.extended
def test_check_reads_the_servers_of_a_pipeline_that_is_not_saved(rest: Site) -> None:
    with rest.client("ulf") as client:
        new = client.post(f"{API}/pipelines/check", json={"yaml": yaml_of("made", "topics: {partitions: 2}\n")})
        assert new.status_code == 422, "a repeated key"
        new = client.post(f"{API}/pipelines/check", json={"yaml": yaml_of("made")})
        text = client.get(f"{API}/pipelines/rest").json()["yaml"]
        replicas = text.replace("partitions: 2", "partitions: 2\n  replication_factor: 3")
        changed = client.post(f"{API}/pipelines/rest/check", json={"yaml": replicas})
        assert not (rest.pipelines / "made.yaml").exists()
        assert (rest.pipelines / "rest.yaml").read_text() == text
    assert (new.status_code, new.json()["complete"]) == (200, True), new.text
    shown = "\n".join(new.json()["right"])
    assert [
        words for words in ("1 tables: rest.t", "next run:", "a message of a made-up row") if words not in shown
    ] == []
    assert any("both write 'rest.t'" in text for text in new.json()["wrong"]), "pipeline rest does"
    assert any("replication_factor" in text for text in changed.json()["wrong"]), changed.text


@pytest.mark.extended
def test_servers_of_a_new_pipeline_are_tested_and_its_tables_listed(rest: Site) -> None:
    with rest.client("ulf") as client:
        pair = {"source": "mysql_shop", "kafka": "kafka_shop"}
        tested = client.post(f"{API}/new-pipeline/servers", json=pair).json()
        refused = client.post(f"{API}/new-pipeline/servers", json={**pair, "kafka": "mysql_shop"})
        its = {**pair, "database": "rest", "table": "t"}
        columns = client.post(f"{API}/new-pipeline/columns", json=its).json()
        missing = client.post(f"{API}/new-pipeline/columns", json={**its, "table": "nosuch"}).json()
        written = client.post(f"{API}/new-pipeline/yaml", json={**pair, "name": "made", "tables": ["rest.*"]}).json()
        assert client.post(f"{API}/pipelines/check", json={"yaml": written["yaml"]}).status_code == 200
        assert "anyOf" in client.get(f"{API}/settings-schema").text
    assert (tested["source"]["problem"], tested["kafka"]["problem"]) == (None, None)
    (table,) = [one for one in tested["source"]["tables"] if one["database"] == "rest"]
    assert (table["table"], table["key"], table["warnings"]) == ("t", ["id"], [])
    column = {"name": "id", "type": "int", "in_key": True, "is_text": False}
    assert columns == {"problem": None, "columns": [column]}
    assert "found rest.nosuch, which it does not have" in missing["problem"]
    assert (refused.status_code, "may not be used together" in refused.text) == (422, True)


@pytest.mark.extended
def test_a_pipeline_is_created_changed_and_deleted_and_its_dag_follows(rest: Site) -> None:
    with rest.client("ulf") as client:
        created = client.post(f"{API}/pipelines", json={"yaml": yaml_of("made")})
        assert (created.status_code, created.json()["warnings"]) == (201, []), created.text
        rest.wait_for_dag("changefeed_ingest__made")
        assert client.post(f"{API}/pipelines", json={"yaml": yaml_of("made")}).status_code == 409
        tag = client.get(f"{API}/pipelines/made").headers["ETag"]
        assert tag == created.headers["ETag"]
        text = yaml_of("made", more="owner: ulf\n").replace("rest.*", "rset.*")
        assert client.put(f"{API}/pipelines/made", json={"yaml": text}).status_code == 428
        changed = client.put(f"{API}/pipelines/made", json={"yaml": text}, headers={"If-Match": tag})
        assert changed.status_code == 200
        assert "No table of the source matches rset.*" in changed.json()["warnings"][0]
        stale = client.delete(f"{API}/pipelines/made", headers={"If-Match": tag})
        assert stale.status_code == 412
        assert (rest.pipelines / "made.yaml").read_text() == text
        gone = client.delete(f"{API}/pipelines/made", headers={"If-Match": changed.headers["ETag"]})
        assert gone.status_code == 204
        assert not (rest.pipelines / "made.yaml").exists()


@pytest.mark.extended
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (yaml_of("wrong", "retires: 3\n"), "unknown key 'retires' (did you mean 'retries'?)"),
        (yaml_of("Wrong Name"), "'name' is 'Wrong Name'"),
        ("name: [", "is not YAML"),
        ("!!python/object/apply:os.system ['true']", "is not YAML"),
        (yaml_of("code", "spark: {conf: {spark.driver.extraJavaOptions: -agentpath:x}}\n"), "can name code to run"),
        (yaml_of("code", "alerts: {notify: [{notifier: os.system}]}\n"), "not in `notifiers`"),
    ],
)
def test_invalid_pipeline_is_refused_and_not_written(rest: Site, text: str, words: str) -> None:
    before = sorted(path.name for path in rest.pipelines.glob("*"))
    with rest.client() as client:
        answer = client.post(f"{API}/pipelines", json={"yaml": text})
    assert answer.status_code == 422
    assert words in answer.json()["detail"]
    assert sorted(path.name for path in rest.pipelines.glob("*") if path.name != ".lock") == [
        name for name in before if name != ".lock"
    ]


@pytest.mark.extended
def test_salt_is_hidden_and_its_location_shown_to_editors_only(rest: Site) -> None:
    masked = "columns: {mask: {rest.t.text: {sha256: {environment: PL4NTED}}}}\n"
    (rest.pipelines / "salted.yaml").write_text(yaml_of("salted", masked))
    (rest.pipelines / "wrong.yaml").write_text(
        yaml_of("wrong", masked.replace("{environment: PL4NTED}", "pl4nted-salt"))
    )
    try:
        with rest.client("vera") as viewer, rest.client() as editor:
            assert "PL4NTED" in editor.get(f"{API}/pipelines/salted").json()["yaml"]
            seen = viewer.get(f"{API}/pipelines/salted").text
            listed = viewer.get(f"{API}/pipelines").text
            refused = editor.get(f"{API}/pipelines/wrong")
            assert viewer.get(f"{API}/pipelines").json()["connections"] == [], "vera may not create pipelines"
        assert "sha256: '***'" in seen
        assert "wrong.yaml, line" in listed
        assert "PL4NTED" not in seen
        assert (refused.status_code, "{connection: ITS_ID}" in refused.text) == (422, True)
        assert "pl4nted-salt" not in listed + refused.text
    finally:
        for name in ("salted", "wrong"):
            (rest.pipelines / f"{name}.yaml").unlink()


@pytest.mark.extended
def test_concurrent_change_of_a_pipeline_is_refused(rest: Site) -> None:
    with rest.client() as client:
        seen = client.get(f"{API}/pipelines/rest")
        tag = seen.headers["ETag"]

        def change(number: int) -> int:
            text = f"{seen.json()['yaml']}owner: owner{number}\n"
            answer = client.put(f"{API}/pipelines/rest", json={"yaml": text}, headers={"If-Match": tag})
            return answer.status_code

        with ThreadPoolExecutor(6) as threads:
            statuses = sorted(threads.map(change, range(6)))
        assert statuses == [200, 412, 412, 412, 412, 412]
    rest.write_pipeline("rest", "rest")


@pytest.mark.extended
def test_pause_and_resume_change_the_state_of_the_dag(rest: Site) -> None:
    with rest.client("ulf") as client:
        dag = "/api/v2/dags/changefeed_ingest__rest"
        assert client.post(f"{API}/pipelines/rest/pause").json()["paused"] is True
        assert client.get(dag).json()["is_paused"] is True
        assert client.post(f"{API}/pipelines/rest/resume").json()["paused"] is False
        assert client.get(dag).json()["is_paused"] is False


@pytest.mark.extended
def test_every_write_is_in_airflows_audit_log(rest: Site) -> None:
    with rest.client("ulf") as client:
        client.post(f"{API}/pipelines/rest/resume")
    with rest.client() as client:
        events = client.get("/api/v2/eventLogs", params={"event": "changefeed_resume"}).json()["event_logs"]
    assert ("ulf", "changefeed_ingest__rest") in [(one["owner"], one["dag_id"]) for one in events]


@pytest.mark.extended
@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("run", {"max_bytes": 0}, 422, "greater than 0"),
        ("run", {"max_byte": 1}, 422, "Extra inputs"),
        ("seek/plan", {"to": "yesterday"}, 422, "expected earliest"),
        ("seek/plan", {"to": "binlog.000999:4"}, 410, "is not there"),
        ("seek", {"to": "latest"}, 422, "needs a reason"),
        ("seek", {"to": "latest", "why": "x", "expected": "binlog.000999:4"}, 409, "look again"),
        ("backfill", {}, 422, "expected one range"),
        ("backfill", {"from_file": "binlog.000001", "gtids": "x"}, 422, "expected one range"),
        ("backfill", {"from_file": "binlog.000001", "suffix": "no dot"}, 422, "suffix"),
        ("backfill/plan", {"from_file": "binlog.000001", "tables": ["other.t"]}, 422, "no table"),
        ("backfill/plan", {"from_time": "1999-01-01T00:00:00Z"}, 410, "begins at"),
        ("snapshot", {"where": "SLEEP(9)"}, 422, "cannot be evaluated"),
        ("snapshot", {"rows_per_second": 0}, 422, "greater than 0"),
        ("snapshot/plan", {"tables": ["other.*"]}, 422, "no table"),
        ("snapshot/plan", {"where": "nothing = 1"}, 422, "has no column"),
        ("snapshot/pause", {}, 422, "no unfinished snapshot"),
        ("snapshot/resume", {}, 422, "no unfinished snapshot"),
    ],
)
def test_invalid_request_is_answered_with_its_error(
    rest: Site, path: str, body: dict[str, object], status: int, words: str
) -> None:
    with rest.client() as client:
        answer = client.post(f"{API}/pipelines/rest/{path}", json=body)
    assert (answer.status_code, words in answer.text) == (status, True), answer.text


@pytest.mark.extended
def test_unreachable_source_is_shown_as_state_error(rest: Site) -> None:
    text = yaml_of("down").replace("mysql_shop", "mysql_nowhere")
    (rest.pipelines / "down.yaml").write_text(text)
    os.utime(rest.pipelines / "down.yaml", (0, time.time() - 3600))
    with rest.client() as client:
        content = client.get(f"{API}/pipelines/down")
        assert content.status_code == 200
        dag = content.json()["dag"]
        if not dag["known"]:  # Airflow parses files each 30 seconds, and may have done so just now
            assert dag["missing"]["overdue"]
            assert "The DAG processor runs" in dag["missing"]["text"]
            assert content.json()["standing"]["text"] == "not loaded"
            refused = client.post(f"{API}/pipelines/down/run", json={})
            assert (refused.status_code, "The DAG processor runs" in refused.text) == (409, True), refused.text
        assert content.json()["position"]["state"] == "error"
        assert "mysql_nowhere" in content.json()["position"]["error"]
        new, tag = {"yaml": f"{text}owner: ulf\n"}, content.headers["ETag"]
        saved = client.put(f"{API}/pipelines/down", json=new, headers={"If-Match": tag})
        assert saved.status_code == 200, saved.text
        assert "was not checked: " in saved.json()["warnings"][0]
        tag = saved.headers["ETag"]
        assert client.delete(f"{API}/pipelines/down", headers={"If-Match": tag}).status_code == 204


@pytest.mark.extended
def test_error_of_an_attempt_is_shown_while_the_task_waits_for_its_retry(rest: Site) -> None:
    dag, file = "changefeed_ingest__retried", rest.pipelines / "retried.yaml"
    source = {"connection_id": "down_source", "conn_type": "mysql", "host": "127.0.0.1", "port": 1, "login": "nobody"}
    text = yaml_of("retried").replace("mysql_shop", "down_source").replace("retries: 0", "retries: 2")
    with rest.client() as client:
        assert client.post("/api/v2/connections", json=source).status_code == 201
        file.write_text(text.replace("retry_delay_seconds: 1", "retry_delay_seconds: 900"))
        rest.wait_for_dag(dag)
        run_id = rest.trigger(dag)
        shown = wait_until(
            lambda: client.get(f"{API}/pipelines/retried").json()["last_error"], "the first attempt has failed", 300
        )
        assert (shown["task_id"], shown["attempt"], shown["attempts"], shown["retried"]) == ("plan", 1, 3, True)
        assert "127.0.0.1:1 cannot be reached" in shown["text"]
        assert client.patch(f"/api/v2/dags/{dag}/dagRuns/{run_id}", json={"state": "failed"}).status_code == 200
        file.unlink()
        client.delete("/api/v2/connections/down_source")


@pytest.mark.extended
def test_answer_of_a_started_run_links_to_the_run(rest: Site) -> None:
    first = rest.mysql.execute("SHOW BINARY LOGS")[0][0]
    with rest.client("ulf") as client:
        backfill = client.post(f"{API}/pipelines/rest/backfill", json={"from_file": first, "tables": ["rest.t"]})
        assert backfill.status_code == 202, backfill.text
        assert backfill.json()["href"] == f"/dags/changefeed_backfill__rest/runs/{backfill.json()['run_id']}"
        seek = client.post(f"{API}/pipelines/rest/seek", json={"to": "latest", "why": "a test"})
        assert seek.status_code == 202, seek.text
        assert seek.json()["plan"]["to"]
        client.post(f"{API}/pipelines/rest/pause")
        run = client.post(f"{API}/pipelines/rest/run", json={"max_bytes": 1000})
        assert run.status_code == 202, run.text
        assert run.json()["held"] is True
        rested = client.get(f"{API}/pipelines/rest").json()
        assert (rested["dag"]["held"], rested["standing"]["text"]) == ([run.json()["run_id"]], "paused, a run is held")
        shown = client.get(f"{API}/pipelines/rest/backfills").json()["backfills"]
        assert backfill.json()["run_id"] in [one["run_id"] for one in shown]


@pytest.mark.extended
def test_schemas_are_listed_with_their_ddl_statements(rest: Site) -> None:
    with rest.client("ulf") as client:
        client.post(f"{API}/pipelines/rest/resume")
    rest.run("changefeed_ingest__rest")
    rest.mysql.execute("INSERT INTO rest.t VALUES (1)")
    rest.run("changefeed_ingest__rest")  # reads the tables' schemas
    rest.mysql.execute("ALTER TABLE rest.t ADD COLUMN note VARCHAR(20)")
    run_id = rest.trigger("changefeed_ingest__rest")
    assert rest.wait_for_run("changefeed_ingest__rest", run_id)[""] == "success"
    with rest.client("vera") as client:
        window = client.get(f"{API}/pipelines/rest/windows").json()["windows"][0]
        assert window["run"]["href"] == f"/dags/changefeed_ingest__rest/runs/{run_id}"
        content = client.get(f"{API}/pipelines/rest/schema").json()
        events = client.get(f"{API}/pipelines/rest/activity").json()["events"]
        (listed,) = client.get(f"{API}/pipelines", params={"name": ["rest", "nosuch"]}).json()["pipelines"]
    assert window["sealed_at_ms"] >= window["window"]["frozen_at_ms"]
    assert {"ALTER rest.t", f"window {window['window']['number']}: 0 rows"} <= {event["text"] for event in events}
    assert (listed["name"], listed["last_hour"]["total"]) == ("rest", 1)
    assert listed["freshness"]["tables"].keys() == {"rest.t"}
    assert 0 < listed["freshness"]["p50_seconds"] == listed["freshness"]["p99_seconds"]
    assert listed["headline"]["text"] == "All changes up to {at} are in Kafka."
    (table,) = [one for one in content["tables"] if one["table"] == "t"]
    assert table["primary_key"] == ["id"]
    columns = rest.mysql.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = 'rest' ORDER BY ordinal_position"
    )
    assert [column["name"] for column in table["columns"]] == [name for (name,) in columns]
    assert content["changes"][0]["sql"] == "ALTER TABLE rest.t ADD COLUMN note VARCHAR(20)"


@pytest.mark.extended
def test_routing_of_each_table_is_listed(rest: Site) -> None:
    rest.mysql.execute("CREATE TABLE IF NOT EXISTS rest.keyless (a INT)")
    with rest.client("vera") as client:
        content: dict[str, Any] = {}
        while "rest.keyless" not in content:  # answers are cached for some seconds
            content = {one["table"]: one for one in client.get(f"{API}/pipelines/rest/tables").json()["tables"]}
            time.sleep(0.5)
    rest.mysql.execute("DROP TABLE rest.keyless")
    assert content.keys() == {"rest.t", "rest.keyless"}
    assert (content["rest.t"]["topic"], content["rest.t"]["key"]) == ("rest.t", ["id"])
    assert (content["rest.keyless"]["key"], content["rest.keyless"]["partition_by"]) == ([], "key")
    sample = content["rest.t"]["sample"]
    assert (sample["about"], sample["key"]) == ("of a made-up row", '{"id":1}')
    assert content["rest.keyless"]["sample"]["key"] is None


@pytest.mark.extended
def test_prometheus_reads_lag_and_headroom(rest: Site) -> None:
    with rest.client("vera") as client:
        text = client.get("/changefeed/metrics").text
    assert "# TYPE changefeed_up gauge" in text
    assert 'changefeed_up{pipeline="rest"} 1' in text
    assert 'changefeed_commit_log_up{pipeline="rest"} 1' in text
    assert 'changefeed_last_run_retries{pipeline="rest"} 0' in text
    assert 'changefeed_freshness_seconds{pipeline="rest",table="rest.t"} ' in text


def test_api_serves_its_description(rest: Site) -> None:
    with rest.client() as client:
        paths = client.get("/changefeed/openapi.json").json()["paths"]
        docs = client.get("/changefeed/docs")
        assert docs.status_code == 200
        assert "default-src 'self'" in docs.headers["Content-Security-Policy"]
        assert "//" not in docs.text, "it loads nothing from other servers"
    for path in ("/api/pipelines", "/api/pipelines/{name}/seek", "/api/pipelines/{name}/backfill", "/metrics"):
        assert path in paths
