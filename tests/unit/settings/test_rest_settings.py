"""What a pipeline may say that comes from somebody who may not run code on the workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from changefeed.errors import SettingsError
from changefeed.settings.file import pipeline_of_text
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.rest_settings import SPARK_SIZES, check_rest_settings
from changefeed.settings.site import ConnectionPair, Site

SMTP = "airflow.providers.smtp.notifications.smtp.SmtpNotifier"
SITE = Site(connections=[ConnectionPair(source="m", kafka="k")], notifiers=[SMTP], spark_conf=["spark.local.dir"])


def pipeline(**settings: Any) -> Pipeline:
    values = {"name": "shop", "source": {"connection": "m"}, "kafka": {"connection": "k"}, **settings}
    return pipeline_of_text(yaml.safe_dump(values), "pipeline.yaml")


def check(
    new: Pipeline,
    old: Pipeline | None = None,
    *others: Pipeline,
    site: Site = SITE,
    mine: Sequence[str] = (),
) -> None:
    check_rest_settings(new, old, {other.name: other for other in others}, site, lambda name: name in mine)


def refused(settings: dict[str, Any], words: str) -> None:
    """Refused in a new pipeline and in a changed one, kept, and not taken away."""
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
        {"conf": {"spark.executor.memory": "1g -agentpath:/tmp/x.so"}},
        {"conf": {"spark.executor.cores": "$(id)"}},
        {"conf": {"spark.task.cpus": "1\n"}},
    ],
    ids=str,
)
def test_what_names_code_or_hosts_for_spark_does_not_come_over_rest(spark: dict[str, Any]) -> None:
    refused({"spark": spark}, "may not be set, changed or taken away over REST")
    if not spark.get("conf", {}).keys() & SPARK_SIZES:
        with pytest.raises(SettingsError, match="taken away"):
            check(pipeline(), pipeline(spark=spark))


def test_sizes_and_what_the_administrator_lists_may_be_set_and_taken_away() -> None:
    conf = {"spark.executor.memory": "2g", "spark.dynamicAllocation.enabled": "true", "spark.memory.fraction": "0.6"}
    spark = {"conf": {**conf, "spark.local.dir": "/var/tmp"}, "master": "local[4]", "slice_bytes": 1 << 20}
    check(pipeline(spark=spark))
    check(pipeline(), pipeline(spark=spark))
    with pytest.raises(SettingsError, match=r"spark\.local\.dir of `spark`"):
        check(pipeline(spark=spark), site=Site(connections=SITE.connections))


def test_connections_are_brought_together_by_the_administrator_or_by_a_pipeline_that_one_may_edit() -> None:
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
                with pytest.raises(SettingsError, match="may not be brought together"):
                    check(pipeline(**settings), old, *others, mine=["mine"])
    as_mine = pipeline(source={"connection": "m2"}, kafka={"connection": "k2"})
    check(as_mine, None, mine, theirs, mine=["mine"])
    with pytest.raises(SettingsError, match=r"\{source: m2, kafka: k2\}"):
        check(as_mine, None, mine, theirs)
    with pytest.raises(SettingsError, match="CHANGEFEED_SITE"):
        check(as_mine, None, theirs, mine=["mine"])  # it was deleted
    check(as_mine, as_mine)


def test_server_ids_come_from_the_file_and_go_to_no_other_source() -> None:
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


def test_a_pool_is_its_own_or_one_of_a_pipeline_that_the_user_may_edit() -> None:
    hers = pipeline(name="hers", pool="of_hers")
    for old in (None, pipeline(), pipeline(pool="another")):
        with pytest.raises(SettingsError, match="pool 'of_hers' may not be set"):
            check(pipeline(pool="of_hers"), old, hers)
        check(pipeline(pool="of_hers"), old, hers, mine=["hers"])
        check(pipeline(), old, hers)
    check(pipeline(pool="of_hers", owner="ulf"), pipeline(pool="of_hers"))


def test_limit_of_reading_is_lowered_over_rest_and_not_lifted() -> None:
    def limited(most: int | None) -> Pipeline:
        return pipeline(source={"connection": "m", "max_bytes_per_second": most})

    for most in (1_000_000, 500_000):
        check(limited(most), limited(1_000_000))
    for lifted in (2_000_000, None):
        with pytest.raises(SettingsError, match="may not be raised or taken away over REST"):
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
def test_a_notifiers_arguments_over_rest_say_texts_and_name_no_files_or_secrets(argument: dict[str, Any]) -> None:
    refused({"alerts": {"notify": [{"notifier": SMTP, "arguments": argument}]}}, "may not be set over REST")


def test_a_notifier_over_rest_is_one_of_the_administrators() -> None:
    arguments = {"to": "ops@example.com", "subject": "{{ changefeed.kind }}: {{changefeed.pipeline}}"}
    check(pipeline(alerts={"notify": [{"notifier": SMTP, "arguments": arguments}]}))
    check(pipeline(), pipeline(alerts={"notify": [{"notifier": SMTP, "arguments": arguments}]}))
    refused({"alerts": {"notify": [{"notifier": f"{SMTP}s", "arguments": arguments}]}}, "not among `notifiers`")


def test_the_connection_of_a_schema_registry_comes_from_the_file() -> None:
    settings = {"format": {"name": "avro", "registry": "elsewhere"}}
    refused(settings, "`registry` of a format may not be set or changed over REST")
    with pytest.raises(SettingsError, match="registry"):
        check(pipeline(**settings), pipeline(format={"name": "avro", "registry": "own"}))
    refused({"topics": {"routes": [{"match": "*.a", **settings}]}}, "`registry` of a format may not be set or changed")
    check(pipeline(), pipeline(**settings))


def test_a_follower_is_a_server_that_is_written_to_and_comes_from_the_file() -> None:
    values = {"temporal": "iso"}
    refused({"followers": [{"connection": "copy"}], "values": values}, "`followers` cannot be set or changed here")


def test_a_pipeline_whose_topics_do_not_say_all_is_refused_a_follower_with_each_reason() -> None:
    with pytest.raises(SettingsError, match=r"(?s)publish_ddl: off.*statements: skip"):
        pipeline(followers=[{"connection": "copy"}], publish_ddl="off", statements="skip")


def test_whose_records_of_the_logs_are_believed_is_not_chosen_over_rest() -> None:
    keyed = {"commit_log": {"key": {"connection": "log_key"}}}
    refused(keyed, "`commit_log` may not be set")
    with pytest.raises(SettingsError, match="taken away"):
        check(pipeline(), pipeline(**keyed))
