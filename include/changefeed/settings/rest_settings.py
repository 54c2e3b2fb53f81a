"""What a pipeline that is made or changed over REST may say.

Its author may edit pipelines, and may neither run code on the workers nor read the passwords of connections. So what
names code, hosts, files or connections does not come from there: it is in the file already, or the administrator's file
(`site`) has it. What cannot be set so cannot be taken away either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from changefeed.errors import SettingsError
from changefeed.settings.hidden_columns import settings_that_may_show
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import (
    CommitLogSettings,
    NotifierSettings,
    PipelineSettings,
    SparkSettings,
)
from changefeed.settings.routes import compile_routes
from changefeed.settings.site import ConnectionPair, Site, site_file

SPARK_SIZES = frozenset(
    {
        "spark.cores.max",
        "spark.default.parallelism",
        "spark.driver.cores",
        "spark.driver.maxResultSize",
        "spark.driver.memory",
        "spark.driver.memoryOverhead",
        "spark.driver.memoryOverheadFactor",
        "spark.dynamicAllocation.cachedExecutorIdleTimeout",
        "spark.dynamicAllocation.enabled",
        "spark.dynamicAllocation.executorAllocationRatio",
        "spark.dynamicAllocation.executorIdleTimeout",
        "spark.dynamicAllocation.initialExecutors",
        "spark.dynamicAllocation.maxExecutors",
        "spark.dynamicAllocation.minExecutors",
        "spark.dynamicAllocation.schedulerBacklogTimeout",
        "spark.dynamicAllocation.shuffleTracking.enabled",
        "spark.dynamicAllocation.shuffleTracking.timeout",
        "spark.dynamicAllocation.sustainedSchedulerBacklogTimeout",
        "spark.executor.cores",
        "spark.executor.heartbeatInterval",
        "spark.executor.instances",
        "spark.executor.memory",
        "spark.executor.memoryOverhead",
        "spark.executor.memoryOverheadFactor",
        "spark.executor.pyspark.memory",
        "spark.memory.fraction",
        "spark.memory.offHeap.enabled",
        "spark.memory.offHeap.size",
        "spark.memory.storageFraction",
        "spark.network.timeout",
        "spark.sql.shuffle.partitions",
        "spark.task.cpus",
        "spark.task.maxFailures",
    }
)
"""Whole names, of Spark 4.2's entries: below a prefix there are others, such as `spark.executor.defaultJavaOptions`."""
_SIZE = re.compile(r"\d{1,18}(\.\d{1,18})?[A-Za-z]{0,7}|true|false|infinity")
_LOCAL = re.compile(r"local(\[(\*|\d{1,4})(,\d{1,4})?\])?")

_TEXTS = frozenset(
    {
        "bcc",
        "body",
        "cc",
        "channel",
        "chat_id",
        "content",
        "description",
        "from_email",
        "html_content",
        "message",
        "subject",
        "summary",
        "tags",
        "text",
        "title",
        "to",
        "username",
    }
)
"""Arguments of notifiers that say what is sent to whom. Others name files to send, connections, or hosts to send to."""
_FIELD = re.compile(r"(?<!{){{\s*changefeed\.(kind|pipeline|text)\s*}}(?!})")
_TEMPLATE = re.compile("{{|{%|{#")


def check_rest_settings(
    new: Pipeline,
    old: Pipeline | None,
    others: Mapping[str, Pipeline],
    site: Site,
    may_edit: Callable[[str], bool],
) -> None:
    """Raise SettingsError where ``new`` says what may not come over REST, and ``old``, the pipeline that it replaces,
    does not say it. ``others`` are the other pipelines by name, ``may_edit`` tells which of them the same user may
    edit."""
    _check_connections(new, old, others, site, may_edit)
    _check_server_ids(new, old)
    _check_reading_speed(new, old)
    _check_pool(new, old, others, may_edit)
    _check_masks(new, old)
    _check_hidden(new, old)
    _check_commit_log(new, old)
    _check_transforms(new, old)
    _check_registry(new, old)
    _check_followers(new, old)
    _check_spark(new.spark, old.spark if old else SparkSettings(), site)
    for notifier in added_notifiers(new, old):
        site.check_notifier(notifier.notifier)
        _check_arguments(notifier)


