"""Checks of a pipeline that is created or changed over REST.

The user may edit pipelines, but may neither run code on the workers nor read passwords of connections. So settings that
name code, hosts, files or connections are only accepted if the file already has them, or the site's file lists them.
Such a setting cannot be removed either.

A user who may edit all connections of the pipeline in Airflow has access to their logins and rows anyway, and is exempt
from the rules about connections, followers, functions and hidden columns. The rules about code, files, variables of the
workers and shared resources hold for everybody.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from changefeed.errors import SettingsError
from changefeed.settings.editor import Editor
from changefeed.settings.hidden_columns import find_revealing_settings
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import (
    CommitLogSettings,
    FollowerSettings,
    NotifierSettings,
    PipelineSettings,
    SparkSettings,
)
from changefeed.settings.routes import compile_routes
from changefeed.settings.site import ConnectionPair, Site, site_file
from changefeed.settings.transform_source import list_supplied_transforms

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
"""Settings of Spark 4.2 that users may set, by their complete names. A prefix would include others, such as
`spark.executor.defaultJavaOptions`."""
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
"""Arguments of notifiers that users may set: text and recipients. Other arguments name files, connections or hosts."""
_FIELD = re.compile(r"(?<!{){{\s*changefeed\.(kind|pipeline|text)\s*}}(?!})")
_TEMPLATE = re.compile("{{|{%|{#")


def check_rest_settings(
    new: Pipeline, old: Pipeline | None, others: Mapping[str, Pipeline], site: Site, editor: Editor
) -> None:
    """Raise SettingsError if ``new`` has a setting that ``editor`` may not write over REST.

    Settings that ``old``, the pipeline that it replaces, already has are allowed. ``others`` are the other pipelines by
    name.
    """
    _check_variables(new, old)
    _check_server_ids(new, old)
    _check_reading_speed(new, old)
    _check_pool(new, old, others, editor.may_edit)
    _check_state(new, old, others, site, editor.may_edit)
    _check_commit_log(new, old)
    _check_spark(new.spark, old.spark if old else SparkSettings(), site)
    for notifier in added_notifiers(new, old):
        site.check_notifier(notifier.notifier)
        _check_arguments(notifier)
    try:
        _check_without_connections(new, old, others, site, editor.may_edit)
    except SettingsError as error:
        if foreign := editor.foreign_connections(new, old):
            raise SettingsError(f"{error} {_describe_permission(foreign)}") from None


def _check_without_connections(
    new: Pipeline, old: Pipeline | None, others: Mapping[str, Pipeline], site: Site, may_edit: Callable[[str], bool]
) -> None:
    """Raise SettingsError as `check_rest_settings`, by the rules for users who may not edit all the connections."""
    _check_connections(new, old, others, site, may_edit)
    _check_masks(new, old)
    _check_transforms(new, old, site)
    _check_hidden(new, old)
    _check_registry(new, old)
    _check_followers(new, old, site)


def _describe_permission(foreign: list[str]) -> str:
    return (
        "A user who may edit all connections of the pipeline in Airflow (Admin, Connections) may do it over REST; "
        f"you may not edit {', '.join(map(repr, foreign))}. Nobody may edit a connection of the environment or of a "
        "secrets backend there, or one that does not exist yet."
    )


def _check_followers(new: Pipeline, old: Pipeline | None, site: Site) -> None:
    """Raise SettingsError if a follower is set, changed or removed that the site's file does not list: it is a server
    to which rows are written."""
    now, before = _list_followers(new), _list_followers(old) if old else []
    changed = [each for each in now if each not in before] + [each for each in before if each not in now]
    for source, _, follower in changed:
        if not site.may_follow(source, follower.connection):
            raise SettingsError(
                f"follower {follower.connection!r} of source {source!r} may not be set, changed or removed over REST: "
                f"it is a server that is written to, and is not in `followers` {site_file()}. Change it in the "
                "pipeline's file, or add it to that list."
            )


def _list_followers(pipeline: Pipeline) -> list[tuple[str, str, FollowerSettings]]:
    return [(pipeline.source.connection, pipeline.kafka.connection, each) for each in pipeline.followers]


def added_notifiers(new: Pipeline, old: Pipeline | None) -> list[NotifierSettings]:
    """The notifiers of ``new`` that ``old`` does not have, or has with other arguments."""
    before = old.alerts.notify if old else []
    return [notifier for notifier in new.alerts.notify if notifier not in before]


def _check_connections(
    new: Pipeline, old: Pipeline | None, others: Mapping[str, Pipeline], site: Site, may_edit: Callable[[str], bool]
) -> None:
    """Raise SettingsError if the user may not combine the source, the cluster and the checkpoint's database of ``new``.

    A pipeline copies the rows of its source to its cluster, so a user may not choose both freely. A user may take them
    from another pipeline that the user may edit, if ``new`` shows nothing that the other pipeline hides.
    """
    requested = _connections(new)
    if (old and _connections(old) == requested) or requested in site.connections:
        return
    same = [other for name, other in others.items() if _connections(other) == requested and may_edit(name)]
    shown = [find_revealing_settings(new, other) for other in same]
    if [] in shown:
        return
    if same:
        raise SettingsError(
            f"pipeline {same[0].name!r}, which has the connections of this one, hides columns, and "
            f"{', '.join(f'`{setting}`' for setting in shown[0])} of this one may show them. Use the other pipeline's "
            f"values, or ask for an entry in `connections` {site_file()}."
        )
    entry = ", ".join(f"{name}: {value}" for name, value in requested.model_dump(exclude_none=True).items())
    raise SettingsError(
        f"the connections {{{entry}}} may not be used together by a pipeline over REST: no pipeline that you may edit "
        f"has them, and they are not in `connections` {site_file()}"
    )


def offered_connections(
    pipelines: Mapping[str, Pipeline], site: Site, may_edit: Callable[[str], bool]
) -> list[ConnectionPair]:
    """The connections that a user may combine in a new pipeline over REST, without rights on them in Airflow.

    They come from the site's file, and from ``pipelines`` that the user ``may_edit`` and that hide no columns.
    """
    own = (pipeline for name, pipeline in sorted(pipelines.items()) if may_edit(name))
    shared = (_connections(pipeline) for pipeline in own if not pipeline.hides_columns)
    return list(dict.fromkeys([*site.connections, *shared]))


def _connections(pipeline: Pipeline) -> ConnectionPair:
    return ConnectionPair(
        source=pipeline.source.connection,
        kafka=pipeline.kafka.connection,
        checkpoint=pipeline.checkpoint.connection,
    )


def _check_server_ids(new: Pipeline, old: Pipeline | None) -> None:
    """Raise SettingsError if `server_ids` is set or changed: the server ends the connection of another client (a
    pipeline or a replica) that reads the binlog with the same server_id."""
    named = (new.source.connection, new.source.server_ids)
    if new.source.server_ids is not None and (old is None or (old.source.connection, old.source.server_ids) != named):
        raise SettingsError(
            f"source.server_ids {new.source.server_ids} may not be set over REST, nor used with another connection: "
            "the server ends other clients with one of these ids, such as its replicas. Set them in the pipeline's "
            "file, or remove them: without them readers send no id, and end no other client."
        )


def _check_reading_speed(new: Pipeline, old: Pipeline | None) -> None:
    """Raise SettingsError if the read limit, which protects the server, is raised or removed."""
    limit, before = new.source.max_bytes_per_second, old.source.max_bytes_per_second if old else None
    if before is not None and (limit is None or limit > before):
        raise SettingsError(
            f"source.max_bytes_per_second is {before}, and may not be raised or removed over REST, because it protects "
            "the server. Lower it, or raise it in the pipeline's file."
        )


def _check_pool(
    new: Pipeline, old: Pipeline | None, others: Mapping[str, Pipeline], may_edit: Callable[[str], bool]
) -> None:
    """Raise SettingsError for a pool that is not the default, the old one, or the pool of a pipeline that the user may
    edit: the runs would occupy the slots of other pipelines."""
    own = PipelineSettings.model_fields["pool"].default
    if new.pool not in (own, old.pool if old else own) and not any(
        other.pool == new.pool and may_edit(name) for name, other in others.items()
    ):
        raise SettingsError(
            f"pool {new.pool!r} may not be set over REST: its runs would occupy the slots of others. Set it in the "
            f"pipeline's file, or use {own!r} or the pool of a pipeline that you may edit."
        )


def _check_variables(new: Pipeline, old: Pipeline | None) -> None:
    """Raise SettingsError if a mask or function newly names an environment variable: the workers' variables hold
    secrets, such as the key that signs Airflow's tokens."""
    known = set(old.columns.secrets) if old else set()
    added = [where for key, where in new.columns.secrets if (key, where) not in known]
    before = old.transforms if old else []
    added += [where for each in new.transforms if each not in before for where in each.secrets.values()]
    for where in added:
        if where.environment is not None:
            raise SettingsError(
                f"{{environment: {where.environment}}} of a mask or a function may not be set over REST: it could "
                "publish the value of a variable of the workers. Set it in the pipeline's file, together with the mask "
                "or the function."
            )


