"""The lineage of a task that published rows: names, row counts and columns."""

from __future__ import annotations

from typing import Any

import pytest

from changefeed.airflow import lineage
from changefeed.ddl.names import TableName
from changefeed.ddl.schemas import Schemas
from changefeed.ddl.table import Table, UnknownTable
from changefeed.model.table_schema import Column, TableSchema
from changefeed.settings.file import parse_pipeline

YAML = "name: shop\nsource: {connection: mysql_shop}\nkafka: {connection: kafka_shop}\ntables: {include: [shop.*]}\n"
ORDERS = TableSchema("shop", "orders", (Column("id", "int"), Column("email", "varchar"), Column("note", "text")), (0,))
ROWS = {"shop.orders": {"c": 3, "u": 1}, "shop.items": {"c": 2}, "shop.empty": {"c": 0}}


@pytest.fixture
def schemas(monkeypatch: pytest.MonkeyPatch) -> Schemas:
    unknown = UnknownTable(TableName("shop", "items"), "not learned")
    known = Schemas(tables={TableName("shop", "orders"): Table(ORDERS, "utf8mb4_bin"), unknown.name: unknown})
    monkeypatch.setenv("AIRFLOW_CONN_MYSQL_SHOP", "mysql://reader:hush-hush@db1:3307")
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_SHOP", "kafka://b1:9092,b2:9092/?sasl.password=hush-hush")
    monkeypatch.setattr(lineage, "_read_schemas", lambda _: known)
    return known


def lineage_of(more: str = "", **published: Any) -> Any:
    return lineage.published_lineage(parse_pipeline(YAML + more, "shop.yaml"), published)


@pytest.mark.usefixtures("schemas")
def test_datasets_have_names_of_the_specification_and_row_counts() -> None:
    found = lineage_of(rows=ROWS, records={"shop.orders": 5, "shop.items": 2, "shop.none": 0})
    inputs = {(each.namespace, each.name): each.inputFacets["inputStatistics"].rowCount for each in found.inputs}
    outputs = {(each.namespace, each.name): each.outputFacets["outputStatistics"].rowCount for each in found.outputs}
    assert inputs == {("mysql://db1:3307", "shop.orders"): 4, ("mysql://db1:3307", "shop.items"): 2}
    assert outputs == {("kafka://b1:9092", "shop.orders"): 5, ("kafka://b1:9092", "shop.items"): 2}
    assert "hush-hush" not in repr(found)


@pytest.mark.usefixtures("schemas")
def test_known_columns_are_shown_and_unknown_tables_have_none() -> None:
    hiding = "columns: {exclude: [shop.orders.note], mask: {shop.orders.email: {sha256: {environment: NOT_SET}}}}\n"
    found = lineage_of(hiding, rows=ROWS, records={"shop.orders": 5, "shop.items": 2})
    orders, items = found.inputs
    assert [(each.name, each.type) for each in orders.facets["schema"].fields] == [
        ("id", "int"), ("email", "varchar"), ("note", "text")
    ]  # fmt: skip
    assert items.facets == {}
    orders, items = found.outputs
    assert [(each.name, each.type) for each in orders.facets["schema"].fields] == [("id", "int"), ("email", None)]
    origins = {
        name: [(each.namespace, each.name, each.field, each.transformations[0].masking) for each in fields.inputFields]
        for name, fields in orders.facets["columnLineage"].fields.items()
    }
    assert origins == {
        "id": [("mysql://db1:3307", "shop.orders", "id", False)],
        "email": [("mysql://db1:3307", "shop.orders", "email", True)],
    }
    assert items.facets == {}


@pytest.mark.usefixtures("schemas")
def test_topic_with_an_unknown_table_or_a_function_has_no_columns() -> None:
    for more in (
        "topics: {template: everything, shared: true}\n",
        "transforms: [{tables: shop.orders, function: drop_fields, arguments: {columns: [note]}}]\n",
    ):
        found = lineage_of(more, rows=ROWS)
        assert [each.facets for each in found.outputs] == [{} for _ in found.outputs]
    assert {each.name: each.outputFacets["outputStatistics"].rowCount for each in found.outputs} == {
        "shop.orders": 4, "shop.items": 2
    }  # fmt: skip


@pytest.mark.usefixtures("schemas")
def test_task_that_published_nothing_has_no_datasets() -> None:
    for published in ({}, {"rows": {}, "records": {}}, {"rows": {"shop.empty": {"c": 0}}}):
        found = lineage_of(**published)
        assert (found.inputs, found.outputs) == ([], [])


def counts(datasets: Any, facets: str, statistics: str) -> dict[tuple[str, str], int]:
    return {(each.namespace, each.name): getattr(each, facets)[statistics].rowCount for each in datasets}


@pytest.mark.usefixtures("schemas")
def test_a_follower_gets_topics_as_inputs_and_its_tables_as_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_COPY", "mysql://writer:hush-hush@db2")
    pipeline = parse_pipeline(YAML, "shop.yaml")
    applied = {"rows": {"shop.orders": 4, "shop.items": 2}, "records": {"shop.schema-changes": 1, "shop.none": 0}}
    found = lineage.applied_lineage(pipeline, applied, "copy")
    assert counts(found.inputs, "inputFacets", "inputStatistics") == {
        ("kafka://b1:9092", "shop.orders"): 4,
        ("kafka://b1:9092", "shop.items"): 2,
        ("kafka://b1:9092", "shop.schema-changes"): 1,
    }
    assert counts(found.outputs, "outputFacets", "outputStatistics") == {
        ("mysql://db2:3306", "shop.orders"): 4,
        ("mysql://db2:3306", "shop.items"): 2,
    }
    origins = found.outputs[0].facets["columnLineage"].fields
    assert [(each.namespace, each.name, each.field) for each in origins["email"].inputFields] == [
        ("kafka://b1:9092", "shop.orders", "email")
    ]
    assert "hush-hush" not in repr(found)
    nothing = lineage.applied_lineage(pipeline, {}, "copy")
    assert (nothing.inputs, nothing.outputs) == ([], [])


@pytest.mark.usefixtures("schemas")
@pytest.mark.parametrize(("follower", "server"), [("", "db1:3307"), ("copy", "db2:3306")])
def test_verification_has_both_sides_as_inputs(monkeypatch: pytest.MonkeyPatch, follower: str, server: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_COPY", "mysql://reader@db2")
    tables = [
        {"table": "shop.orders", "topic": "shop.orders", "rows": 3, "records": 5},
        {"table": "shop.gone", "topic": "", "rows": 0, "records": 0},
    ]
    found = lineage.compared_lineage(parse_pipeline(YAML, "shop.yaml"), {"follower": follower, "tables": tables})
    assert found.outputs == []
    assert counts(found.inputs, "inputFacets", "inputStatistics") == {
        (f"mysql://{server}", "shop.orders"): 3,
        ("kafka://b1:9092", "shop.orders"): 5,
    }


def test_schema_history_that_is_not_read_in_time_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lineage, "_COLUMNS_SECONDS", 0.2)
    monkeypatch.setenv("AIRFLOW_CONN_MYSQL_SHOP", "mysql://reader:p@127.0.0.1:1")
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_SHOP", "kafka://127.0.0.1:1")
    found = lineage_of(rows=ROWS)
    assert [each.name for each in found.inputs] == ["shop.orders", "shop.items"]
    assert "has no columns" in caplog.text
