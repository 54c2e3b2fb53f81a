"""Runs a DAG of the dags folder with `dag.test()`, as a process that tests start.

Arguments: the DAG's id, and a file descriptor for results. Lines of standard input are commands: `run`, or `run CONF`
with the run's conf as JSON, or `again TASK` to repeat a task of the last run, like a retry. Results are lines of JSON
with the state of each task. `of DAG run` runs another DAG, which `again` then means.
"""

from __future__ import annotations

import json
import os
import sys

from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.definitions.dag import _run_task  # dag.test() runs tasks with it
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics import stats_utils


def main() -> None:
    dag_id, results = sys.argv[1], os.fdopen(int(sys.argv[2]), "w")
    run = None
    stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=False)  # as Airflow's task runner
    for line in map(str.strip, sys.stdin):
        if line.startswith("of "):
            _, dag_id, line = line.split(maxsplit=2)
        dag = DagBag().dags[dag_id]  # parsed before each run, as in Airflow
        dag.deadline = None  # dag.test() cannot run a DAG with a deadline
        match line.split(maxsplit=1):
            case ["run", *conf]:
                run = dag.test(run_conf=json.loads(conf[0]) if conf else None)
            case ["again", task_id]:
                assert run is not None
                instance = run.get_task_instance(task_id)
                instance.try_number += 1
                _run_task(ti=instance, task=dag.get_task(task_id))
        states = {instance.task_id: str(instance.state) for instance in run.get_task_instances()} if run else {}
        print(json.dumps(states), file=results, flush=True)


if __name__ == "__main__":
    main()
