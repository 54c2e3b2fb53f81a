"""Each DAG, run by Airflow's scheduler on real servers."""

from __future__ import annotations

import getpass
import json
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from airflow_database import PROGRAMS
from airflow_site import SCRAPE_TOKEN, Site, wait_until
from integration.kafka_pipeline import committed, ids
from monitoring_example import labels_by_metric, panels, rules

from changefeed.airflow.freshness_dag import FRESHNESS_DAG_ID
from changefeed_web.metrics import METRICS
from devstack.mysql import MysqlServer

PIPELINE, MORE = "shop", "window_bytes: 1\n"
INGEST, BACKFILL, SEEK = "changefeed_ingest__shop", "changefeed_backfill__shop", "changefeed_seek__shop"
VERIFY = "changefeed_verify__shop"
SNAPSHOT = "changefeed_snapshot__shop"

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def shop(airflow_site: Site) -> Iterator[Site]:
    """The shop pipeline; its first run set the checkpoint to the head."""
    airflow_site.mysql.execute(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id INT PRIMARY KEY AUTO_INCREMENT, n INT)",
        "CREATE TABLE shop.customers (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(40))",
    )
    airflow_site.add_pipeline(PIPELINE, "shop", more=MORE, submit=True)
    airflow_site.wait_for_dag("example_downstream")
    assert airflow_site.run(INGEST)["ingest"] == "skipped", "nothing is new, so Spark is not started"
    yield airflow_site
    airflow_site.mysql.execute("DROP DATABASE shop")


def status(site: Site) -> dict[str, Any]:
    with site.client() as client:
        content: dict[str, Any] = client.get("/changefeed/api/pipelines/shop").json()["position"]
        return content


def records(site: Site, topic: str) -> list[str]:
    return ids(committed(site.kafka.bootstrap, topic))


@pytest.fixture(scope="module")
def caught_up(shop: Site) -> dict[str, Any]:
    """A backlog of three files, published in one run by spark-submit; status before and after, states and log.

    Later runs use the running Spark Connect server.
    """
    before = status(shop)
    for number in range(3):
        shop.mysql.execute(
            f"INSERT INTO shop.orders (n) VALUES ({number}), ({number}), ({number})",
            "INSERT INTO shop.customers (name) VALUES ('Ada')" if number == 1 else "DO 0",
            "FLUSH BINARY LOGS",
        )
    states = shop.run(INGEST)
    shop.write_pipeline(PIPELINE, "shop", more=MORE)
    return {"before": before, "states": states, "after": status(shop), "log": shop.log(INGEST, "commit")}


def test_a_backlog_is_taken_in_several_windows_of_one_run(shop: Site, caught_up: dict[str, Any]) -> None:
    assert caught_up["states"] == {"": "success", "plan": "success", "ingest": "success", "commit": "success"}
    assert caught_up["after"]["window"] - caught_up["before"]["window"] >= 3
    assert caught_up["after"]["lag_bytes"] == 0
    assert len(records(shop, "shop.orders")) == 9
    assert len(set(records(shop, "shop.orders"))) == 9
    sealed = [line for line in shop.log(INGEST, "ingest").splitlines() if line.startswith("sealed window")]
    assert len(sealed) >= 3, "one Spark session sealed them all"


@pytest.mark.extended
def test_log_of_a_task_ends_with_its_table(caught_up: dict[str, Any]) -> None:
    assert "shop.orders     9     9" in caught_up["log"]
    assert "committed window" in caught_up["log"]


