"""The site's file: an administrator of Airflow lists in it what users may set beyond the safe defaults.

Not every user who writes pipelines or starts backfills may run code on the workers or read the workers' files. Settings
that could let users do so are only accepted if the site's file lists them.
"""

from __future__ import annotations

import os
import re
import stat
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, StringConstraints, field_validator, model_validator

from changefeed.errors import SettingsError
from changefeed.model.password_source import PasswordSource
from changefeed.settings.alert_limits import AlertLimits
from changefeed.settings.column_settings import SecretSettings
from changefeed.settings.section import ConnectionId, Positive, Section
from changefeed.settings.yaml_file import read_section
from changefeed.source.archive.archive import Archive, ArchiveLookup, archive_below

SITE_VARIABLE = "CHANGEFEED_SITE"
_AIRFLOWS = re.compile("_?AIRFLOW_", re.IGNORECASE)
"""Begins the names of Airflow's own variables: connections, and the secrets that encrypt them and sign tokens."""

VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\*?$", max_length=250)]
"""The name of an environment variable, or with `*` at its end the beginning of names."""


class ConnectionPair(Section):
    """Connections that a pipeline created over REST may use together."""

    source: ConnectionId
    """Connection id of the source."""
    kafka: ConnectionId
    """Connection id of the Kafka cluster."""
    checkpoint: ConnectionId | None = None
    """Connection id of the database of the checkpoint, with `checkpoint.store: table`."""


class ArchiveRoot(Section):
    """A folder or URL below which backfills may read archived binlog files. Without `source` the URL alone may be
    written."""

    url: str
    """Folder or URL."""
    source: ConnectionId | None = None
    """Only for pipelines of this source's connection id. Empty: for all pipelines."""

    @model_validator(mode="before")
    @classmethod
    def _expand_url(cls, given: Any) -> Any:
        return {"url": given} if isinstance(given, str) else given


class FollowerServer(Section):
    """A server that pipelines created over REST may write to. Without `source` the connection id alone may be
    written."""

    connection: ConnectionId
    """Connection id of the follower."""
    source: ConnectionId | None = None
    """Only for pipelines of this source's connection id. Empty: for all pipelines."""

    @model_validator(mode="before")
    @classmethod
    def _expand_connection(cls, given: Any) -> Any:
        return {"connection": given} if isinstance(given, str) else given


class FreshnessSettings(AlertLimits):
    """The DAG `changefeed_freshness`, and the limits of pipelines whose `alerts` have none."""

    every_minutes: Annotated[int, Field(gt=0, le=1440)] = 10
    """How often the DAG checks all pipelines."""
    late_minutes: Annotated[int, Field(gt=0, le=525_600)] = 30
    """As `alerts.late_minutes` of a pipeline, for pipelines with a schedule."""

    def limits_of(self, own: AlertLimits) -> AlertLimits:
        """The limits of a pipeline: its ``own``, and those of the site for limits that it does not set."""
        return AlertLimits(
            **{
                name: getattr(self, name) if (value := getattr(own, name)) is None else value
                for name in AlertLimits.model_fields
            }
        )


class PasswordSettings(Section):
    """What returns the password of a connection for each login, to MySQL or MariaDB, Kafka, a schema registry, or the
    database of a checkpoint: either `command` or `function`. The connection's own password is not used. With
    `sasl.mechanism=OAUTHBEARER`, or for a schema registry without a user, it is a token."""

    connection: ConnectionId
    """Connection id."""
    command: list[str] = Field(default=[])
    """A program and its arguments. It runs without a shell, and prints the password on one line."""
    function: str = Field(default="", pattern=r"^([A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+)?$")
    """A function of Python with its module (`company.tokens.mysql_token`), called with `host`, `port` and `user`; it
    returns the password."""
    timeout_seconds: Positive = 10
    """After this time the command is killed, and the login fails."""

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        if bool(self.command) == bool(self.function):
            raise ValueError("expected either `command`, with a program and its arguments, or `function`")
        return self

    def source(self) -> PasswordSource:
        """The settings as a value for logins."""
        return PasswordSource(self.connection, tuple(self.command), self.function, self.timeout_seconds)


