"""Runs a DAG of the dags folder with `dag.test()`, in a process of its own.

Arguments: the DAG's id, and the number of a file descriptor to write results to. Standard input says what to do, a
line each: `run`, or `again TASK` to run a task of the last run once more, as a retry does. Results are lines of JSON:
the state of each task.
"""

from __future__ import annotations

import json
import os
import sys

from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.definitions.dag import _run_task  # what dag.test() itself runs a task with


def main() -> None:
    dag_id, results = sys.argv[1], os.fdopen(int(sys.argv[2]), "w")
    run = None
    for line in sys.stdin:
        dag = DagBag().dags[dag_id]  # parsed for each run, as in Airflow
        dag.deadline = None  # dag.test() cannot run a DAG with a deadline
        match line.split():
            case ["run"]:
                run = dag.test()
            case ["again", task_id]:
                assert run is not None
                instance = run.get_task_instance(task_id)
                instance.try_number += 1
                _run_task(ti=instance, task=dag.get_task(task_id))
        states = {instance.task_id: str(instance.state) for instance in run.get_task_instances()} if run else {}
        print(json.dumps(states), file=results, flush=True)


if __name__ == "__main__":
    main()