@pytest.mark.extended
def test_asset_events_of_changed_tables_start_the_downstream_dag(shop: Site, caught_up: dict[str, Any]) -> None:
    assert caught_up["states"][""] == "success"
    with shop.client() as client:

        def read_events() -> list[dict[str, Any]] | None:
            # Airflow 3.3.2 answers 500 while a run of an event is queued, because the run has no start date yet.
            answer = client.get("/api/v2/assets/events")
            return list(answer.json()["asset_events"]) if answer.status_code == 200 else None

        events = wait_until(read_events, "Airflow returns the asset events", 300)
        (orders,) = [event for event in events if event["extra"].get("table") == "shop.orders"]
        assert orders["uri"] == "kafka://kafka_shop/shop.orders"
        assert orders["extra"]["rows"] == 9
        assert sum(one["last"] - one["first"] + 1 for one in orders["extra"]["offsets"].values()) >= 9
        assert orders["extra"]["start"] == caught_up["before"]["checkpoint"]
        assert len(orders["extra"]["windows"]) == 3, "one event for each run, with all windows that have rows"

        def downstream() -> str | None:
            runs = client.get("/api/v2/dags/example_downstream/dagRuns").json()["dag_runs"]
            return str(runs[0]["dag_run_id"]) if runs else None

        run_id = wait_until(downstream, "the downstream DAG runs", 300)
    assert shop.wait_for_run("example_downstream", run_id)[""] == "success"
    assert "9 rows of shop.orders" in shop.log("example_downstream", "show", run_id)


@pytest.mark.extended
def test_a_run_stops_at_its_bounds_and_refuses_unknown_ones(shop: Site, caught_up: dict[str, Any]) -> None:
    assert caught_up["states"][""] == "success"
    refused = shop.run(INGEST, {"max_byte": 1})
    assert (refused["plan"], refused["ingest"]) == ("failed", "upstream_failed")
    with shop.client() as client:
        error = client.get("/changefeed/api/pipelines/shop").json()["last_error"]
        assert "did you mean 'max_bytes'" in error["text"]
        wrong = client.post(f"/api/v2/dags/{INGEST}/dagRuns", json={"logical_date": None, "conf": {"max_bytes": 0}})
        assert wrong.status_code == 400
    until_there = status(shop)["head"]
    shop.mysql.execute("INSERT INTO shop.orders (n) VALUES (77)")
    assert shop.run(INGEST, {"until": until_there})["plan"] == "failed", "before the checkpoint"
    assert shop.run(INGEST, {"max_bytes": 1})[""] == "success"
    assert status(shop)["lag_bytes"] == 0, "a window has at least one transaction"


@pytest.mark.extended
@pytest.mark.usefixtures("caught_up")
def test_verify_run_compares_with_the_source_and_stores_its_report(shop: Site) -> None:
    with shop.client() as client:
        started = client.post("/changefeed/api/pipelines/shop/verify", json={"wait_seconds": 300})
        assert started.status_code == 202, started.text
        shop.run(INGEST)  # publishes what the source has written meanwhile
        run_id = started.json()["run_id"]
        assert shop.wait_for_run(VERIFY, run_id)[""] == "success", shop.log(VERIFY, "compare", run_id)
        content = client.get("/changefeed/api/pipelines/shop/verifications").json()
    (report,) = content["reports"]
    assert (report["outcome"], report["run"]) == ("equal", run_id)
    (rows,) = shop.mysql.execute("SELECT COUNT(*) FROM shop.orders")[0]
    compared = {table["table"]: table["compared"] for table in report["tables"]}
    assert compared == {"shop.customers": 1, "shop.orders": rows}
    assert [run["run_id"] for run in content["runs"]] == [run_id]
    assert "shop: equal: the topics have what the source has" in shop.log(VERIFY, "result", run_id)