class Site(Section):
    """The file that CHANGEFEED_SITE names. Without a file nothing of this is allowed."""

    archives: list[ArchiveRoot] = Field(default=[])
    """Folders and URLs below which backfills may read archived binlog files."""
    notifiers: list[str] = Field(default=[])
    """Classes of Airflow notifiers, each with its module, that a pipeline's `alerts.notify` may name."""
    connections: list[ConnectionPair] = Field(default=[])
    """Connections that pipelines created over REST may use together, besides those of a pipeline that the same user may
    edit."""
    followers: list[FollowerServer] = Field(default=[])
    """Servers that pipelines created over REST may name in `followers`."""
    transforms: list[str] = Field(default=[])
    """Names or patterns (`shop_*`) of functions in the folder of transforms that may be added over REST with any
    arguments. Functions that come with changefeed may always be added."""
    spark_conf: list[str] = Field(default=[])
    """Names of `spark.conf` that may be set over REST, besides those of sizes."""
    environment: list[VariableName] = Field(default=[])
    """Names, or beginnings of names (`LDAP_*`), of environment variables that Spark jobs get from the Airflow worker,
    besides those that all jobs get. Airflow's own variables (`AIRFLOW_…`) are refused."""
    passwords: list[PasswordSettings] = Field(default=[])
    """What returns passwords that expire, such as tokens of a cloud provider, for each login."""
    hosts: list[str] = Field(default=[])
    """Host names under which browsers reach Airflow, besides that of `[api] base_url`; with a port if it is not the
    scheme's own."""
    scrape_token: SecretSettings | None = Field(default=None, repr=False)
    """Where the token is stored with which Prometheus reads the metrics of all pipelines, and nothing else. It has at
    least 32 characters and does not expire. Empty: metrics require a token of Airflow."""
    freshness: FreshnessSettings = FreshnessSettings()

    @field_validator("environment")
    @classmethod
    def _check_environment(cls, names: list[str]) -> list[str]:
        if own := [name for name in names if _AIRFLOWS.match(name)]:
            raise ValueError(
                f"{own[0]!r} is a variable of Airflow, which may hold all connections, or the keys that encrypt them "
                "and sign tokens. Jobs get the connections of their pipeline anyway. Remove it"
            )
        return names

    @field_validator("passwords")
    @classmethod
    def _check_passwords(cls, passwords: list[PasswordSettings]) -> list[PasswordSettings]:
        ids = [each.connection for each in passwords]
        if repeated := [each for each in ids if ids.count(each) > 1]:
            raise ValueError(f"connection {repeated[0]!r} is listed twice: leave out one of them")
        return passwords

    def password_source(self, connection_id: str) -> PasswordSource | None:
        """What returns the connection's passwords; None if it has a password of its own."""
        return next((each.source() for each in self.passwords if each.connection == connection_id), None)

    def passes_variable(self, name: str) -> bool:
        """Whether jobs get the environment variable by `environment`. Never one of Airflow's own, whatever the
        pattern."""
        return not _AIRFLOWS.match(name) and any(fnmatchcase(name, pattern) for pattern in self.environment)

    def may_follow(self, source: str, connection: str) -> bool:
        """Whether a user who edits a pipeline of ``source`` may add the follower."""
        return any(each.connection == connection and each.source in (None, source) for each in self.followers)

    def has_function(self, name: str) -> bool:
        """Whether a user who edits a pipeline may add the function."""
        return any(fnmatchcase(name, pattern) for pattern in self.transforms)

    def check_notifier(self, name: str) -> None:
        """Raise SettingsError for a class that is not listed: it would run on the workers."""
        if name not in self.notifiers:
            raise SettingsError(f"{name!r} is not in `notifiers` {site_file()}: no alert is sent with it")


def site_file() -> str:
    """The site's file for messages, after a key: `of the site's file, '/etc/changefeed.yaml' …`."""
    named = os.environ.get(SITE_VARIABLE)
    if named:
        return f"of the site's file, {named!r} ({SITE_VARIABLE}), which its administrator writes"
    return f"of the site's file, which its administrator writes: {SITE_VARIABLE} is not set, so there is none"


def load_site() -> Site:
    """The site's settings on this machine; raises SettingsError if the file cannot be read, is wrong, or may be written
    by every user."""
    named = os.environ.get(SITE_VARIABLE)
    if not named:
        return Site()
    path = Path(named)
    if not path.is_file():
        raise SettingsError(f"{SITE_VARIABLE} names {named!r}, which is not a file: create it, or unset the variable")
    if path.stat().st_mode & stat.S_IWOTH:
        raise SettingsError(
            f"{SITE_VARIABLE} names {named!r}, which every user of this machine may write, and which names code that "
            "runs with the rights of Airflow's processes. Nothing of it was run. Remove that right: chmod o-w"
        )
    return read_section(path, Site)


def site_archive(source: str) -> ArchiveLookup:
    """A lookup of archives for pipelines of the connection ``source``.

    The lookup raises SettingsError for an archive outside of the `archives` that the site's file allows for ``source``,
    and if that file is invalid. Each call reads the file: a removed entry is refused at once, also when a task is
    cleared and runs again.
    """

    def archive(url: str) -> Archive:
        return archive_below(url, [root.url for root in load_site().archives if root.source in (None, source)])

    return archive
