"""How many requests may ask sources, Kafka and state databases at once, or write pipelines' files.

Such a request holds a thread while a server keeps silent, and all of Airflow's requests share 40 threads. So only some
hold one at a time, the same pipeline's fewer still; the others wait for a moment without one, and are then told to come
again.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Annotated

from fastapi import HTTPException, Query

from changefeed_web.access import GetUserDep

Live = Annotated[bool, Query(description="Ask the sources; without it, only what Airflow knows.")]

PATIENCE_SECONDS = 2.0
RETRY_AFTER_SECONDS = 5


class Slots:
    """``total`` in this process, ``each`` of them for one key. For one event loop."""

    def __init__(self, total: int, each: int) -> None:
        self._total, self._each = total, each
        self._taken: Counter[str] = Counter()

    @asynccontextmanager
    async def taken(self, key: str) -> AsyncIterator[None]:
        """Hold a slot inside the block; 503 where none is free in time."""
        end = time.monotonic() + PATIENCE_SECONDS
        while self._taken.total() >= self._total or self._taken[key] >= self._each:
            if time.monotonic() > end:
                raise HTTPException(
                    503,
                    f"too many requests wait for the servers of {key or 'the pipelines'} already: come again in a "
                    "moment. One of the servers may not answer.",
                    {"Retry-After": str(RETRY_AFTER_SECONDS)},
                )
            await asyncio.sleep(0.02)
        self._taken[key] += 1
        try:
            yield
        finally:
            self._taken[key] -= 1
            if not self._taken[key]:
                del self._taken[key]  # keys are words out of requests: of those there is no end


_looks, _plans, _surveys, _writes = Slots(12, 4), Slots(6, 2), Slots(2, 2), Slots(4, 4)


async def look(name: str, _: GetUserDep) -> AsyncIterator[None]:
    """For a request that looks at one pipeline."""
    async with _looks.taken(name):
        yield


async def plan(name: str, _: GetUserDep) -> AsyncIterator[None]:
    """For a request that plans, which takes longer."""
    async with _plans.taken(name):
        yield


async def write(_: GetUserDep) -> AsyncIterator[None]:
    """For one that writes a pipeline's file: the file is read with care first, and one is written at a time."""
    async with _writes.taken(""):
        yield


async def survey(_: GetUserDep) -> AsyncIterator[None]:
    """For a request that looks at all pipelines."""
    async with _surveys.taken(""):
        yield


async def survey_if_live(_: GetUserDep, live: Live = True) -> AsyncIterator[None]:
    """For one that does so only if asked to."""
    async with _surveys.taken("") if live else nullcontext():
        yield
