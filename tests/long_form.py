"""Cases that only `make test-long` runs: others of the same test are in `make test-all`."""

from __future__ import annotations

from typing import Any

import pytest


def long(*cases: Any) -> list[Any]:
    """Parameters for `pytest.mark.parametrize` that belong to the long form; a tuple is a case of several arguments."""
    marks = [pytest.mark.extended, pytest.mark.long]
    return [pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=marks) for case in cases]
