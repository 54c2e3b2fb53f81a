"""Checkpoints in a table of a database with an SQLAlchemy dialect."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    delete,
    event,
    insert,
    select,
    update,
)
from sqlalchemy.dialects.mysql import LONGTEXT
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, OperationalError, SQLAlchemyError
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_fixed

from changefeed.errors import CheckpointError, SettingsError, StateStoreUnavailableError
from changefeed.model import fault_point
from changefeed.model.checkpoint import Checkpoint, check_forward, stale
from changefeed.model.connection import check_values, options_of
from changefeed.model.password_source import PasswordSource
from changefeed.model.tls import is_pem
from changefeed.source.mysql.login import PASSWORD_PLUGINS

_METADATA = MetaData()
_CHECKPOINTS = Table(
    "changefeed_checkpoint",
    _METADATA,
    Column("pipeline", String(64), primary_key=True),
    Column("window", BigInteger, nullable=False),
    Column("checkpoint", Text, nullable=False),
)
_SCHEMAS = Table(
    "changefeed_schemas",
    _METADATA,
    Column("pipeline", String(64), primary_key=True),
    Column("schemas", Text().with_variant(LONGTEXT(), "mysql", "mariadb"), nullable=False),
)


def _is_misread(url: URL) -> bool:
    """Whether the URL was split at an @ in the password, so that the host contains a part of the password."""
    beside = (url.host or "", "" if url.drivername.startswith("sqlite") else url.database or "")
    path = str(url.password or "").partition("/")[2]
    return any("@" in part for part in beside) or "=" in path.partition("?")[2]


def _refuse_pem_text(url: URL) -> None:
    if texts := [name for name, value in url.query.items() if is_pem(str(value))]:
        raise SettingsError(
            f"option {texts[0]!r} of the state table's connection is PEM text, and database drivers read certificates "
            "and keys from files only: give the path of a file on each machine on which tasks run"
        )


def _connect_args(url: URL) -> dict[str, Any]:
    """Connection arguments for the URL's driver: timeouts if it has no default ones, and for MySQL no password in clear
    text.

    The timeouts keep a silent database from blocking a run or a page.
    """
    by_driver: dict[str, dict[str, Any]] = {
        "pymysql": {"connect_timeout": 10, "read_timeout": 60, "auth_plugin_map": PASSWORD_PLUGINS},
        "psycopg2": {"connect_timeout": 10},
        "psycopg": {"connect_timeout": 10},
    }
    arguments = by_driver.get(url.get_driver_name(), {})
    return {name: value for name, value in arguments.items() if name not in url.query}


def _renew_password(engine: Engine, url: URL, source: PasswordSource) -> None:
    """Let each login of ``engine`` get its password from ``source``."""

    @event.listens_for(engine, "do_connect")
    def set_password(_dialect: object, _record: object, _arguments: object, options: dict[str, Any]) -> None:
        options["password"] = source.password(url.host or "", url.port or 0, url.username or "")


class TableCheckpointStore:
    """A `CheckpointStore` with a true compare-and-set: one UPDATE whose WHERE has the expected checkpoint.

    The table `changefeed_checkpoint` is created if it is missing. ``password_source`` returns the password of each
    login in place of the URL's. Raises SettingsError for a URL that SQLAlchemy does not support,
    StateStoreUnavailableError if the database does not answer, and what `PasswordSource.password` raises.
    """

    def __init__(self, url: str, password_source: PasswordSource | None = None) -> None:
        try:
            parsed = make_url(url)
            if _is_misread(parsed):
                raise ValueError
            check_values(options_of(url.rpartition("@")[2].partition("?")[2]), "the state table's connection")
            _refuse_pem_text(parsed)
            self._database = parsed.set(query={}).render_as_string(hide_password=True)
            self._engine = create_engine(parsed, pool_pre_ping=True, connect_args=_connect_args(parsed))
        except (ArgumentError, ModuleNotFoundError, ValueError, TypeError) as error:
            raise SettingsError(
                f"SQLAlchemy does not support the database of the state table's connection: {type(error).__name__}. "
                "Expected a URL such as postgresql+psycopg://user:password@host/database, with its driver installed, "
                "and with the characters / ? # @ : % of a password written as % and two digits."
            ) from None
        if password_source is not None:
            _renew_password(self._engine, parsed, password_source)
        self._create()

    @retry(
        retry=retry_if_exception_type(OperationalError), stop=stop_after_attempt(2), wait=wait_fixed(0.2), reraise=True
    )
    def _create_once(self) -> None:
        _METADATA.create_all(self._engine)

    def _create(self) -> None:
        try:
            self._create_once()  # if two processes create it at the same time, the second attempt finds it
        except SQLAlchemyError as error:
            raise self._unavailable(error) from error

    def load(self, pipeline: str) -> Checkpoint | None:
        try:
            with self._engine.connect() as connection:
                text = connection.execute(
                    select(_CHECKPOINTS.c.checkpoint).where(_CHECKPOINTS.c.pipeline == pipeline)
                ).scalar()
        except SQLAlchemyError as error:
            raise self._unavailable(error) from error
        return None if text is None else Checkpoint.from_text(text)

    def advance(self, expected: Checkpoint | None, new: Checkpoint) -> None:
        check_forward(expected, new)
        self.replace(expected, new)

    def replace(self, expected: Checkpoint | None, new: Checkpoint) -> None:
        fault_point.reach("before_checkpoint_write")
        try:
            stored = self._insert(new) if expected is None else self._update(expected, new)
        except OperationalError as error:
            raise self._unavailable(error) from error
        except SQLAlchemyError as error:
            raise CheckpointError(f"{self._database} refused the checkpoint of {new.pipeline!r}: {error}") from error
        if not stored:
            raise stale(new.pipeline, expected, self.load(new.pipeline))

    def pipelines(self) -> list[str]:
        try:
            with self._engine.connect() as connection:
                return sorted(connection.execute(select(_CHECKPOINTS.c.pipeline)).scalars())
        except SQLAlchemyError as error:
            raise self._unavailable(error) from error

    def remove(self, pipeline: str, expected: Checkpoint | None) -> None:
        is_expected = _CHECKPOINTS.c.checkpoint == (expected.to_text() if expected else None)
        others = select(_CHECKPOINTS.c.pipeline).where(_CHECKPOINTS.c.pipeline == pipeline)
        try:
            with self._engine.begin() as connection:
                connection.execute(delete(_CHECKPOINTS).where(_CHECKPOINTS.c.pipeline == pipeline, is_expected))
                connection.execute(delete(_SCHEMAS).where(_SCHEMAS.c.pipeline == pipeline, ~others.exists()))
        except SQLAlchemyError as error:
            raise self._unavailable(error) from error
        if (stored := self.load(pipeline)) is not None:
            raise stale(pipeline, expected, stored)

    def load_schemas(self, pipeline: str) -> str | None:
        try:
            with self._engine.connect() as connection:
                query = select(_SCHEMAS.c.schemas).where(_SCHEMAS.c.pipeline == pipeline)
                return connection.execute(query).scalar()
        except SQLAlchemyError as error:
            raise self._unavailable(error) from error

    def save_schemas(self, pipeline: str, text: str) -> None:
        try:
            with self._engine.begin() as connection:
                connection.execute(delete(_SCHEMAS).where(_SCHEMAS.c.pipeline == pipeline))
                connection.execute(insert(_SCHEMAS).values(pipeline=pipeline, schemas=text))
        except SQLAlchemyError as error:
            raise self._unavailable(error) from error

    def _insert(self, new: Checkpoint) -> bool:
        row = {"pipeline": new.pipeline, "window": new.window, "checkpoint": new.to_text()}
        try:
            with self._engine.begin() as connection:
                connection.execute(insert(_CHECKPOINTS).values(row))
        except IntegrityError:
            return False
        return True

    def _update(self, expected: Checkpoint, new: Checkpoint) -> bool:
        statement = (
            update(_CHECKPOINTS)
            .where(_CHECKPOINTS.c.pipeline == expected.pipeline, _CHECKPOINTS.c.checkpoint == expected.to_text())
            .values(window=new.window, checkpoint=new.to_text())
        )
        with self._engine.begin() as connection:
            updated = connection.execute(statement).rowcount == 1
            fault_point.reach("in_checkpoint_write")
            return updated

    def _unavailable(self, error: Exception) -> StateStoreUnavailableError:
        return StateStoreUnavailableError(
            f"the state table in {self._database} cannot be used: {str(error).splitlines()[0]}. Nothing was stored; "
            "the run can be tried again when the database answers."
        )
