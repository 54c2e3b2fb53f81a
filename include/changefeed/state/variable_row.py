"""Reads Airflow's Variables without Airflow, whose import alone costs 2 CPU seconds."""

from __future__ import annotations

import os
import re
from pathlib import Path

from sqlalchemy import column, create_engine, select, table
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

_DATABASE = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
_KEYS = "AIRFLOW__CORE__FERNET_KEY"
_HOW_TO_CONNECT = ("AIRFLOW__DATABASE__SQL_ALCHEMY_SCHEMA", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS")
_HOW_TO_CONNECT_IN_FILE = re.compile(
    r"^[ \t]*sql_alchemy_(schema|connect_args)\w*[ \t]*[=:][ \t]*(\S|\n[ \t]+\S)", re.MULTILINE
)
_VARIABLE = table("variable", column("key"), column("val"), column("is_encrypted"))


class AirflowNeededError(Exception):
    """Only Airflow can read the Variable, or say why it cannot be read."""


def read_variable(key: str) -> str | None:
    """The value of a Variable in Airflow's database; None if there is no such Variable.

    Environment variables must have the database's URL and, for an encrypted Variable, the key. Raises
    AirflowNeededError if they do not, or for any failure: then Airflow reads it, or reports the failure.
    """
    try:
        engine = create_engine(_database_url(), poolclass=NullPool)
        with engine.connect() as connection:
            query = select(_VARIABLE.c.val, _VARIABLE.c.is_encrypted).where(_VARIABLE.c.key == key)
            row = connection.execute(query).first()
    except (SQLAlchemyError, ImportError) as error:
        raise AirflowNeededError from error
    if row is None:
        return None
    value, is_encrypted = row
    if value is None:
        raise AirflowNeededError
    return _decrypt(value) if is_encrypted else str(value)


def _database_url() -> str:
    """The URL of Airflow's database, if the environment has it as Airflow would use it."""
    url = os.environ.get(_DATABASE, "")
    expanded = "$" in url or "~" in url  # by Airflow
    relative = url.startswith("sqlite") and not url.startswith("sqlite:////")
    if not url or expanded or relative or _sets_more_for_connecting():
        raise AirflowNeededError
    return url


def _sets_more_for_connecting() -> bool:
    """Whether the environment or airflow.cfg has more settings of the connection than its URL."""
    if any(name.startswith(_HOW_TO_CONNECT) and value for name, value in os.environ.items()):
        return True
    home = Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser()
    file = Path(os.environ.get("AIRFLOW_CONFIG", home / "airflow.cfg")).expanduser()
    try:
        return bool(_HOW_TO_CONNECT_IN_FILE.search(file.read_text()))
    except FileNotFoundError:
        return False
    except (OSError, UnicodeDecodeError) as error:
        raise AirflowNeededError from error


def _decrypt(value: str) -> str:
    from cryptography.fernet import Fernet, InvalidToken, MultiFernet

    try:
        keys = [Fernet(key) for key in os.environ[_KEYS].split(",")]
        return MultiFernet(keys).decrypt(value).decode()
    except (KeyError, ValueError, InvalidToken) as error:
        raise AirflowNeededError from error
