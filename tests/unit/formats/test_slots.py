"""How many requests may wait for servers at once."""

from __future__ import annotations

import asyncio

import pytest
from fastapi import HTTPException

from changefeed_web import slots


def held(asked: list[str], *, total: int, each: int) -> list[str]:
    """Who of those that ask all at once, and leave only when the last was answered, got a slot."""

    async def all_at_once() -> list[str]:
        offered, answered, left = slots.Slots(total, each), asyncio.Semaphore(0), asyncio.Event()
        hold: list[str] = []
        refusals: list[HTTPException] = []

        async def ask(key: str) -> None:
            try:
                async with offered.hold(key):
                    hold.append(key)
                    answered.release()
                    await left.wait()
            except HTTPException as error:
                refusals.append(error)
                answered.release()

        asking = [asyncio.create_task(ask(key)) for key in asked]
        for _ in asked:
            await answered.acquire()
        left.set()
        await asyncio.gather(*asking)
        assert len(hold) + len(refusals) == len(asked)
        assert {error.status_code for error in refusals} == {503}
        assert all(int(error.headers["Retry-After"]) > 0 for error in refusals if error.headers)
        async with offered.hold(asked[0]):  # all were given back
            return hold

    return asyncio.run(all_at_once())


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "WAIT_SECONDS", 0.05)


def test_one_pipeline_has_no_more_than_its_share() -> None:
    assert held(["a"] * 9 + ["b"], total=6, each=2) == ["a", "a", "b"]


def test_all_together_have_no_more_than_the_total() -> None:
    assert held(["a", "b", "c", "d", "e"], total=3, each=2) == ["a", "b", "c"]


def test_who_waits_gets_the_slot_that_another_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "WAIT_SECONDS", 60)

    async def one_by_one() -> int:
        offered, done = slots.Slots(1, 1), 0

        async def ask() -> None:
            nonlocal done
            async with offered.hold("a"):
                await asyncio.sleep(0)
                done += 1

        await asyncio.gather(*(ask() for _ in range(5)))
        return done

    assert asyncio.run(one_by_one()) == 5


def test_keys_that_nobody_holds_are_forgotten() -> None:
    """They are names out of requests, also of pipelines that there are not."""

    async def hold() -> int:
        offered = slots.Slots(1, 1)
        for number in range(3):
            async with offered.hold(f"{number}"):
                pass
        return len(offered._held)

    assert asyncio.run(hold()) == 0
