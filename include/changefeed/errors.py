"""Everything that changefeed raises on purpose.

::

    ChangefeedError
    ├── TerminalError             a retry cannot help: Airflow fails the task at once
    │   ├── SettingsError         a pipeline's YAML, an argument or an environment variable is wrong
    │   │   ├── OptionError       an option of a wire format is wrong
    │   │   └── BrokerLoginError  Kafka refuses the login
    │   ├── SourceError           the server refuses the login, or cannot be read as it is set up
    │   │   ├── BinlogGoneError   the binlog that is needed is not on the server
    │   │   ├── SourceLoginError  the server refuses the login
    │   │   ├── BinlogRefusedError   the server cannot read its binlog at the requested position
    │   │   └── NoSuchTableError  a table or its database is not on the server
    │   ├── BinlogFormatError     bytes of a binlog that cannot be decoded, with their coordinates
    │   ├── SchemaError           names or types of a table's columns are unknown or contradict the binlog
    │   ├── TopicError            a topic cannot be created, named or written as configured
    │   ├── RegistryError         the schema registry refuses the login, or what it is asked for
    │   │   └── CompatibilityError   a schema is not compatible with its subject
    │   ├── BadRecordError        a record that Kafka refuses, or a transform fails on
    │   ├── FollowerError         a follower refuses a statement, or cannot follow as it is set up
    │   ├── AccountingError       a window's bytes or rows do not add up
    │   ├── CheckpointError       a checkpoint that cannot be read, or may not be moved
    │   │   ├── StaleCheckpointError   another run moved it first
    │   │   └── RenamedError           the pipeline has another name now
    │   └── NotPublishedError     a continuous run failed until another one took over
    └── RetryableError            the same call may succeed later
        ├── SourceUnavailableError     the server cannot be reached, is busy or behind, or refuses an expiring password
        ├── ConnectionUnavailableError   Airflow gives no such connection
        ├── SparkUnavailableError      the Spark Connect server cannot be reached
        ├── SparkFailedError           a Spark job failed, or lost what it had decoded
        ├── RegistryUnavailableError   the schema registry does not answer, or refuses a password that expires
        ├── FollowerUnavailableError   the follower cannot be reached, or has no lock to give
        ├── BrokerUnavailableError     Kafka cannot be reached, refused for now, or refuses such a password
        ├── StateStoreUnavailableError   the database of the checkpoints cannot be read or written
        ├── FencedError                a newer attempt of the same pipeline took over
        └── PipelineBusyError          another run of this pipeline is in progress

Each message has what was expected, what was found, the consequence and the remedy. Values are quoted.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Self

from changefeed.printable import printable


class ChangefeedError(Exception):
    """Base of all errors. Its text is safe to print, also with text of a server: see `printable`."""

    tables: tuple[str, ...] = ()
    """The tables, as "database.table", without which the same work would not meet this error; () if that is not known.

    A pipeline with `on_table_error: park` goes on without them (`pipeline.parking`)."""

    function: str = ""
    """The name of the user's function that failed; '' for another error."""

    def of_tables(self, *tables: str, function: str = "") -> Self:
        """This error, as one that belongs to ``tables`` alone; ``function`` as in the attribute."""
        self.tables, self.function = tables, function
        return self

    def __str__(self) -> str:
        return printable(super().__str__())


class TerminalError(ChangefeedError):
    """A retry fails again until something is changed."""


class SettingsError(TerminalError):
    """A setting is wrong; the message names the file, the line and the nearest valid value."""


class OptionError(SettingsError):
    """An option of a wire format is unknown or has an invalid value.

    ``path`` is the option's name; an option of an inner format follows the name of the outer option.
    """

    def __init__(self, message: str, *path: str) -> None:
        super().__init__(message, *path)
        self.path = path

    def __str__(self) -> str:
        return str(self.args[0])


class BrokerLoginError(SettingsError):
    """Kafka refuses the login."""


class SourceError(TerminalError):
    """The server refuses the login or a right, or cannot be read as it is set up."""


class NoSuchTableError(SourceError):
    """A table or its database is not on the server any more."""


class SourceLoginError(SourceError):
    """The server refuses the user or the password."""


class BinlogGoneError(SourceError):
    """The binlog that is needed is not on the server: purged, renamed, reset or restored."""


class BinlogRefusedError(SourceError):
    """The server cannot read its binlog at the requested position; the message has its words."""


class BinlogFormatError(TerminalError):
    """Bytes of a binlog that cannot be decoded; the message names their coordinates."""


class SchemaError(TerminalError):
    """A table's columns are unknown, or contradict what the binlog says of them."""


class TopicError(TerminalError):
    """A topic cannot be created, named or written as configured."""


class RegistryError(TerminalError):
    """The schema registry refuses the login, or what it is asked for."""


class CompatibilityError(RegistryError):
    """A schema is not compatible with its subject; the message names the column and the rule."""


class BadRecordError(TerminalError):
    """A record that Kafka refuses, or a change that a transform fails on; the message names table, key and
    coordinates."""


class FollowerError(TerminalError):
    """A follower refuses a statement or the login; ``code`` is the server's error code, 0 for another error."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class AccountingError(TerminalError):
    """The bytes or rows of a window do not add up; the checkpoint stays where it is."""


class CheckpointError(TerminalError):
    """A checkpoint that cannot be read, or may not be moved as asked."""


class NotPublishedError(TerminalError):
    """A continuous run failed until another one took over; a retry would take over from that one."""


class StaleCheckpointError(CheckpointError):
    """Another run moved the checkpoint since this run read it."""


class RenamedError(CheckpointError):
    """The pipeline was renamed: nothing is published under this name any more."""


class RetryableError(ChangefeedError):
    """The same call may succeed later."""


class SourceUnavailableError(RetryableError):
    """The server cannot be reached or is busy, the connection to it was lost, a password that expires was refused or
    not returned, or a replica does not have all published transactions yet."""


class ConnectionUnavailableError(RetryableError):
    """Airflow gives no such connection: there is none, or its API or a secrets backend failed."""


class SparkUnavailableError(RetryableError):
    """The Spark Connect server cannot be reached."""


class SparkFailedError(RetryableError):
    """A Spark job failed, or lost what it had decoded."""


class RegistryUnavailableError(RetryableError):
    """The schema registry cannot be reached, does not answer, or refused a password that expires."""


class FollowerUnavailableError(RetryableError):
    """The follower cannot be reached, has no lock to give, or refused a password that expires."""


class BrokerUnavailableError(RetryableError):
    """Kafka cannot be reached, refused for now, or refused a password that expires."""


class StateStoreUnavailableError(RetryableError):
    """The database of the checkpoints cannot be read or written."""


class FencedError(RetryableError):
    """A newer attempt of the same pipeline took over this one's transactional id."""


class PipelineBusyError(RetryableError):
    """Another run of this pipeline is in progress."""


def did_you_mean(word: str, known: Collection[str]) -> str:
    """The end of a message about an unknown ``word``: ` (did you mean 'NEAREST'?)`, or nothing where none is near."""
    near = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
