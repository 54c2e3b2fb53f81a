"""How long a run under way may take still."""

from __future__ import annotations

from typing import Any

import pytest

from changefeed_web.history import _seconds_left


def sealed(number: int, frozen_at_ms: int, sealed_at_ms: int) -> dict[str, Any]:
    return {"window": {"number": number, "frozen_at_ms": frozen_at_ms}, "sealed_at_ms": sealed_at_ms}


@pytest.mark.parametrize(
    ("numbers", "planned", "seconds"),
    [([], [1, 2], None), ([1], None, None), ([1], [1, 2, 3], 20.0), ([1, 2], [1, 2, 3], 10.0), ([1, 2], [1, 2], 0.0)],
)
def test_rest_takes_as_long_for_each_window_as_the_sealed_ones(
    numbers: list[int], planned: list[int] | None, seconds: float | None
) -> None:
    assert _seconds_left([sealed(number, 5000, 5000 + number * 10_000) for number in numbers], planned) == seconds
