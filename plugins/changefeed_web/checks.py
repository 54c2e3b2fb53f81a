"""REST routes that check a pipeline's YAML before it is saved, as `changefeed check` does for a saved one."""

import asyncio
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any, TypeVar

from fastapi import APIRouter, HTTPException
from fastapi.concurrency import run_in_threadpool

from changefeed.airflow.connections import server_lookup
from changefeed.airflow.ingest_dag import ingest_dag_id
from changefeed.errors import ChangefeedError
from changefeed.operations.finding import Finding, Report, fail, ok, warn
from changefeed.settings.file import pipelines_folder
from changefeed.settings.folder import NoSuchPipelineError, PipelineChangedError, PipelineFolder
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.site import load_site
from changefeed_web import position, slots
from changefeed_web.access import GetUserDep, has_permission, may_read_logs, require_permission
from changefeed_web.bodies import PipelineBody
from changefeed_web.pipelines import all_pipelines, not_in_folder, rules_of

router = APIRouter(tags=["pipelines"])

CHECK_SECONDS = 30.0
"""How long a request waits for the servers. A check that takes longer ends after its current part."""

_Result = TypeVar("_Result")

_threads = ThreadPoolExecutor(slots.CHECKS, "changefeed-check")


@router.post("/pipelines/check")
async def check_new_pipeline(body: PipelineBody, user: GetUserDep) -> dict[str, Any]:
    """Check the YAML of a new pipeline as `changefeed check` does. Nothing is written.

    It requires the rights, and refuses the settings, that creating the pipeline would. ``lines`` are the findings in
    order, each with its ``level`` (OK, WARN or FAIL); ``complete`` is false if servers did not answer in time.
    Functions of `transforms` and notifiers are not loaded, and only pipelines that you may see are compared.
    """
    async with slots.writing():
        pipeline = await run_in_threadpool(lambda: _new(body.yaml, user))
    return await _check(pipeline, user)


@router.post("/pipelines/{name}/check")
async def check_changed_pipeline(name: str, body: PipelineBody, user: GetUserDep) -> dict[str, Any]:
    """Check a change of a pipeline's YAML as `changefeed check` does. Nothing is written.

    It requires the rights, and refuses the settings, that changing the pipeline would. The answer is that of
    `POST /pipelines/check`.
    """
    async with slots.writing():
        pipeline = await run_in_threadpool(lambda: _changed(name, body.yaml, user))
    return await _check(pipeline, user)


def _new(text: str, user: Any) -> Pipeline:
    """The pipeline of ``text``, if ``user`` may create it. All that creating it refuses is refused."""
    require_permission(user, "POST", "*", dag_id="changefeed_ingest__*")
    try:
        pipeline = PipelineFolder(pipelines_folder()).check_create(text, rules_of(user))
    except PipelineChangedError as error:
        raise HTTPException(409, str(error)) from None
    require_permission(user, "GET", pipeline.name)
    return pipeline


def _changed(name: str, text: str, user: Any) -> Pipeline:
    """The pipeline of ``text``, if ``user`` may change pipeline ``name`` to it. All that changing it refuses is
    refused."""
    require_permission(user, "PUT", name)
    require_permission(user, "GET", name)
    try:
        return PipelineFolder(pipelines_folder()).check_change(name, text, rules_of(user))
    except NoSuchPipelineError as error:
        raise not_in_folder(name, error) from None


async def run_bounded(work: Callable[[], _Result]) -> Future[_Result]:
    """Run ``work`` in a thread of checks, and wait until it is done, at most `CHECK_SECONDS`."""
    started = _threads.submit(work)
    waiting = asyncio.wrap_future(started)
    await asyncio.wait([waiting], timeout=CHECK_SECONDS)
    if waiting.done():
        waiting.exception()  # the caller gets it from ``started``; else asyncio would log it
    return started


async def _check(pipeline: Pipeline, user: Any) -> dict[str, Any]:
    report, stop = Report(pipeline.name), threading.Event()

    def collect() -> None:
        with closing(_findings(pipeline, user)) as findings:
            for finding in findings:
                if stop.is_set():
                    return
                report.add(finding)

    async with slots.checking(pipeline.source.connection):
        work = await run_bounded(collect)
    stop.set()
    complete = work.done()
    if complete:
        work.result()
    else:
        work.cancel()
    seen = Report(pipeline.name, list(report.findings))
    if not complete:
        seen.add(warn(f"the servers did not answer within {CHECK_SECONDS:g} seconds: not all parts were checked"))
    return {**seen.to_json(), "complete": complete}


def _findings(pipeline: Pipeline, user: Any) -> Generator[Finding, None, None]:
    """Yield the findings that ``user`` may see: of the pipeline, and of other pipelines that the user may see."""
    from changefeed.operations.check import CheckScope, check
    from changefeed.operations.neighbours import Neighbours
    from changefeed_web.breaker import GuardedConnections

    others = {
        name: other for name, other in all_pipelines()[0].items() if has_permission(user, "GET", ingest_dag_id(name))
    }
    neighbours = Neighbours(others, server_lookup, lambda other, _: GuardedConnections.of(other))
    scope = CheckScope(import_functions=False, show_reasons=may_read_logs(user, ingest_dag_id(pipeline.name)))
    yield from check(GuardedConnections.of(pipeline), neighbours, lambda: position.store_of(pipeline), scope)
    yield from _notifiers(pipeline)


def _notifiers(pipeline: Pipeline) -> Iterator[Finding]:
    for settings in pipeline.alerts.notify:
        try:
            load_site().check_notifier(settings.notifier)
            yield ok(f"notifier {settings.notifier}: allowed")
        except ChangefeedError as error:
            yield fail(error)