@pytest.mark.long
@pytest.mark.extended
def test_verify_run_compares_a_follower_of_the_replicate_dag(shop: Site, mysql_follower: MysqlServer) -> None:
    file, position, *_ = shop.mysql.execute("SHOW BINARY LOG STATUS")[0]
    shop.mysql.execute(
        "CREATE DATABASE twin",
        "CREATE TABLE twin.pets (id INT PRIMARY KEY, name VARCHAR(20))",
        "INSERT INTO twin.pets VALUES (1, 'Ada'), (2, 'Bo'), (3, NULL)",
    )
    path = shop.pipelines / "twin.yaml"
    shop.write_pipeline("twin", "twin", "followers: [{connection: copy}]\nvalues: {temporal: iso}\n", "65064-65095")
    path.write_text(path.read_text().replace("start: latest", f"start: {file}:{position}"))
    shop.wait_for_dag(*(f"changefeed_{kind}__twin" for kind in ("ingest", "replicate", "verify")))
    address = mysql_follower.root_url.removeprefix("mysql://").partition("/")[0]
    login, _, server = address.rpartition("@")
    with shop.client() as client:
        connection = {
            "connection_id": "copy",
            "conn_type": "mysql",
            "host": server.partition(":")[0],
            "port": int(server.partition(":")[2]),
            "login": login.partition(":")[0],
            "password": login.partition(":")[2],
        }
        added = client.post("/api/v2/connections", json=connection)
        assert added.status_code == 201, added.text
        wrong = client.post("/changefeed/api/pipelines/twin/verify", json={"follower": "cpy"})
        assert "no follower 'cpy' (did you mean 'copy'?)" in wrong.text
        assert shop.run("changefeed_ingest__twin")[""] == "success"
        assert shop.run("changefeed_replicate__twin")[""] == "success"
        mysql_follower.execute("UPDATE twin.pets SET name = 'forged' WHERE id = 2")
        started = client.post("/changefeed/api/pipelines/twin/verify", json={"follower": "copy"})
        assert started.status_code == 202, started.text
        states = shop.wait_for_run("changefeed_verify__twin", started.json()["run_id"])
        assert states == {"": "failed", "plan": "success", "compare": "success", "result": "failed"}
        (report,) = client.get("/changefeed/api/pipelines/twin/verifications").json()["reports"]
        measured = client.get("/changefeed/metrics").text
    assert (report["follower"], report["outcome"], report["compared"], report["differing"]) == ("copy", "differs", 2, 1)
    assert 'changefeed_differing_rows{pipeline="twin",server="copy"} 1' in measured
    log = shop.log("changefeed_verify__twin", "compare")
    assert 'server: {"id":2,"name":"forged"}' in log
    assert '"name":"Bo"' in log
    assert "the topics differ from the follower copy" in shop.log("changefeed_verify__twin", "result")
    mysql_follower.execute("DROP DATABASE twin", "DROP DATABASE changefeed")
    shop.mysql.execute("DROP DATABASE twin")
    path.unlink()


@pytest.mark.extended
def test_backfill_publishes_to_suffixed_topics_and_its_retry_repeats_nothing(
    shop: Site, caught_up: dict[str, Any]
) -> None:
    live, checkpoint = records(shop, "shop.orders"), status(shop)["checkpoint"]
    start = caught_up["before"]["checkpoint"].partition(":")[0]
    run_id = shop.trigger(BACKFILL, {"from_file": start, "tables": ["shop.orders"]})
    assert shop.wait_for_run(BACKFILL, run_id)[""] == "success"
    plan = shop.log(BACKFILL, "plan", run_id)
    assert f"{start} " in plan
    assert "shop.orders.replay" in plan
    replayed = records(shop, "shop.orders.replay")
    assert len(replayed) == 3
    assert set(replayed) <= set(live), "the event ids are the same, so consumers can recognize repeated events"
    with shop.client() as client:
        cleared = client.post(
            f"/api/v2/dags/{BACKFILL}/clearTaskInstances",
            json={"dry_run": False, "dag_run_id": run_id, "task_ids": ["ingest", "finish"], "only_failed": False},
        )
        assert cleared.status_code == 200, cleared.text
    assert shop.wait_for_run(BACKFILL, run_id)[""] == "success"
    assert records(shop, "shop.orders.replay") == replayed
    assert (records(shop, "shop.orders"), status(shop)["checkpoint"]) == (live, checkpoint)


