"""Waits in Airflow's triggerer for the end of an application on YARN, while its task holds no worker slot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import requests
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.triggers.base import BaseTrigger, TriggerEvent

POLL_SECONDS = 5.0
ANSWER_SECONDS = 600.0
"""How long YARN may not answer, or the triggerer not ask, for want of a connection or a Kerberos ticket."""
KILL_SECONDS = 20.0
"""How long the kill of an application is repeated. Airflow ends `on_kill` after 30 seconds."""
ENDED_STATES = {"FINISHED", "FAILED", "KILLED"}
_NO_ANSWER = (AirflowException, requests.RequestException, ValueError, KeyError, RuntimeError)


class ApplicationTrigger(BaseTrigger):
    """Fires when the application has ended, or YARN has not known it for ``lost_seconds``, or has not answered for
    ANSWER_SECONDS.

    The event says only whether YARN knows it (`is_known`). Airflow stores the arguments in its database: ``connection``
    is the id of the Spark connection with YARN's address.
    """

    def __init__(self, pipeline: str, application: str, connection: str, lost_seconds: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow declares no types here
        self.pipeline, self.application, self.connection = pipeline, application, connection
        self.lost_seconds = lost_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and its arguments."""
        names = ("pipeline", "application", "connection", "lost_seconds")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Ask YARN every POLL_SECONDS."""
        last_known = last_answer = time.monotonic()
        while True:
            state = None
            try:
                state = await asyncio.to_thread(self._read_state)
                last_answer = time.monotonic()
            except _NO_ANSWER as error:
                self.log.warning("waiting for YARN, which should report on %s: %s", self.application, error)
                last_known = time.monotonic()  # it may know the application when it answers again
                if last_known - last_answer > ANSWER_SECONDS:
                    break
            else:
                if state in ENDED_STATES:
                    break
                if state is not None:
                    last_known = time.monotonic()
                elif time.monotonic() - last_known > self.lost_seconds:
                    break
            await asyncio.sleep(POLL_SECONDS)
        yield TriggerEvent({"is_known": state is not None})  # type: ignore[no-untyped-call]

    async def on_kill(self) -> None:
        """End the application, on *mark failed*, *mark success* and *clear*.

        Airflow calls it also when another triggerer took over, because this one was suspended: the task is still
        deferred, and the application continues.
        """
        if await asyncio.to_thread(self._is_deferred):
            self.log.info("the task is still deferred, so application %s continues", self.application)
        else:
            await asyncio.to_thread(self._kill)

    def _kill(self) -> None:
        """Ask YARN to kill the application, until it has ended or KILL_SECONDS are over."""
        deadline = time.monotonic() + KILL_SECONDS
        while True:
            with suppress(*_NO_ANSWER):
                self._hook()._kill_yarn_application(self.application)
                if self._read_state() in {*ENDED_STATES, None}:
                    return
            if time.monotonic() > deadline:
                self.log.error("application %s was asked to end and has not: kill it in YARN", self.application)
                return
            time.sleep(1)

    def _hook(self) -> SparkSubmitHook:
        return SparkSubmitHook(conn_id=self.connection, deploy_mode="cluster")

    def _read_state(self) -> str | None:
        """YARN's state of the application; None if it does not know it."""
        hook = self._hook()
        url = f"{hook._get_yarn_rm_base_url()}/ws/v1/cluster/apps/{self.application}/state"
        answer = requests.get(url, auth=hook._resolved_yarn_rm_auth, timeout=hook._HTTP_TIMEOUT)
        if answer.status_code == requests.codes.not_found:
            return None
        answer.raise_for_status()
        return str(answer.json()["state"])

    def _is_deferred(self) -> bool:
        ti: Any = self.task_instance
        states = RuntimeTaskInstance.get_task_states(
            dag_id=ti.dag_id, run_ids=[ti.run_id], task_ids=[ti.task_id], map_index=ti.map_index
        )
        return bool(states.get(ti.run_id, {}).get(ti.task_id) == "deferred")
