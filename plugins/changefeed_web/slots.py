"""Limits how many requests may query sources, Kafka and state databases, or write pipeline files, at the same time.

Such a request occupies a thread until the server answers, and all requests to Airflow share 40 threads. So the number
of such requests is limited, in total and by pipeline. Further requests wait a short time without a thread, then get
503.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Annotated

from fastapi import HTTPException, Query

from changefeed_web.access import GetUserDep
from changefeed_web.scrape import MetricsReaderDep

Live = Annotated[
    bool, Query(description="Whether to query sources and Kafka; if false, the answer has only Airflow's data.")
]

WAIT_SECONDS = 2.0
CHECKS = 4
"""The number of checks of pipelines that run at the same time in this process."""
RETRY_AFTER_SECONDS = 5


class Slots:
    """``total`` slots in this process, at most ``each`` of them for one key. Only one event loop may use them."""

    def __init__(self, total: int, each: int) -> None:
        self._total, self._each = total, each
        self._held: Counter[str] = Counter()

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[None]:
        """Hold a slot inside the block. Answers 503 if none is free after `WAIT_SECONDS`."""
        end = time.monotonic() + WAIT_SECONDS
        while self._held.total() >= self._total or self._held[key] >= self._each:
            if time.monotonic() > end:
                raise HTTPException(
                    503,
                    f"too many requests wait for the servers of {key or 'the pipelines'}: a server may not answer. "
                    f"Try again in {RETRY_AFTER_SECONDS} seconds",
                    {"Retry-After": str(RETRY_AFTER_SECONDS)},
                )
            await asyncio.sleep(0.02)
        self._held[key] += 1
        try:
            yield
        finally:
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]  # keys come from requests, so their number is unlimited


_looks, _plans, _surveys, _writes, _checks = Slots(12, 4), Slots(6, 2), Slots(2, 2), Slots(4, 4), Slots(CHECKS, 2)


async def look(name: str, _: GetUserDep) -> AsyncIterator[None]:
    """Hold a slot for a request that reads one pipeline."""
    async with _looks.hold(name):
        yield


async def plan(name: str, _: GetUserDep) -> AsyncIterator[None]:
    """Hold a slot for a request that plans an action, which takes longer."""
    async with _plans.hold(name):
        yield


def looking(name: str) -> AbstractAsyncContextManager[None]:
    """As `look`, for a part of a request."""
    return _looks.hold(name)


def checking(source: str) -> AbstractAsyncContextManager[None]:
    """Holds a slot for the part of a request that checks a pipeline of the connection ``source``."""
    return _checks.hold(source)


def writing() -> AbstractAsyncContextManager[None]:
    """Holds a slot for the part of a request that checks and writes a pipeline's file."""
    return _writes.hold("")


async def write(_: GetUserDep) -> AsyncIterator[None]:
    """As `writing`, for a complete request."""
    async with writing():
        yield


async def survey(_: GetUserDep) -> AsyncIterator[None]:
    """Hold a slot for a request that reads all pipelines."""
    async with _surveys.hold(""):
        yield


async def scrape(_: MetricsReaderDep) -> AsyncIterator[None]:
    """As `survey`, for the metrics."""
    async with _surveys.hold(""):
        yield


async def survey_if_live(_: GetUserDep, live: Live = True) -> AsyncIterator[None]:
    """Hold a slot for a request that reads all pipelines, if ``live``."""
    async with _surveys.hold("") if live else nullcontext():
        yield