@pytest.mark.extended
@pytest.mark.usefixtures("caught_up")
def test_snapshot_publishes_existing_rows_and_its_retry_repeats_nothing(shop: Site) -> None:
    (rows,) = shop.mysql.execute("SELECT COUNT(*) FROM shop.orders")[0]
    live = records(shop, "shop.orders")
    with shop.client() as client:
        began = client.post("/changefeed/api/pipelines/shop/snapshot", json={"tables": ["shop.orders"]})
        assert began.status_code == 202, began.text
    run_id = began.json()["run_id"]
    assert shop.wait_for_run(SNAPSHOT, run_id)[""] == "success"
    assert "shop.orders" in shop.log(SNAPSHOT, "plan", run_id)
    published = records(shop, "shop.orders")
    assert len(published) == len(set(published)) == len(live) + rows
    with shop.client() as client:
        content = client.get("/changefeed/api/pipelines/shop/snapshots").json()
        assert content["runs"][0]["run_id"] == run_id
        (status,) = content["snapshots"]
        assert (status["finished"], status["rows"], status["left_out"], status["seconds_left"]) == (True, rows, 0, 0)
        assert f'changefeed_snapshot_rows{{pipeline="shop"}} {rows}' in client.get("/changefeed/metrics").text
        cleared = client.post(
            f"/api/v2/dags/{SNAPSHOT}/clearTaskInstances",
            json={"dry_run": False, "dag_run_id": run_id, "task_ids": ["snapshot", "finish"], "only_failed": False},
        )
        assert cleared.status_code == 200, cleared.text
    assert shop.wait_for_run(SNAPSHOT, run_id)[""] == "success"
    assert records(shop, "shop.orders") == published


@pytest.mark.extended
def test_first_snapshot_of_a_new_pipeline_is_started_by_airflow_once(airflow_site: Site) -> None:
    site, dag = airflow_site, "changefeed_snapshot__firsts"
    site.mysql.execute(
        "CREATE DATABASE firsts", "CREATE TABLE firsts.t (id INT PRIMARY KEY)", "INSERT INTO firsts.t VALUES (1), (2)"
    )
    site.write_pipeline("firsts", "firsts")
    file = site.pipelines / "firsts.yaml"
    file.write_text(file.read_text().replace("start: latest", "start: snapshot"))
    site.wait_for_dag("changefeed_ingest__firsts", dag)
    with site.client() as client:
        (run,) = wait_until(
            lambda: client.get(f"/api/v2/dags/{dag}/dagRuns").json().get("dag_runs"), "Airflow starts the snapshot", 300
        )
        assert site.wait_for_run(dag, run["dag_run_id"])[""] == "success", site.log(dag, "plan", run["dag_run_id"])
        site.mysql.execute("INSERT INTO firsts.t VALUES (3)")
        assert site.run("changefeed_ingest__firsts")[""] == "success"
        assert len(records(site, "firsts.t")) == 3
        cleared = client.post(
            f"/api/v2/dags/{dag}/clearTaskInstances",
            json={"dry_run": False, "dag_run_id": run["dag_run_id"], "only_failed": False},
        )
        assert cleared.status_code == 200, cleared.text
        assert site.wait_for_run(dag, run["dag_run_id"])["plan"] == "skipped", "it has had its snapshot"
        assert client.get(f"/api/v2/dags/{dag}/dagRuns").json()["total_entries"] == 1
    assert len(records(site, "firsts.t")) == 3
    file.unlink()
    site.mysql.execute("DROP DATABASE firsts")


@pytest.mark.extended
@pytest.mark.usefixtures("caught_up")
def test_endpoint_has_the_metrics_and_labels_of_rules_and_dashboard(shop: Site) -> None:
    """Each expression of examples/monitoring, compared with an answer to the scrape token."""
    pipeline = "/changefeed/api/pipelines/shop"
    with shop.client() as client:
        if not client.get(f"{pipeline}/snapshots").json()["snapshots"]:  # if this test runs alone
            shop.run(SNAPSHOT, {"tables": ["shop.orders"]})
        if not client.get(f"{pipeline}/verifications").json()["reports"]:
            started = client.post(f"{pipeline}/verify", json={"wait_seconds": 300}).json()
            shop.run(INGEST)
            shop.wait_for_run(VERIFY, started["run_id"])
        shop.run(FRESHNESS_DAG_ID)
        answer = httpx.get(
            f"{shop.airflow.url}/changefeed/metrics", headers={"Authorization": f"Bearer {SCRAPE_TOKEN}"}, timeout=60
        )
        checkpoint = client.get(pipeline).json()["position"]
    found = labels_by_metric(answer.text)
    assert found.keys() == METRICS.keys() - {"changefeed_retention_headroom_seconds"} | (
        found.keys() & {"changefeed_retention_headroom_seconds"}  # only if the server purges its binlog
    )
    for expression in (*rules(), *panels()):
        for name in expression.metrics & found.keys():
            assert expression.labels - {"value"} <= found[name], expression
    committed_at = checkpoint["committed_at_ms"] / 1000
    assert f'changefeed_committed_at_seconds{{pipeline="shop"}} {committed_at!r}' in answer.text.splitlines()


