"""Pipelines managed only over REST: connections, a function, a follower, and permissions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from airflow_site import Site, wait_until
from integration.topic_rows import records_of

from devstack.mysql import MysqlServer

API = "/changefeed/api/pipelines"
NAMES = ("lifef", "lifet")
"""Two pipelines: one with a follower, one with a function."""

pytestmark = [pytest.mark.extended, pytest.mark.timeout(1200)]


@pytest.fixture
def life(airflow_site: Site, full_mysql_server: MysqlServer, mysql_follower: MysqlServer) -> Iterator[Site]:
    """The site; connections, pipelines and the database `life` are removed at the end."""
    yield airflow_site
    for name in NAMES:
        (airflow_site.pipelines / f"{name}.yaml").unlink(missing_ok=True)
    with airflow_site.client() as admin:
        for connection in ("life_source", "life_kafka", "life_copy"):
            admin.delete(f"/api/v2/connections/{connection}")
    full_mysql_server.execute("DROP DATABASE IF EXISTS life")
    mysql_follower.execute("DROP DATABASE IF EXISTS life")


def connection(name: str, uri: str) -> dict[str, Any]:
    parts = urlsplit(uri)
    address_fields = {"host": parts.hostname, "port": parts.port, "login": parts.username, "password": parts.password}
    return {"connection_id": name, "conn_type": parts.scheme, **address_fields}


def text(name: str, **settings: Any) -> str:
    values = {
        "name": name,
        "source": {"connection": "life_source"},
        "kafka": {"connection": "life_kafka"},
        "tables": {"include": ["life.*"]},
        "topics": {"partitions": 1, "template": f"{name}.{{table}}"},
        "values": {"temporal": "iso"},
        "start": "latest",
        "schedule": None,
        "retries": 0,
        "spark": {"master": "local[2]"},
        **settings,
    }
    return yaml.safe_dump(values, sort_keys=False)


def put(site: Site, user: str, name: str, new: str) -> tuple[int, str]:
    """Replace the pipeline's YAML as ``user``; returns status and text of the answer."""
    with site.client(user) as client:
        tag = client.get(f"{API}/{name}").headers["ETag"]
        answer = client.put(f"{API}/{name}", json={"yaml": new}, headers={"If-Match": tag})
        return answer.status_code, answer.text


def run(site: Site, user: str, *names: str, action: str = "run", **body: Any) -> None:
    """Start a run of each pipeline as ``user``, and wait for them."""
    with site.client(user) as client:
        began = [client.post(f"{API}/{name}/{action}", json=body) for name in names]
    for answer in began:
        assert answer.status_code == 202, answer.text
        assert site.wait_for_run(answer.json()["dag_id"], answer.json()["run_id"])[""] == "success"


def values(site: Site, topic: str) -> list[Any]:
    records = [json.loads(record.value) for record in records_of(site.kafka.bootstrap, topic) if record.value]
    return [record["payload"]["after"] if "payload" in record else record["after"] for record in records]


def test_pipelines_are_managed_entirely_over_rest(
    life: Site, full_mysql_server: MysqlServer, mysql_follower: MysqlServer
) -> None:
    followed = text("lifef", followers=[{"connection": "life_copy"}])
    function = {"tables": "life.t", "function": "obfuscate", "arguments": {"columns": ["secret"]}}
    changing = text("lifet", transforms=[function])
    connections = [
        connection("life_source", full_mysql_server.url),
        connection("life_kafka", f"kafka://{life.kafka.bootstrap}"),
        connection("life_copy", mysql_follower.root_url),
    ]
    with life.client("vera") as viewer, life.client("ulf") as editor, life.client("olga") as op:
        _check_create_requires_rights_on_connections(viewer, editor, op, connections, followed)
        for new in (followed, changing):
            created = op.post(API, json={"yaml": new})
            assert created.status_code == 201, created.text
    _check_editors_cannot_change_protected_settings(life, followed, changing, function)

    dags = [f"changefeed_{kind}__{name}" for name in NAMES for kind in ("ingest", "seek")]
    life.wait_for_dag(*dags, "changefeed_replicate__lifef")
    run(life, "ulf", *NAMES)
    full_mysql_server.execute("CREATE DATABASE life", "CREATE TABLE life.t (id INT PRIMARY KEY, secret VARCHAR(20))")
    ((before,),) = full_mysql_server.execute("SELECT @@global.gtid_executed")
    full_mysql_server.execute("INSERT INTO life.t VALUES (1, 'Abc1')")
    run(life, "ulf", *NAMES)
    replicate = "changefeed_replicate__lifef"
    assert life.run(replicate)[""] == "success", life.log(replicate, "to_life_copy")
    assert mysql_follower.execute("SELECT * FROM life.t") == [(1, "Abc1")]
    assert values(life, "lifet.t") == [{"id": 1, "secret": "Xxx9"}]

    _check_paused_pipeline_is_moved_by_gtids(life, before.replace("\n", ""))
    assert values(life, "lifet.t") == [{"id": 1, "secret": "Xxx9"}] * 2
    assert put(life, "olga", "lifet", text("lifet"))[0] == 200, "an editor of its connections may remove the function"
    with life.client("vera") as viewer, life.client("ulf") as editor:
        for name in NAMES:
            tag = {"If-Match": editor.get(f"{API}/{name}").headers["ETag"]}
            assert viewer.delete(f"{API}/{name}", headers=tag).status_code == 403
            assert editor.delete(f"{API}/{name}", headers=tag).status_code == 204
            assert editor.get(f"{API}/{name}").status_code == 404