def _check_masks(new: Pipeline, old: Pipeline | None) -> None:
    """Raise SettingsError if a mask newly names a connection: it could publish the connection's password."""
    known = set(old.columns.secrets) if old else set()
    for key, where in new.columns.secrets:
        if (key, where) not in known:
            raise SettingsError(
                f"`{key}` of a mask may not name {where.connection!r} over REST: it could publish the connection's "
                "password. Set such a mask in the pipeline's file; `text` and `characters` may be set over REST."
            )


def _check_hidden(new: Pipeline, old: Pipeline | None) -> None:
    """Raise SettingsError if ``new`` may show values that ``old`` hides, or has a setting that depends on them."""
    if old and (shown := find_revealing_settings(new, old)):
        raise SettingsError(
            f"pipeline {old.name!r} hides columns, so {', '.join(f'`{setting}`' for setting in shown)} may not be set, "
            "changed or removed over REST: hidden values could be shown or tested by it. Change it in the pipeline's "
            "file. Over REST such a pipeline may capture fewer tables (fewer patterns, a table's name instead of a "
            "pattern, more in `tables.exclude`) and hide more columns (more in `columns.exclude`, masks after the "
            "existing ones). Settings that shape no message may be changed as in any other pipeline."
        )


def _check_state(
    new: Pipeline, old: Pipeline | None, others: Mapping[str, Pipeline], site: Site, may_edit: Callable[[str], bool]
) -> None:
    """Raise SettingsError for a checkpoint's connection that is not in ``old``, in the site's file, or in a pipeline
    that the user may edit: by its scheme, it may be a file on the workers."""
    known = {None, old.checkpoint.connection if old else None, *(pair.checkpoint for pair in site.connections)}
    known |= {other.checkpoint.connection for name, other in others.items() if may_edit(name)}
    if new.checkpoint.connection not in known:
        raise SettingsError(
            f"checkpoint.connection {new.checkpoint.connection!r} may not be set over REST: it can be a file on the "
            "workers. Set it in the pipeline's file, or use that of a pipeline that you may edit, or an entry of "
            f"`connections` {site_file()}."
        )


