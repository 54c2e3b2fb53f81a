"""Text of a pipeline's settings in Markdown, which Airflow shows of a DAG to whoever may see it."""

from __future__ import annotations

import re


def code(text: str) -> str:
    """``text`` as it is, in one line, as code: nothing in it is Markdown, so no image is loaded and no link shown."""
    line = " ".join(text.split())
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {line} {fence}" if longest or not line else f"{fence}{line}{fence}"
