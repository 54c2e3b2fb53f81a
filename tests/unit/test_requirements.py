"""The lock files of the demo have what it runs on, in the versions of requirements.lock."""

from __future__ import annotations

import re
from pathlib import Path

PROJECT = Path(__file__).parents[2]
HEADING = "# --- development and tests"


def pins(text: str) -> dict[str, str]:
    """Versions by package, with names as PyPI normalizes them."""
    found = re.findall(r"^([\w.-]+)(?:\[\w+\])?==([^\s;]+)", text, re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


def test_demo_locks_have_the_first_part_of_the_requirements_and_no_tools_of_tests() -> None:
    first, heading, rest = (PROJECT / "requirements.txt").read_text().partition(HEADING)
    assert heading
    demo, spark = (pins((PROJECT / f"requirements-{part}.lock").read_text()) for part in ("demo", "spark"))
    assert spark.keys() == {"pyspark", "pyspark-client"}, "make demo installs them while it fetches the servers"
    assert not spark.keys() & demo.keys()
    demo |= spark
    assert pins(first).items() <= demo.items()
    assert demo.items() <= pins((PROJECT / "requirements.lock").read_text()).items()
    assert {"pytest", "mypy", "ruff", "mkdocs-material", "selenium"} <= pins(rest).keys() - demo.keys()