def _check_commit_log(new: Pipeline, old: Pipeline | None) -> None:
    """Raise SettingsError if `commit_log` changes: its key decides which records of the logs are trusted."""
    if new.commit_log != (old.commit_log if old else CommitLogSettings()):
        raise SettingsError(
            "`commit_log` may not be set, changed or removed over REST: it decides which records of the logs are "
            "trusted. Change it in the pipeline's file."
        )


def _check_transforms(new: Pipeline, old: Pipeline | None, site: Site) -> None:
    """Raise SettingsError if existing functions change, or an added function gets secrets or is not allowed.

    Existing functions may hide values. If columns are hidden, `_check_hidden` refuses further functions: a function
    could rename a column so that no mask matches it, or fail on purpose, which writes the key of a row to the log.
    """
    before = old.transforms if old else []
    if new.transforms[: len(before)] != before:
        raise SettingsError(
            "functions of `transforms` may not be changed, moved or removed over REST, as they may hide values. Change "
            "them in the pipeline's file; `columns` may hide more over REST."
        )
    for added in new.transforms[len(before) :]:
        if added.secrets:
            raise SettingsError(
                f"`secrets` of function {added.function!r} may not be set over REST: they could publish a connection's "
                "password. Set them in the pipeline's file."
            )
        if not added.source.is_supplied and not site.has_function(added.function):
            raise SettingsError(
                f"function {added.function!r} may not be added to `transforms` over REST: it does not come with "
                f"changefeed ({', '.join(list_supplied_transforms())} do), and it is not in `transforms` "
                f"{site_file()}. Add it in the pipeline's file, or to that list."
            )