def _check_followers(new: Pipeline, old: Pipeline | None) -> None:
    """A follower is a server that is written to: who edits a pipeline does not choose it, nor what it has no more."""
    if new.followers != (old.followers if old else []):
        raise SettingsError(
            "`followers` cannot be set or changed here, as they name servers that are written to: whoever keeps the "
            "pipelines' files does it there"
        )


def added_notifiers(new: Pipeline, old: Pipeline | None) -> list[NotifierSettings]:
    """The notifiers of ``new`` that ``old`` does not have with the same arguments."""
    before = old.alerts.notify if old else []
    return [notifier for notifier in new.alerts.notify if notifier not in before]


def _check_connections(
    new: Pipeline, old: Pipeline | None, others: Mapping[str, Pipeline], site: Site, may_edit: Callable[[str], bool]
) -> None:
    """A pipeline brings the rows of its source to its cluster: who may edit it must not choose both freely. Where it
    takes them from another pipeline, it shows nothing that that one hides."""
    wanted = _connections(new)
    if (old and _connections(old) == wanted) or wanted in site.connections:
        return
    same = [other for name, other in others.items() if _connections(other) == wanted and may_edit(name)]
    shown = [settings_that_may_show(new, other) for other in same]
    if [] in shown:
        return
    if same:
        raise SettingsError(
            f"pipeline {same[0].name!r}, which has the connections of this one, hides columns, and "
            f"{', '.join(f'`{setting}`' for setting in shown[0])} of this one may show them: give it what that one has "
            "of these, or have these connections written to `connections` " + site_file()
        )
    entry = ", ".join(f"{name}: {value}" for name, value in wanted.model_dump(exclude_none=True).items())
    raise SettingsError(
        f"the connections {{{entry}}} may not be brought together by a pipeline that comes over REST: no pipeline that "
        f"you may edit has these, and they do not stand in `connections` {site_file()}"
    )


def _connections(pipeline: Pipeline) -> ConnectionPair:
    return ConnectionPair(
        source=pipeline.source.connection,
        kafka=pipeline.kafka.connection,
        checkpoint=pipeline.checkpoint.connection,
    )


def _check_server_ids(new: Pipeline, old: Pipeline | None) -> None:
    """Of two that read a server's binlog under one server_id the server ends the older, be that another pipeline, also
    by another connection, or a replica."""
    named = (new.source.connection, new.source.server_ids)
    if new.source.server_ids is not None and (old is None or (old.source.connection, old.source.server_ids) != named):
        raise SettingsError(
            f"source.server_ids {new.source.server_ids} may not be set over REST, nor taken to another connection: the "
            "server ends others who read it under one of these ids, such as its replicas. They come from the "
            "pipeline's file; without them readers name no id, and end nobody."
        )


def _check_reading_speed(new: Pipeline, old: Pipeline | None) -> None:
    """A limit spares the server: it may be set or lowered by who edits a pipeline, not lifted."""
    limit, before = new.source.max_bytes_per_second, old.source.max_bytes_per_second if old else None
    if before is not None and (limit is None or limit > before):
        raise SettingsError(
            f"source.max_bytes_per_second is {before}, and may not be raised or taken away over REST: it spares the "
            "server that is read. Lower it here, or have whoever keeps the pipelines' files raise it there."
        )


def _check_pool(
    new: Pipeline, old: Pipeline | None, others: Mapping[str, Pipeline], may_edit: Callable[[str], bool]
) -> None:
    """Whose slots its runs take: those of a pool that keeps others apart would be held from these."""
    own = PipelineSettings.model_fields["pool"].default
    if new.pool not in (own, old.pool if old else own) and not any(
        other.pool == new.pool and may_edit(name) for name, other in others.items()
    ):
        raise SettingsError(
            f"pool {new.pool!r} may not be set over REST: its runs would hold the slots of others. It comes from the "
            f"pipeline's file; {own!r} may be set, and a pool of a pipeline that you may edit."
        )


