"""Values of hidden columns in DDL statements: they are hidden like the columns."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from airflow_site import Site
from faults.inline_spark import InlineSpark
from integration.settings.test_routing import pipeline_of
from integration.topic_rows import records_of
from security.test_state_topics import Attacked

from changefeed.errors import SettingsError
from changefeed.model.table_schema import Column, TableSchema
from changefeed.model.topic_name import schema_changes_topic
from changefeed.operations.routed_tables import routed_tables
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.requests.snapshot import SnapshotRequest
from changefeed.snapshot.planning import SnapshotPlan, check_condition_columns, plan_snapshot
from changefeed.snapshot.run import run_snapshot
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer

SECRET = "s3cr3t"
COLUMNS = {"exclude": ["*.*.grade"], "mask": {"*.*.level": {"text": None}, "*.*.salary": {"text": "-"}}}
DEFINITIONS = (
    f"CREATE TABLE staff (id INT PRIMARY KEY, grade ENUM('low', '{SECRET}') DEFAULT '{SECRET}' COMMENT '{SECRET}', "
    f"level SET('a', '{SECRET}') DEFAULT '{SECRET}', salary VARCHAR(20) DEFAULT '{SECRET}' COMMENT '{SECRET}', "
    f"is_rich INT AS (salary = '{SECRET}'), tier VARCHAR(20) DEFAULT (IF(salary = '{SECRET}', 'x', 'y')), "
    f"CHECK (salary <> '{SECRET}{SECRET}'))",
    "INSERT INTO staff (id) VALUES (1)",
    f"ALTER TABLE staff ADD COLUMN later INT DEFAULT 1, ALTER COLUMN salary SET DEFAULT '{SECRET}2'",
    f"TRUNCATE TABLE staff /* {SECRET} */",
    f"CREATE/*{SECRET}*/TABLE other (id INT PRIMARY KEY)",
    f"/* {SECRET} */ DROP TABLE other",
    f"RENAME TABLE staff TO people /* {SECRET} */",
)


@pytest.mark.parametrize("format", ["debezium", "maxwell", "flat", "cloudevents", "fluvio"])
def test_ddl_record_has_no_value_of_a_hidden_column(
    full_mysql_server: MysqlServer, kafka_broker: KafkaBroker, database: str, tmp_path: Path, format: str
) -> None:
    options = {"schemas": True, "skipped.operations": "none"} if format == "debezium" else {}
    settings = {
        "columns": COLUMNS,
        "format": {"name": format, **options},
        "publish_ddl": "inline",
        "topics": {"partitions": 1},
    }
    hiding = Attacked(full_mysql_server, kafka_broker, pipeline_of(database, **settings), tmp_path)
    hiding.run()
    full_mysql_server.execute(*DEFINITIONS, database=database)
    hiding.run()
    topics = {schema_changes_topic(database): 6, f"{database}.staff": 3}
    for topic, least in topics.items():
        records = records_of(kafka_broker.bootstrap, topic)
        assert len(records) >= least, topic
        for record in records:
            text = b" ".join([record.key or b"", record.value or b"", *(value for _, value in record.headers)])
            assert SECRET.encode() not in text, text


@pytest.mark.parametrize("format", ["debezium", "maxwell", "flat", "cloudevents", "fluvio"])
@pytest.mark.parametrize(
    "hiding",
    [
        {
            "transforms": [
                {"tables": "*.staff", "function": "drop_fields", "arguments": {"columns": ["grade", "level"]}}
            ]
        },
        {"columns": {"mask": {"*.*.grade": {"sha256": {"connection": "salt"}}, "*.*.level": {"text": "-"}}}},
    ],
    ids=["function", "mask"],
)
def test_no_sample_of_a_message_has_a_label_of_a_hidden_column(hiding: dict[str, Any], format: str) -> None:
    pipeline = pipeline_of(
        "shop", format={"name": format, **({"schemas": True} if format == "debezium" else {})}, **hiding
    )
    connections = PipelineConnections(pipeline, {"salt": "generic://:pepper@"}.__getitem__)
    columns = (
        Column("id", "int"),
        Column("grade", "enum", labels=(SECRET, "low"), comment=SECRET),
        Column("level", "set", labels=(SECRET, "low")),
    )
    table = TableSchema("shop", "staff", columns, (0,))
    (routed,) = routed_tables(connections, [table], server_names_keys=True)
    assert routed.sample is not None
    assert routed.sample.problem is None
    for hidden in (SECRET, sha256(SECRET.encode()).hexdigest()):
        assert hidden not in str(routed.sample)


def test_snapshot_condition_may_not_use_hidden_columns(
    mysql_server: MysqlServer, kafka_broker: KafkaBroker, database: str, tmp_path: Path
) -> None:
    transforms = [{"tables": "*.staff", "function": "drop_fields", "arguments": {"columns": ["salary"]}}]
    pipeline = pipeline_of(database, columns={"exclude": ["*.*.grade"]}, transforms=transforms)
    hiding = Attacked(mysql_server, kafka_broker, pipeline, tmp_path)
    mysql_server.execute(
        "CREATE TABLE staff (id INT PRIMARY KEY, salary INT, name INT)",
        "CREATE TABLE other (id INT PRIMARY KEY, grade INT, name INT)",
        database=database,
    )
    hiding.run()

    def plan(table: str, where: str) -> None:
        request = SnapshotRequest(pipeline=database, tables=[f"{database}.{table}"], where=where)
        plan_snapshot(hiding.connections, hiding.store, request, f"{database}.snapshot.1", dry_run=True)

    for table, where in (("staff", "salary > 5"), ("staff", "id = 1 OR name = 2"), ("other", "NOT GRADE = 1")):
        with pytest.raises(SettingsError, match="a condition would reveal its values"):
            plan(table, where)
    plan("staff", "id > 5")
    plan("other", "name > 5")


def test_condition_may_not_use_a_key_hidden_by_a_function() -> None:
    call = {"tables": "*.staff", "function": "obfuscate", "arguments": {"columns": ["EMAIL"]}}
    connections = PipelineConnections(pipeline_of("shop", transforms=[call]), {}.__getitem__)
    columns = (Column("email", "varchar"), Column("id", "int"), Column("name", "varchar"))
    staff = TableSchema("shop", "staff", columns, (0, 1))
    check_condition_columns(connections, staff, ["id"])
    for column in ("Email", "name"):
        with pytest.raises(SettingsError, match="a condition would reveal its values"):
            check_condition_columns(connections, staff, [column])


@pytest.mark.parametrize(
    ("edited", "words"),
    [
        ({"request": {"where": "salary > 5"}}, "a condition would reveal its values"),
        ({"tables": "private"}, "does not capture"),
    ],
)
def test_snapshot_with_an_edited_plan_reads_no_hidden_column(
    mysql_server: MysqlServer,
    kafka_broker: KafkaBroker,
    database: str,
    tmp_path: Path,
    edited: dict[str, Any],
    words: str,
) -> None:
    tables = {"include": [f"{database}.staff"]}
    pipeline = pipeline_of(database, tables=tables, columns={"exclude": ["*.*.salary"]})
    hiding = Attacked(mysql_server, kafka_broker, pipeline, tmp_path)
    for table in ("staff", "private"):
        mysql_server.execute(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, salary INT)",
            f"INSERT INTO {table} VALUES (1, 5), (2, 6)",
            database=database,
        )
    hiding.run()
    request = SnapshotRequest(pipeline=database, where="id > 1")
    planned = plan_snapshot(hiding.connections, hiding.store, request, f"{database}.snapshot.1").to_json()
    planned["request"] |= edited.get("request", {})
    for table in planned["tables"]:
        table["table"] = edited.get("tables", table["table"])
    with pytest.raises(SettingsError, match=words):
        list(run_snapshot(InlineSpark(), hiding.connections, SnapshotPlan.from_json(planned)))


@pytest.fixture
def shown(airflow_site: Site, unique_name: str) -> Iterator[Site]:
    """A pipeline that hides columns, with one window of DDL statements."""
    name = unique_name
    airflow_site.mysql.execute(f"CREATE DATABASE {name}")
    columns = "columns: {exclude: ['*.*.grade'], mask: {'*.*.level': {text: null}, '*.*.salary': {text: '-'}}}\n"
    airflow_site.add_pipeline(name, name, columns)
    airflow_site.run(f"changefeed_ingest__{name}")
    airflow_site.mysql.execute(*DEFINITIONS, database=name)
    assert airflow_site.run(f"changefeed_ingest__{name}")[""] == "success"
    yield airflow_site
    (airflow_site.pipelines / f"{name}.yaml").unlink()
    airflow_site.mysql.execute(f"DROP DATABASE {name}")


@pytest.mark.extended
@pytest.mark.timeout(600)
def test_page_shows_ddl_without_values_of_hidden_columns(shown: Site, unique_name: str) -> None:
    with shown.client("ulf") as user:
        for what in ("schema", "tables", "windows", "commit-log"):
            answer = user.get(f"/changefeed/api/pipelines/{unique_name}/{what}")
            assert (answer.status_code, SECRET in answer.text) == (200, False), answer.text
        schema = user.get(f"/changefeed/api/pipelines/{unique_name}/schema").json()
    (table,) = schema["tables"]
    assert [column["name"] for column in table["columns"]][:4] == ["id", "grade", "level", "salary"]
    assert [column["default"] for column in table["columns"] if column["name"] == "later"] == [
        {"text": "1", "is_sql": False}
    ]
    assert {change["sql"] for change in schema["changes"]} == {None}