def _check_create_requires_rights_on_connections(
    viewer: Any, editor: Any, op: Any, connections: list[dict[str, Any]], new: str
) -> None:
    early = op.post(API, json={"yaml": new})
    assert (early.status_code, "does not exist yet" in early.text) == (422, True), early.text
    for each in connections:
        assert editor.post("/api/v2/connections", json=each).status_code == 403
        assert op.post("/api/v2/connections", json=each).status_code == 201
    assert viewer.post(API, json={"yaml": new}).status_code == 403
    refused = editor.post(API, json={"yaml": new})
    assert refused.status_code == 422
    words = "user who may edit all connections of the pipeline in Airflow"
    assert words in refused.json()["detail"]
    assert "you may not edit 'life_source', 'life_kafka', 'life_copy'" in refused.json()["detail"]


def _check_editors_cannot_change_protected_settings(
    life: Site, followed: str, changing: str, function: dict[str, Any]
) -> None:
    dropped = {"tables": "life.t", "function": "drop_fields", "arguments": {"columns": ["more"]}}
    cases = {
        "no follower": ("lifef", text("lifef"), "follower 'life_copy' of source 'life_source' may not be"),
        "no function": ("lifet", text("lifet"), "functions of `transforms` may not be changed, moved or"),
        "one more": ("lifet", text("lifet", transforms=[function, dropped]), "hides columns, so `transforms`"),
        "first another": ("lifet", text("lifet", transforms=[dropped, function]), "moved or removed"),
        "another source": ("lifet", text("lifet", source={"connection": "mysql_shop"}), "used together"),
    }
    for name, new, words in cases.values():
        status, answer = put(life, "ulf", name, new)
        assert (status, words in answer, "may edit all connections" in answer) == (422, True, True), answer
    assert put(life, "vera", "lifet", changing)[0] == 403
    assert put(life, "ulf", "lifef", followed + "owner: ulf\n")[0] == 200
    hidden = {"exclude": ["life.*.more"]}
    assert put(life, "ulf", "lifet", text("lifet", transforms=[function], columns=hidden))[0] == 200


def _check_paused_pipeline_is_moved_by_gtids(life: Site, before: str) -> None:
    target = {"to": before, "why": "once more"}
    with life.client("ulf") as editor, life.client("vera") as viewer:
        assert viewer.post(f"{API}/lifet/seek", json=target).status_code == 403
        unknown = editor.post(f"{API}/lifet/seek/plan", json={"to": f"{before},3e11fa47-71ca-11e1-9e33-c80aa9429562:1"})
        assert (unknown.status_code, "never executed" in unknown.text) == (422, True), unknown.text
        assert editor.post(f"{API}/lifet/pause").json()["paused"] is True
        wait_until(lambda: not editor.get(f"{API}/lifet").json()["dag"]["running"], "no run is under way", 300)
    run(life, "ulf", "lifet", action="seek", **target)
    with life.client("ulf") as editor:
        latest = editor.get(f"{API}/lifet/seeks").json()["seeks"][0]
        assert (latest["who"], latest["asked"]) == ("ulf", before)
        assert latest["repeated_bytes"] > 0
        assert editor.post(f"{API}/lifet/resume").json()["paused"] is False
    run(life, "ulf", "lifet")