def _check_masks(new: Pipeline, old: Pipeline | None) -> None:
    """Which connection's password or which variable a mask takes: as a text, it would be published."""
    known = set(old.columns.secrets) if old else set()
    for key, where in new.columns.secrets:
        if (key, where) not in known:
            name = where.connection if where.connection is not None else where.environment
            raise SettingsError(
                f"`{key}` of a mask may not name {name!r} over REST: what a connection or a variable of the workers "
                "holds could be published so. Such a mask comes from the pipeline's file; `text` and `characters` may "
                "be set."
            )


def _check_hidden(new: Pipeline, old: Pipeline | None) -> None:
    """What is hidden stays hidden, and nothing is asked about it."""
    if old and (shown := settings_that_may_show(new, old)):
        raise SettingsError(
            f"pipeline {old.name!r} hides columns, so {', '.join(f'`{setting}`' for setting in shown)} may not be set, "
            "changed or taken away over REST: what is hidden could be shown by it, or asked about. It comes from the "
            "pipeline's file. Over REST such a pipeline may take fewer tables (a pattern less, a table's name in place "
            "of a pattern, more in `tables.exclude`) and hide more columns (more in `columns.exclude`, masks behind "
            "those that are there); what shapes no message may be changed as in any other."
        )


def _check_commit_log(new: Pipeline, old: Pipeline | None) -> None:
    """Whether records of the logs are believed that nobody signed, and which secret of the workers signs them."""
    if new.commit_log != (old.commit_log if old else CommitLogSettings()):
        raise SettingsError(
            "`commit_log` may not be set, changed or taken away over REST: it says whose records of what is published "
            "are believed. It comes from the pipeline's file."
        )


def _check_transforms(new: Pipeline, old: Pipeline | None) -> None:
    if new.transforms != (old.transforms if old else []):
        raise SettingsError(
            "`transforms` may not be set, changed or taken away over REST: they name code to run, and may hide values. "
            "They come from the pipeline's file."
        )


def _check_registry(new: Pipeline, old: Pipeline | None) -> None:
    """Whose login goes to whichever host its connection names."""
    if compile_routes(new).registry not in (None, compile_routes(old).registry if old else None):
        raise SettingsError(
            "`registry` of a format may not be set or changed over REST: it names a connection "
            "whose login is used. It comes from the pipeline's file."
        )


def _check_spark(new: SparkSettings, old: SparkSettings, site: Site) -> None:
    hosts = {"spark.connection", "spark.connect"}
    if not (_LOCAL.fullmatch(new.master) and _LOCAL.fullmatch(old.master)):
        hosts.add("spark.master")
    changed = {key for key in hosts if _setting(new, key) != _setting(old, key)}
    changed |= {name for name in {*new.conf, *old.conf} if not _may_be(name, new.conf.get(name), old.conf, site)}
    if changed:
        raise SettingsError(
            f"{', '.join(sorted(changed))} of `spark` may not be set, changed or taken away over REST: it can name "
            "code to run, or where the job and its passwords go. It comes from the pipeline's file; names of "
            f"`spark.conf` also from `spark_conf` {site_file()}. Sizes may be set: {', '.join(sorted(SPARK_SIZES))}"
        )


def _setting(spark: SparkSettings, key: str) -> object:
    return getattr(spark, key.removeprefix("spark."))


def _may_be(name: str, value: str | None, old: Mapping[str, str], site: Site) -> bool:
    if value == old.get(name) or name in site.spark_conf:
        return True
    return name in SPARK_SIZES and (value is None or _SIZE.fullmatch(value) is not None)


def _check_arguments(notifier: NotifierSettings) -> None:
    for name, value in notifier.arguments.items():
        if name not in _TEXTS:
            raise SettingsError(
                f"argument {name[:64]!r} of {notifier.notifier} may not be set over REST: it may name a file, a host "
                f"or a connection. It comes from the pipeline's file. May be set: {', '.join(sorted(_TEXTS))}"
            )
        for text in _texts(value):
            if _TEMPLATE.search(_FIELD.sub("\0", text)):
                raise SettingsError(
                    f"argument {name!r} of {notifier.notifier} is a template that may not be set over REST: it could "
                    "show what the workers know. Of templates it may hold {{ changefeed.kind }}, "
                    "{{ changefeed.pipeline }} and {{ changefeed.text }}."
                )


def _texts(value: object) -> Iterator[str]:
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str):
            yield item
