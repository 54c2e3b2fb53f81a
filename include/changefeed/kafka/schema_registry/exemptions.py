"""Registers schemas that a subject's compatibility level refuses, by setting the level to NONE during the registration.

Before a task changes a level, it registers an entry with the subject's level; after it has restored the level, it
registers a second entry, which closes the first. An entry is a schema without fields, under a subject of the pipeline's
own; its `doc` has the content of the entry. So entries need no feature and no right but the registration of schemas.

If a task dies while the level is NONE, its entry stays open, and the next window restores the level. Any number of
tasks may do this at the same time: each sets NONE and restores the level itself. If another task restores the level in
between, the registry refuses the schema, and the task begins again.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import orjson

from changefeed.errors import CompatibilityError, RegistryError
from changefeed.kafka.schema_registry.client import LEVELS, NO_LEVEL, Registry

_log = logging.getLogger(__name__)

_TRIES = 8
_PAUSE_SECONDS = 0.2
_REGISTRATION_SECONDS = 10.0
"""Age of an open entry, in seconds, after which its process counts as dead."""


@dataclass(frozen=True)
class _Entry:
    """An entry for ``subject`` with its own compatibility ``level`` before the change; None if it had the default."""

    id: str
    subject: str
    level: str | None

    @property
    def opening(self) -> str:
        """The schema that opens the entry."""
        return _schema({"id": self.id, "subject": self.subject, "level": self.level})

    @property
    def closing(self) -> str:
        """The schema that closes the entry."""
        return _schema({"id": self.id, "closed": True})


@dataclass(frozen=True)
class Exemptions:
    """Registers schemas without compatibility checks in ``registry``; the subject ``log`` has the entries.

    All methods raise the errors of `Registry`.
    """

    registry: Registry
    log: str

    def register(self, subject: str, schema: str) -> int:
        """The id of ``schema``, registered as the next version of ``subject``; the subject's level is restored.

        Raises CompatibilityError if the registry does not allow a change of the level.
        """
        for number in range(1, _TRIES + 1):
            level = self.registry.own_level(subject)
            try:
                if level == NO_LEVEL and number < _TRIES:  # another task is registering a schema
                    return self.registry.register(subject, schema)
                with self._without_level(subject, None if level == NO_LEVEL else level):
                    return self.registry.register(subject, schema)
            except _RefusedError as error:
                raise CompatibilityError(str(error)) from None
            except CompatibilityError as error:
                refused = error
            time.sleep(_PAUSE_SECONDS)
        raise refused

    def restore_levels(self, wait_seconds: float = _REGISTRATION_SECONDS) -> None:
        """Restore the levels that dead processes left at NONE.

        It waits up to ``wait_seconds`` for a live process to close an open entry.
        """
        until = time.monotonic() + wait_seconds
        while (left := self._open_entries()) and time.monotonic() < until:
            time.sleep(_PAUSE_SECONDS)
        for entry in left:
            if self.registry.own_level(entry.subject) == NO_LEVEL:
                _log.warning(
                    "put the compatibility of subject %r back to %s: a run that died left it at %s",
                    entry.subject,
                    entry.level or "the registry's default",
                    NO_LEVEL,
                )
                self._set_back(entry)
            self._close(entry)

    @contextmanager
    def _without_level(self, subject: str, level: str | None) -> Iterator[None]:
        """Set the level of ``subject`` to NONE in the block, and to ``level`` afterwards."""
        entry = _Entry(uuid.uuid4().hex, subject, level)
        self.registry.register(self.log, entry.opening)
        try:
            self.registry.set_level(subject, NO_LEVEL)
        except RegistryError as error:
            self._close(entry)
            raise _RefusedError(self._may_not(subject, str(error))) from None
        try:
            yield
        finally:
            self._set_back(entry)
            self._close(entry)

    def _set_back(self, entry: _Entry) -> None:
        try:
            if entry.level is None:
                self.registry.delete_level(entry.subject)
            else:
                self.registry.set_level(entry.subject, entry.level)
        except RegistryError as error:
            by_hand = "DELETE" if entry.level is None else f"PUT {entry.level} to"
            raise RegistryError(
                f"the compatibility of subject {entry.subject!r} in the schema registry at {self.registry.connection} "
                f"is {NO_LEVEL} and cannot be put back: {error}. Put it back by hand ({by_hand} "
                f"/config/{entry.subject}); the next run goes on then."
            ) from None

    def _close(self, entry: _Entry) -> None:
        self.registry.register(self.log, entry.closing)

    def _may_not(self, subject: str, why: str) -> str:
        return (
            f"`on_incompatible: register` of the format sets the compatibility of subject {subject!r} to {NO_LEVEL} "
            f"while it registers this schema, and the registry does not let it: {why}. Give the account the right to "
            f"write /config/{subject} (PUT and DELETE)"
        )

    def _open_entries(self) -> list[_Entry]:
        found: dict[str, _Entry] = {}
        for schema in self.registry.schemas(self.log, latest=False):
            match _entry_of(schema):
                case {"id": str(id), "closed": True}:
                    found.pop(id, None)
                case {"id": str(id), "subject": str(subject), "level": level} if level is None or level in LEVELS:
                    found[id] = _Entry(id, subject, level)
        return list(found.values())


class _RefusedError(CompatibilityError):
    """The account may not change the level."""


def _schema(entry: dict[str, object]) -> str:
    """The schema of an entry; entries with the same name are compatible at every level."""
    doc = orjson.dumps(entry).decode()
    return orjson.dumps(
        {"type": "record", "name": "Compatibility", "namespace": "changefeed", "doc": doc, "fields": []}
    ).decode()


def _entry_of(schema: str) -> object:
    try:
        return orjson.loads(orjson.loads(schema)["doc"])
    except (ValueError, KeyError, TypeError):
        return None
