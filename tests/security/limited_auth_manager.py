"""Airflow's simple auth manager with users who have rights on some DAGs only."""

from __future__ import annotations

import json
import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

RIGHTS_VARIABLE = "LIMITED_RIGHTS"
"""Names a JSON file, user -> patterns of "METHOD ENTITY DAG": ["GET dag changefeed_ingest__shop", "* * *__shop"]."""


class LimitedAuthManager(SimpleAuthManager):
    """Users in the file of rights have only these rights on DAGs. All other permissions depend on the role."""

    def is_authorized_dag(
        self, *, method: Any, user: Any, access_entity: Any | None = None, details: Any | None = None
    ) -> bool:
        """Decide by the file of rights, which is read each time.

        A list of DAGs is allowed, because Airflow filters it.
        """
        limited: dict[str, list[str]] = json.loads(Path(os.environ[RIGHTS_VARIABLE]).read_text())
        if user.username not in limited:
            return super().is_authorized_dag(method=method, user=user, access_entity=access_entity, details=details)
        if details is None or details.id is None:
            return bool(method == "GET")
        asked = f"{method} {access_entity.value.lower() if access_entity else 'dag'} {details.id}"
        return any(fnmatchcase(asked, pattern) for pattern in limited[user.username])