@pytest.mark.long
@pytest.mark.extended
def test_a_backfill_reads_archived_files(shop: Site, caught_up: dict[str, Any]) -> None:
    name = caught_up["before"]["checkpoint"].partition(":")[0]
    archive = shop.archives / PIPELINE
    archive.mkdir()
    shutil.copy(shop.mysql.data / name, archive)
    conf = {"from_file": name, "tables": ["shop.*"], "suffix": ".old", "archive": str(archive)}
    assert shop.run(BACKFILL, conf)[""] == "success"
    assert len(records(shop, "shop.orders.old")) == 3


@pytest.mark.long
@pytest.mark.extended
def test_backfill_of_a_purged_file_names_the_existing_files(shop: Site) -> None:
    states = shop.run(BACKFILL, {"from_file": "binlog.000999"})
    assert (states["plan"], states["ingest"]) == ("failed", "upstream_failed")
    with shop.client() as client:
        files = shop.mysql.execute("SHOW BINARY LOGS")
        answer = client.post("/changefeed/api/pipelines/shop/backfill/plan", json={"from_file": "binlog.000999"})
    assert answer.status_code == 410
    assert f"{files[0][0]} to {files[-1][0]}" in answer.json()["detail"]


@pytest.mark.extended
def test_seek_repeats_its_range_is_recorded_and_can_be_undone(shop: Site, caught_up: dict[str, Any]) -> None:
    there, live = status(shop)["checkpoint"], records(shop, "shop.customers")
    target = caught_up["before"]["checkpoint"]
    shown = shop.run(SEEK, {"to": target, "why": "to see"})
    assert shown["apply_seek"] == "skipped"
    assert "will be published again" in shop.log(SEEK, "plan_seek")
    assert status(shop)["checkpoint"] == there
    assert shop.run(SEEK, {"to": target, "why": "a test", "apply": True})[""] == "success"
    assert status(shop)["checkpoint"] == target
    assert shop.run(INGEST)[""] == "success"
    again = records(shop, "shop.customers")
    assert (len(again), set(again)) == (2 * len(live), set(live)), "the same events are repeated, and no others"
    assert shop.run(SEEK, {"to": there, "why": "undo", "apply": True})[""] == "success"
    with shop.client() as client:
        seeks = client.get("/changefeed/api/pipelines/shop/seeks").json()["seeks"]
    assert [(one["who"], one["why"], one["to"]) for one in seeks[:2]] == [
        ("ada", "undo", there),
        ("ada", "a test", target),
    ]
    _check_command_writes_the_same_record(shop, target, seeks[1])


def _check_command_writes_the_same_record(shop: Site, target: str, by_dag: dict[str, Any]) -> None:
    """Seek from the same checkpoint to the same target with `changefeed seek` instead of the DAG."""
    command = [str(PROGRAMS / "changefeed"), "seek", PIPELINE, target, "--why", "a test", "--yes", "--json"]
    done = subprocess.run(command, env=shop.airflow.env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    by_command = json.loads(done.stdout)
    assert by_command["who"] == getpass.getuser()
    own = dict.fromkeys(("number", "at_ms", "who"))
    assert {**by_command, **own} == {**by_dag, **own}


def test_no_secret_is_in_a_log_or_a_rendered_field(shop: Site, caught_up: dict[str, Any]) -> None:
    assert caught_up["states"][""] == "success"
    password = shop.mysql.url.partition("://")[2].partition("@")[0].partition(":")[2]
    with shop.client() as client:
        runs = client.get(f"/api/v2/dags/{INGEST}/dagRuns").json()["dag_runs"]
        fields = [client.get(f"/api/v2/dags/{INGEST}/dagRuns/{run['dag_run_id']}/taskInstances").text for run in runs]
    assert password not in json.dumps(fields)
    for path in (shop.airflow.directory / "logs").rglob("*.log"):
        assert password not in path.read_text(), path
