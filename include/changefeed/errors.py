"""Everything that changefeed raises on purpose.

::

    ChangefeedError
    ├── TerminalError             a retry cannot help: Airflow fails the task at once
    │   ├── SettingsError         a pipeline's YAML, an argument or an environment variable is wrong
    │   │   └── OptionError       an option of a wire format is wrong
    │   ├── SourceError           the server refuses the login, or cannot be read as it is set up
    │   │   ├── BinlogGoneError   the binlog that is needed is not on the server
    │   │   └── NoSuchTableError  a table or its database is not on the server
    │   ├── BinlogFormatError     bytes of a binlog that cannot be decoded, with their coordinates
    │   ├── SchemaError           names or types of a table's columns are unknown or contradict the binlog
    │   ├── TopicError            a topic cannot be made, named or written as the pipeline wants
    │   ├── RegistryError         the schema registry refuses the login, or what it is asked for
    │   │   └── CompatibilityError   a schema does not go with those that its subject has
    │   ├── BadRecordError        a record that Kafka does not take, or a transform fails on
    │   ├── FollowerError         a follower refuses a statement, or cannot follow as it is set up
    │   ├── AccountingError       a window's bytes or rows do not add up
    │   └── CheckpointError       a checkpoint that cannot be read, or may not be moved
    │       └── StaleCheckpointError   another run moved it first
    └── RetryableError            the same call may succeed later
        ├── SourceUnavailableError     the server cannot be reached, or the connection was lost
        ├── SparkUnavailableError      the Spark Connect server cannot be reached
        ├── SparkFailedError           a Spark job failed, or lost what it had decoded
        ├── RegistryUnavailableError   the schema registry cannot be reached, or does not answer
        ├── FollowerUnavailableError   the follower cannot be reached, or has no lock to give
        ├── BrokerUnavailableError     Kafka cannot be reached, or refused for now
        ├── StateStoreUnavailableError   the database that keeps checkpoints cannot be read or written
        ├── FencedError                a newer attempt of the same pipeline took over
        └── PipelineBusyError          another run of this pipeline is under way

Each message says what was wanted, what is there, what it means and what to do. Values are quoted.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection

from changefeed.printable import printable


class ChangefeedError(Exception):
    """Root of the tree. Its text can be printed anywhere, whatever a server put into it: see `printable`."""

    def __str__(self) -> str:
        return printable(super().__str__())


class TerminalError(ChangefeedError):
    """A retry cannot help: somebody has to change something first."""


class SettingsError(TerminalError):
    """A setting is wrong; the message names where it stands and the nearest valid value."""


class OptionError(SettingsError):
    """An option of a wire format is unknown or has a value that it does not take.

    ``path`` is the option's name; options of a format inside another come after the name that holds them.
    """

    def __init__(self, message: str, *path: str) -> None:
        super().__init__(message, *path)
        self.path = path

    def __str__(self) -> str:
        return str(self.args[0])


class SourceError(TerminalError):
    """The server refuses the login or a right, or cannot be read as it is set up."""


class NoSuchTableError(SourceError):
    """A table or its database is not on the server any more."""


class BinlogGoneError(SourceError):
    """The binlog that is needed is not on the server: purged, renamed, reset or restored."""


class BinlogFormatError(TerminalError):
    """Bytes of a binlog that cannot be decoded; the message names their coordinates."""


class SchemaError(TerminalError):
    """A table's columns are unknown, or contradict what the binlog says of them."""


class TopicError(TerminalError):
    """A topic cannot be made, named or written as the pipeline wants it."""


class RegistryError(TerminalError):
    """The schema registry refuses the login, or what it is asked for."""


class CompatibilityError(RegistryError):
    """A schema does not go with those that its subject has; the message names the column and the rule."""


class BadRecordError(TerminalError):
    """A record that Kafka does not take, or a change that a transform fails on; the message names table, key and
    coordinates."""


class FollowerError(TerminalError):
    """A follower refuses a statement or the login; ``code`` is the server's, 0 where it is none of its errors."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class AccountingError(TerminalError):
    """The bytes or rows of a window do not add up; the checkpoint stays where it is."""


class CheckpointError(TerminalError):
    """A checkpoint that cannot be read, or may not be moved as asked."""


class StaleCheckpointError(CheckpointError):
    """The checkpoint is not where this run read it any more: another run moved it."""


class RetryableError(ChangefeedError):
    """The same call may succeed later."""


class SourceUnavailableError(RetryableError):
    """The server cannot be reached, or the connection to it was lost."""


class SparkUnavailableError(RetryableError):
    """The Spark Connect server cannot be reached."""


class SparkFailedError(RetryableError):
    """A Spark job failed, or lost what it had decoded."""


class RegistryUnavailableError(RetryableError):
    """The schema registry cannot be reached, or does not answer."""


class FollowerUnavailableError(RetryableError):
    """The follower cannot be reached, or has no lock to give."""


class BrokerUnavailableError(RetryableError):
    """Kafka cannot be reached, or refused for now."""


class StateStoreUnavailableError(RetryableError):
    """The database that keeps the checkpoints cannot be read or written."""


class FencedError(RetryableError):
    """A newer attempt of the same pipeline took over this one's transactional id."""


class PipelineBusyError(RetryableError):
    """Another run of this pipeline is under way."""


def did_you_mean(word: str, known: Collection[str]) -> str:
    """The end of a message about an unknown ``word``: ` (did you mean 'NEAREST'?)`, or nothing where none is near."""
    near = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