def _check_registry(new: Pipeline, old: Pipeline | None) -> None:
    """Raise SettingsError if `registry` changes, because the registry gets the login of its connection, or if
    `on_incompatible: register` is set, because it overrides the compatibility rules of the registry."""
    requested, before = compile_routes(new), compile_routes(old) if old else None
    if requested.registers_incompatible and not (before and before.registers_incompatible):
        raise SettingsError(
            "`on_incompatible: register` of a format may not be set over REST: it overrides the compatibility of "
            "subjects in the schema registry. Set it in the pipeline's file; `stop` may be set over REST."
        )
    if requested.registry not in (None, before.registry if before else None):
        raise SettingsError(
            "`registry` of a format may not be set or changed over REST: it names a connection whose login is used. "
            "Set it in the pipeline's file."
        )


def _check_spark(new: SparkSettings, old: SparkSettings, site: Site) -> None:
    hosts = {"spark.connection", "spark.connect", "spark.deploy_mode"}
    if not (_LOCAL.fullmatch(new.master) and _LOCAL.fullmatch(old.master)):
        hosts.add("spark.master")
    changed = {key for key in hosts if _setting(new, key) != _setting(old, key)}
    changed |= {name for name in {*new.conf, *old.conf} if not _may_set(name, new.conf.get(name), old.conf, site)}
    if changed:
        raise SettingsError(
            f"{', '.join(sorted(changed))} of `spark` may not be set, changed or removed over REST: it can name code "
            "to run, or the destination of the job and its passwords. Change it in the pipeline's file, or add the "
            f"name in `spark.conf` to `spark_conf` {site_file()}. Sizes may be set: {', '.join(sorted(SPARK_SIZES))}"
        )


def _setting(spark: SparkSettings, key: str) -> object:
    return getattr(spark, key.removeprefix("spark."))


def _may_set(name: str, value: str | None, old: Mapping[str, str], site: Site) -> bool:
    if value == old.get(name) or name in site.spark_conf:
        return True
    return name in SPARK_SIZES and (value is None or _SIZE.fullmatch(value) is not None)


def _check_arguments(notifier: NotifierSettings) -> None:
    for name, value in notifier.arguments.items():
        if name not in _TEXTS:
            raise SettingsError(
                f"argument {name[:64]!r} of {notifier.notifier} may not be set over REST: it may name a file, a host "
                f"or a connection. Set it in the pipeline's file. Over REST may be set: {', '.join(sorted(_TEXTS))}"
            )
        for text in _texts(value):
            if _TEMPLATE.search(_FIELD.sub("\0", text)):
                raise SettingsError(
                    f"argument {name!r} of {notifier.notifier} is a template that may not be set over REST: it could "
                    "show secrets of the workers. It may only contain the templates {{ changefeed.kind }}, "
                    "{{ changefeed.pipeline }} and {{ changefeed.text }}."
                )


def _texts(value: object) -> Iterator[str]:
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str):
            yield item
