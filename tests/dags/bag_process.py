"""Parses the dags folder as Airflow does, without network and optional providers, and writes its content as JSON.

Arguments: the file to write, and optionally `calls` to count function calls, which doubles the time.
"""

from __future__ import annotations

import cProfile
import json
import logging
import pstats
import socket
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NoReturn

import absent_openlineage  # noqa: F401 - the provider is optional
import airflow.sdk  # Airflow's processor imports these before it parses
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization


def _refuse_network(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("a DAG file used the network while it was parsed")


def main() -> None:
    socket.socket.connect = socket.socket.connect_ex = _refuse_network  # type: ignore[method-assign]
    socket.getaddrinfo = _refuse_network
    logging.disable(logging.CRITICAL)
    before = set(sys.modules)
    profile = cProfile.Profile() if sys.argv[2:] == ["calls"] else nullcontext()
    with profile:
        bag = DagBag()
    contents = {
        "calls": pstats.Stats(profile).total_calls if isinstance(profile, cProfile.Profile) else None,  # type: ignore[attr-defined]
        "imported": sorted({name.partition(".")[0] for name in set(sys.modules) - before}),
        "import_errors": bag.import_errors,
        "dags": {dag_id: _describe(dag) for dag_id, dag in bag.dags.items()},
    }
    Path(sys.argv[1]).write_text(json.dumps(contents))


def _describe(dag: airflow.sdk.DAG) -> dict[str, Any]:
    return {
        "catchup": dag.catchup,
        "max_active_runs": dag.max_active_runs,
        "schedule": str(dag.schedule),
        "tags": sorted(dag.tags),
        "tasks": {
            task.task_id: {
                "operators": [cls.__name__ for cls in type(task).__mro__],
                "upstream": sorted(task.upstream_task_ids),
                "retries": task.retries,
                "retry_delay_seconds": task.retry_delay.total_seconds(),
                "owner": task.owner,
                "pool": task.pool,
            }
            for task in dag.tasks
        },
        "serialized": json.dumps(DagSerialization.to_dict(dag)),
    }


if __name__ == "__main__":
    main()
