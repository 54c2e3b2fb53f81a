"""A pipeline's YAML is valid, or the error has file, line, key and the nearest valid key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from changefeed.errors import SettingsError
from changefeed.settings.file import (
    files_by_name,
    find_files,
    load_pipeline,
    load_pipelines,
    parse_without_functions,
    pipelines_folder,
    read_pipeline,
)
from changefeed.settings.routes import compile_routes

GOOD = """\
name: {name}
source:
  connection: mysql_shop
kafka:
  connection: kafka_shop
"""


def write(folder: Path, name: str, text: str = "", **places: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(GOOD.format(name=name) + text.format(**places) if places else GOOD.format(name=name) + text)
    return path


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(SettingsError) as caught:
        read_pipeline(write(folder, "shop", text))
    return str(caught.value)


def test_file_of_five_lines_is_a_pipeline(tmp_path: Path) -> None:
    pipeline = read_pipeline(write(tmp_path, "shop"))
    assert (pipeline.name, pipeline.topics.template, pipeline.topics.partitions) == ("shop", "{database}.{table}", 3)
    assert (pipeline.checkpoint.store, pipeline.start, pipeline.retries) == ("variable", "earliest", 2)


def test_shipped_pipelines_are_valid() -> None:
    pipelines, errors = load_pipelines(Path(__file__).parents[3] / "include" / "pipelines")
    assert not errors
    assert "shop" in pipelines


def test_environment_variable_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHANGEFEED_PIPELINES", str(tmp_path))
    assert pipelines_folder() == tmp_path
    monkeypatch.delenv("CHANGEFEED_PIPELINES")
    assert pipelines_folder() == Path(__file__).parents[3] / "include" / "pipelines"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("topics:\n  partitons: 3\n", ["shop.yaml, line 7", "'topics.partitons'", "did you mean 'partitions'"]),
        ("shedule: '@daily'\n", ["shop.yaml, line 6", "'shedule'", "did you mean 'schedule'"]),
        ("zebra: 1\n", ["shop.yaml, line 6", "'zebra'", "valid keys: name, source, kafka"]),
        ("topics:\n  partitions: '3'\n", ["shop.yaml, line 7", "'topics.partitions' is '3'", "valid integer"]),
        ("topics:\n  partitions: 0\n", ["shop.yaml, line 7", "'topics.partitions' is '0'", "greater than 0"]),
        ("topics:\n\n  configs:\n    retention.ms: 5\n", ["shop.yaml, line 9", "retention.ms", "valid string"]),
        ("topics:\n  template: '{{tabel}}'\n", ["shop.yaml, line 7", "topics.template", "{table}"]),
        (
            "topics:\n  template: '{{table:>600000000}}'\n",
            ["shop.yaml, line 7", "topics.template", "expected a template with no fields besides"],
        ),
        (
            "topics:\n  template: '{{table}}{{{{x}}}}'\n",
            ["shop.yaml, line 7", "topics.template", "expected a template with no fields besides"],
        ),
        ("tombstones: 'yes'\n", ["shop.yaml, line 6", "'tombstones' is 'yes'", "valid boolean"]),
        ("retries: true\n", ["shop.yaml, line 6", "'retries' is 'True'", "valid integer"]),
        ("tables:\n  include: shop.*\n", ["shop.yaml, line 7", "'tables.include'", "valid list"]),
        ("tables:\n  include: ['a.*', orders]\n", ["shop.yaml, line 7", "'orders' names no database"]),
        ("tables:\n  exclude: ['/shop.(/']\n", ["shop.yaml, line 7", "'/shop.(/' is no regular expression"]),
        ("keys:\n  orders: [id]\n", ["shop.yaml, line 7", "'orders' names no database"]),
        ("keys:\n  shop.orders: []\n", ["shop.yaml, line 7", "at least 1 item"]),
        ("keys:\n  shop.orders: [id, ID]\n", ["shop.yaml, line 7", "column 'ID' is repeated"]),
        ("topics: {template: all}\n", ["shop.yaml, line 6", "'topics.template'", "which needs `shared: true`"]),
        ("topics: {template: '{tabel}'}\n", ["shop.yaml", "'{tabel}' has the field {tabel} (did you mean 'table'?)"]),
        ("topics: {partition_by: row}\n", ["shop.yaml", "expected key, table, or a list of columns"]),
        (
            "topics:\n  routes:\n  - {match: '/shop.(.*)/', topic: '{2}'}\n",
            ["shop.yaml, line 8", "has the field {2}", "valid fields: pipeline, database, table, 1"],
        ),
        (
            "topics:\n  routes:\n  - {match: 'shop.a', format: maxwel}\n",
            ["shop.yaml, line 8", "unknown format 'maxwel' (did you mean 'maxwell'?)"],
        ),
        (
            "topics:\n  routes:\n  - match: 'shop.a'\n    format:\n      name: maxwell\n      output_null: true\n",
            ["shop.yaml, line 11", "did you mean 'output_nulls'"],
        ),
        (
            "topics:\n  routes:\n  - match: 'shop.a'\n    format: avro\n",
            ["shop.yaml, line 9", "format 'avro' needs a schema registry"],
        ),
        (
            "publish_ddl: inline\ntopics:\n  routes:\n  - {match: 'shop.a', format: {name: avro, registry: r}}\n",
            ["shop.yaml, line 9", "format 'avro' does not support `publish_ddl: inline`"],
        ),
        (
            "format: {name: avro, registry: one}\n"
            "topics:\n  routes:\n  - {match: 'shop.a', format: {name: avro, registry: other}}\n",
            ["shop.yaml, line 9", "expected one schema registry", "found 'other' here and 'one'"],
        ),
        (
            "values: {decimal: string}\ntopics:\n  routes:\n  - {match: 'shop.a', format: maxwell}\n",
            ["shop.yaml, line 9", "format 'maxwell' writes values by Maxwell's rules"],
        ),
        (
            "topics:\n  routes:\n  - {match: 'shop.a*', topic: all, format: maxwell}\n"
            "  - {match: 'shop.b*', topic: all}\n",
            ["shop.yaml, line 8", "share topic 'all'", "'debezium': expected one format in a topic"],
        ),
        (
            "topics:\n  routes:\n  - {match: 'shop.a*', topic: '{database}.x'}\n"
            "  - {match: '*.b*', topic: '{database}.x', format: flat}\n",
            ["shop.yaml, line 8", "share topic '{database}.x'", "written as 'flat'"],
        ),
        (
            "topics:\n  shared: true\n  template: '{pipeline}'\n  routes:\n  - {match: 'shop.a*', format: flat}\n",
            ["shop.yaml, line 10", "share topic 'shop'"],
        ),
        ("topics:\n  routes:\n  - {match: 'shop.a', topc: x}\n", ["shop.yaml, line 8", "did you mean 'topic'"]),
        (
            "reader: reference\ntopics: {partition_by: table}\n",
            ["shop.yaml", "does not support `topics.partition_by`"],
        ),
        ("rows: {shop.orders: 'status ='}\n", ["shop.yaml, line 6", "'status =' is no condition"]),
        ("rows: {shop.orders: 'a = b'}\n", ["shop.yaml, line 6", "'b' is no constant"]),
        ("rows: {orders: 'a = 1'}\n", ["shop.yaml, line 6", "'orders' names no database"]),
        ("skip: [x]\n", ["shop.yaml, line 6", "'c', 'u', 'd', 'r' or 't'"]),
        ("outbox: {tables: [shop.outbox], route.by.feld: x}\n", ["line 6", "mean 'route.by.field'"]),
        (
            "outbox: {tables: [shop.outbox], table.op.invalid.behavior: skip}\n",
            ["line 6", "expected warn, error or fatal, found 'skip'"],
        ),
        (
            "outbox: {tables: [shop.outbox], route.topic.replacement: '$2'}\n",
            ["line 6", "refers to $2, and route.topic.regex has 1 groups"],
        ),
        ("outbox: {tables: [shop.outbox], route.topic.replacement: '${by}'}\n", ["line 6", "are: routedByValue"]),
        ("outbox: {tables: [shop.outbox], route.topic.replacement: '$x'}\n", ["line 6", "${routedByValue}"]),
        ("outbox: {tables: [shop.outbox], route.topic.regex: '('}\n", ["line 6", "no regular expression"]),
        (
            "outbox: {tables: [shop.outbox], table.fields.additional.placement: 'a:enveloppe'}\n",
            ["line 6", "expected column:header", "'enveloppe' (did you mean 'envelope'?)"],
        ),
        (
            "outbox: {tables: [shop.outbox], table.fields.additional.placement: 'a:envelope:payload'}\n",
            ["line 6", "is already in use"],
        ),
        (
            "outbox: {tables: [shop.outbox], table.field.event.timestamp: at}\n",
            ["line 6", "is not supported", "place the column in a header"],
        ),
        (
            "unknown_definition: begin\n",
            ["shop.yaml, line 6", "'unknown_definition' is now named 'unknown_schema': rename it in this file"],
        ),
        ("keyless: uniqe\n", ["shop.yaml, line 6", "'keyless' is 'uniqe'", "'unique'"]),
        (
            "reader: reference\nkeyless: all\n",
            ["shop.yaml", "does not support `keys` and `keyless`"],
        ),
        ("tables: {include: []}\n", ["shop.yaml, line 6", "'tables.include'", "at least 1"]),
        ("start: 12\n", ["shop.yaml, line 6", "'start' is '12'"]),
        ("start: first\n", ["shop.yaml, line 6", "'start' is 'first'", "earliest, latest, snapshot, or FILE:POSITION"]),
        (
            "checkpoint:\n  store: tabel\n",
            ["shop.yaml, line 7", "'checkpoint.store'", "'variable', 'table' or 'kafka'"],
        ),
        ("checkpoint: {store: table}\n", ["shop.yaml, line 6", "'checkpoint'", "is the database of the state table"]),
        ("reader: [kernel]\n", ["shop.yaml, line 6", "'reader'"]),
        ("columns:\n  exclude: [shop.email]\n", ["shop.yaml, line 7", "'shop.email' names no column"]),
        ("columns:\n  mask: {a.b: {text: x}}\n", ["shop.yaml, line 7", "'a.b' names no column"]),
        ("columns:\n  mask:\n    a.b.c: {}\n", ["shop.yaml, line 8", "expected exactly one of text"]),
        (
            "columns:\n  mask:\n    a.b.c: {text: x, sha256: {connection: y}}\n",
            ["shop.yaml, line 8", "expected exactly one of text"],
        ),
        ("columns:\n  mask:\n    a.b.c: {sha256: y}\n", ["shop.yaml, line 8", "{connection: ITS_ID}"]),
        ("columns:\n  mask:\n    a.b.c: {sha256: {}}\n", ["shop.yaml, line 8", "expected exactly one of connection"]),
        (
            "columns:\n  exclude: ['/a.b(.c/']\n",
            ["shop.yaml, line 7", "'/a.b(.c/' is no regular expression: missing )"],
        ),
        ("columns:\n  mask:\n    a.b.c: {sha256: null}\n", ["shop.yaml, line 8", "expected exactly one of text"]),
        ("columns:\n  mask:\n    a.b.c: {characters: -1}\n", ["shop.yaml, line 8", "greater than or equal to 0"]),
        ("columns:\n  mask:\n    a.b.c:\n      tekst: x\n", ["shop.yaml, line 9", "did you mean 'text'"]),
        (
            "\nformat: debezum\n",
            ["shop.yaml, line 7", "'format' is 'debezum'", "did you mean 'debezium'"],
        ),
        ("format: zebra\n", ["shop.yaml, line 6", "unknown format 'zebra'; valid formats: avro, cloudevents"]),
        ("format: avro\n", ["shop.yaml", "needs a schema registry", "format: {name: avro, registry: schema_registry}"]),
        ("format: {name: avro, registry: 'http://u:hush@h'}\n", ["shop.yaml", "expected the id of a connection"]),
        ("format: {name: avro, registri: r}\n", ["shop.yaml, line 6", "did you mean 'registry'"]),
        (
            "format: {name: avro, registry: r}\npublish_ddl: inline\n",
            ["shop.yaml", "does not support `publish_ddl: inline`"],
        ),
        ("format: 3\n", ["shop.yaml, line 6", "'format' is '3'", "expected the name of a format, or a mapping"]),
        ("format:\n  name: debezium\n  skipped.operations: c,x\n", ["shop.yaml, line 8", "some of c, u, d, t, r"]),
        (
            "skip: [d]\nformat: {name: debezium, skipped.operations: none}\n",
            [
                "shop.yaml, line 7",
                "`skip` of the pipeline has the same meaning as 'skipped.operations': set one of them",
            ],
        ),
        (
            "keys: {a.b: [c]}\nformat: {name: flat, message.key.columns: 'a.b:c'}\n",
            ["shop.yaml, line 7", "`keys` of the pipeline has the same meaning as 'message.key.columns'"],
        ),
        (
            "format:\n  name: debezium\n  message.key.columns: a.b\n",
            ["shop.yaml, line 8", "expected TABLES:COLUMN,COLUMN instead of 'a.b'"],
        ),
        ("format:\n  name: debezium\n  message.key.columns: a.b:c;(x:y\n", ["line 8", "'(x' is none: missing )"]),
        ("format:\n  name: debezium\n  message.key.columns: a.b:c.*\n", ["line 8", "'c.*' is none: patterns are"]),
        ("format:\n  name: debezium\n  message.key.columns: a.b:c,C\n", ["line 8", "'C' is in 'a.b:c,C' twice"]),
        (
            "tombstones: false\nformat: {name: debezium, tombstones.on.delete: true}\n",
            ["shop.yaml", "'tombstones.on.delete' is true, and the pipeline's `tombstones` false"],
        ),
        (
            "transforms: [{tables: '*.*', function: rename, arguments: {columns: {a: b}}}]\n"
            "format: {name: debezium, skip.messages.without.change: true}\n",
            ["shop.yaml", "skips updates before `transforms` see them"],
        ),
        (
            "format:\n  name: debezium\n  time.precision.mode: adaptive\n",
            ["shop.yaml, line 8", "expected one of adaptive_time_microseconds, connect, isostring", "found 'adaptive'"],
        ),
        (
            "freeze_schema: true\n",
            ["shop.yaml", "`freeze_schema` does not work with `publish_ddl: topic`", "Set `publish_ddl: off`"],
        ),
        ('freeze_schema: true\npublish_ddl: "off"\nreader: reference\n', ["shop.yaml", "Remove one of them"]),
        ('freeze_schema: true\npublish_ddl: "off"\nfollowers: [{connection: f}]\n', ["`publish_ddl: off` leaves out"]),
        ("reader: reference\nformat: flat\n", ["shop.yaml", "cannot write values as `format: flat` does"]),
        ("format: {prefix: x}\n", ["shop.yaml, line 6", "key 'format.name' is missing"]),
        ("format:\n  name: falt\n", ["shop.yaml, line 7", "'format.name' is 'falt'", "did you mean 'flat'"]),
        (
            "format:\n  name: flat\n  add.feilds: op\n",
            ["shop.yaml, line 8", "'format.add.feilds'", "no option 'add.feilds'", "did you mean 'add.fields'"],
        ),
        (
            "format:\n  name: flat\n  delete.tombstone.handling.mode: rewrit\n",
            ["shop.yaml, line 8", "'rewrit'", "did you mean 'rewrite'"],
        ),
        ("format: maxwell\nvalues: {temporal: epoch}\n", ["shop.yaml", "'maxwell' writes values by Maxwell's rules"]),
        ("format: fluvio\nvalues: {binary: hex}\n", ["shop.yaml", "typed cells: leave `values` out"]),
        (
            "format:\n  name: cloudevents\n  data: {name: maxwell, kafka_key_format: hsh}\n",
            ["shop.yaml, line 8", "'hsh'", "did you mean 'hash'"],
        ),
        ("format:\n  name: cloudevents\n  data: maxwel\n", ["shop.yaml, line 8", "did you mean 'maxwell'"]),
        (
            "format:\n  name: flat\n  add.fields: [op, source.tsms]\n",
            ["shop.yaml, line 8", "fields of Debezium's envelope", "did you mean 'source.ts_ms'"],
        ),
        ("values:\n  decimal: float\n", ["shop.yaml, line 7", "'string', 'double' or 'precise'"]),
        ("reader: reference\nvalues: {binary: hex}\n", ["shop.yaml", "Use `debezium` with plain values, `values: {"]),
        ("retry_delay_seconds: 100000000000000\n", ["shop.yaml, line 6", "less than or equal to 2592000"]),
        ("deadline_minutes: 10000000000000\n", ["shop.yaml, line 6", "less than or equal to 525600"]),
        ("retries: 99999999999\n", ["shop.yaml, line 6", "less than or equal to 10000"]),
        ("window_bytes: 9223372036854775808\n", ["shop.yaml, line 6", "less than 9223372036854775808"]),
        ("topics: {partitions: 100000}\n", ["shop.yaml, line 6", "less than or equal to 10000"]),
        ("alerts: {headroom_hours: .inf}\n", ["shop.yaml, line 6", "finite number"]),
        ("tags: [" + "x" * 101 + "]\n", ["shop.yaml, line 6", "at most 100 characters"]),
        ("pool: " + "x" * 257 + "\n", ["shop.yaml, line 6", "at most 256 characters"]),
        ('owner: "a\\0b"\n', ["shop.yaml", "line 6", "found a NUL character"]),
        ("alerts:\n  notify:\n    - notifer: a.b\n", ["shop.yaml, line 8", "did you mean 'notifier'"]),
    ],
)
def test_mistake_is_reported_with_file_line_key_and_expected_value(tmp_path: Path, text: str, words: list[str]) -> None:
    message = refusal(tmp_path, text)
    assert [word for word in words if word not in message] == [], message


def test_all_mistakes_of_a_file_are_reported(tmp_path: Path) -> None:
    message = refusal(tmp_path, "retires: 3\ntopics:\n  partitions: many\n")
    assert len(message.splitlines()) == 2
    assert "did you mean 'retries'" in message
    assert "'topics.partitions' is 'many'" in message


def test_missing_key_is_reported(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text("name: shop\nkafka: {connection: kafka_shop}\n")
    with pytest.raises(SettingsError, match=r"shop\.yaml, line 1: key 'source' is missing"):
        read_pipeline(tmp_path / "shop.yaml")


@pytest.mark.parametrize("text", ["", "- name: shop\n", "shop\n", "name: [\n", "name: \t@\n", "\x00"])
def test_file_without_a_mapping_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "shop.yaml").write_text(text)
    with pytest.raises(SettingsError, match=r"shop\.yaml"):
        read_pipeline(tmp_path / "shop.yaml")


def test_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_bytes(b"name: \xff\xfe")
    with pytest.raises(SettingsError, match=r"shop\.yaml"):
        read_pipeline(tmp_path / "shop.yaml")


def test_repeated_key_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path, "retries: 1\nretries: 5\n")
    assert "shop.yaml" in message
    assert "retries" in message
    assert "line 7" in message


@pytest.mark.parametrize(
    "schedule",
    ["* * * *", "every day", "61 * * * *", "@dayly", "0 0 30 2 *", "0 0 1 1 * 0 2020", "R * * * *", "r(1-5) 1 * * *"],
)
def test_invalid_schedule_is_refused_before_airflow_reads_it(tmp_path: Path, schedule: str) -> None:
    message = refusal(tmp_path, f"schedule: '{schedule}'\n")
    assert "shop.yaml, line 6: 'schedule'" in message


@pytest.mark.parametrize("schedule", ["null", "'@daily'", "'@once'", "'*/5 8-18 * * mon-fri'", "'@continuous'"])
def test_schedule_that_airflow_accepts_is_accepted(tmp_path: Path, schedule: str) -> None:
    assert read_pipeline(write(tmp_path, "shop", f"schedule: {schedule}\n"))


def test_invalid_file_does_not_affect_other_pipelines(tmp_path: Path) -> None:
    write(tmp_path, "one")
    bad = write(tmp_path, "two", "topcs: {}\n")
    (tmp_path / "three.yml").write_text("[")
    write(tmp_path, "four")
    pipelines, errors = load_pipelines(tmp_path)
    assert sorted(pipelines) == ["four", "one"]
    assert set(errors) == {bad, tmp_path / "three.yml"}
    assert load_pipeline("four", tmp_path) == pipelines["four"]
    with pytest.raises(SettingsError, match="did you mean 'topics'"):
        load_pipeline("two", tmp_path)


@pytest.mark.parametrize("live", ["shop", "berlin"])
def test_copy_with_the_same_name_is_refused_and_the_pipeline_continues(tmp_path: Path, live: str) -> None:
    path = tmp_path / f"{live}.yaml"
    path.write_text(GOOD.format(name="shop") + "owner: live\n")
    os.utime(path, (1_000_000_000, 1_000_000_000))
    (tmp_path / "a copy.yaml").write_text(GOOD.format(name="shop") + "owner: copy\n")
    write(tmp_path, "other")
    pipelines, errors = load_pipelines(tmp_path)
    assert sorted(pipelines) == ["other", "shop"]
    assert pipelines["shop"].owner == load_pipeline("shop", tmp_path).owner == "live"
    (message,) = errors.values()
    assert f"a copy.yaml: its pipeline name 'shop' is already that of {live}.yaml" in str(message)
    assert files_by_name(tmp_path) == {name: find_files(name, tmp_path) for name in ("other", "shop")}
    assert find_files("shop", tmp_path) == [path, tmp_path / "a copy.yaml"]


def test_renamed_pipeline_is_found_by_its_new_name(tmp_path: Path) -> None:
    path = write(tmp_path, "shop")
    assert find_files("shop", tmp_path) == [path]
    path.write_text(GOOD.format(name="shot"))  # of the same size, perhaps at the same moment
    assert (find_files("shop", tmp_path), find_files("shot", tmp_path)) == ([], [path])


def test_copy_does_not_replace_a_pipeline_that_was_changed_or_is_invalid(tmp_path: Path) -> None:
    copy = write(tmp_path, "copy")
    copy.write_text(GOOD.format(name="shop") + "owner: copy\n")
    write(tmp_path, "shop", "owner: live\n")
    assert load_pipelines(tmp_path)[0]["shop"].owner == "live"
    write(tmp_path, "shop", "ownr: live\n")
    pipelines, errors = load_pipelines(tmp_path)
    assert pipelines == {}
    assert {path.name for path in errors} == {"copy.yaml", "shop.yaml"}
    with pytest.raises(SettingsError, match="ownr"):
        load_pipeline("shop", tmp_path)


def test_unknown_pipeline_is_reported_with_the_known_ones(tmp_path: Path) -> None:
    write(tmp_path, "shop")
    with pytest.raises(SettingsError, match=r"no pipeline 'shpo'.*which has shop \(did you mean 'shop'\?\)"):
        load_pipeline("shpo", tmp_path)


@pytest.mark.parametrize(
    ("database", "table", "taken"),
    [
        ("shop", "orders", True),
        ("shop", "orders_old", False),
        ("shop", "Orders_old", True),
        ("shopping", "orders", False),
        ("crm", "customers", True),
        ("crm", "customer", False),
        ("a", "b", False),
    ],
)
def test_tables_are_captured_by_pattern_unless_excluded(tmp_path: Path, database: str, table: str, taken: bool) -> None:
    text = "tables:\n  include: ['shop.*', '*.customers']\n  exclude: ['*.orders_*']\n"
    assert read_pipeline(write(tmp_path, "shop", text)).tables.matches(database, table) is taken


def test_history_rows_are_left_out_by_default(tmp_path: Path) -> None:
    for text, with_history in (("", False), ("row_versions: current\n", False), ("row_versions: all\n", True)):
        routed = compile_routes(read_pipeline(write(tmp_path, "shop", text))).of("shop", "orders")
        assert routed is not None
        assert routed.route.with_history is with_history
    assert "row_versions" in refusal(tmp_path, "row_versions: every\n")


def test_options_of_a_format_about_rows_act_as_settings(tmp_path: Path) -> None:
    text = (
        "skip: [r]\nformat:\n  name: debezium\n  skip.messages.without.change: 'true'\n"
        "  message.key.columns: shop.orders:customer,id;(.*).ORDERS:id,day\n"
    )
    pipeline = read_pipeline(write(tmp_path, "shop", text))
    routed = compile_routes(pipeline).of("shop", "orders")
    assert routed is not None
    assert routed.route.key.columns == ("customer", "id", "day")
    assert (routed.route.skipped, routed.route.unchanged_skipped) == (frozenset("rt"), True)
    assert compile_routes(pipeline).key_rule("crm", "orders").columns == ("id", "day")
    assert compile_routes(pipeline).key_rule("crm", "orders_old").columns == ()
    assert compile_routes(pipeline).has_key_rules


@pytest.mark.parametrize(
    "beside",
    [
        "transforms: [{tables: '*.*', function: rename, arguments: {columns: {a: b}}}]\n",
        "topics: {routes: [{match: a.b, format: maxwell}]}\n",
    ],
)
def test_transaction_metadata_needs_one_format_without_functions(tmp_path: Path, beside: str) -> None:
    numbered = "format:\n  name: debezium\n  topic.prefix: eu\n  provide.transaction.metadata: true\n"
    assert compile_routes(read_pipeline(write(tmp_path, "shop", numbered))).transaction_topic == "eu.transaction"
    assert compile_routes(read_pipeline(write(tmp_path, "shop", "format: debezium\n"))).transaction_topic is None
    with pytest.raises(SettingsError, match=r"'format'.*numbers all messages of a transaction, which the kernel"):
        read_pipeline(write(tmp_path, "shop", numbered + beside))
    with pytest.raises(SettingsError, match=r"the topic of transactions: 'e u.transaction' cannot be a topic's name"):
        read_pipeline(write(tmp_path, "shop", numbered.replace("eu", "e u")))


def test_pipeline_is_read_without_functions_that_are_not_installed() -> None:
    text = (
        "name: shop\nsource: {connection: m}\nkafka: {connection: k}\nschedule: '5 * * * *'\n"
        "transforms: [{tables: a.b, function: nowhere}]\n"
    )
    pipeline = parse_without_functions(text, "shop.yaml")
    assert (pipeline.name, pipeline.schedule, pipeline.transforms) == ("shop", "5 * * * *", [])
    with pytest.raises(SettingsError, match="unknown key"):
        parse_without_functions(f"{text}skedule: x\n", "shop.yaml")
