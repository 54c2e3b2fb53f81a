"""Escapes a pipeline's settings for the Markdown documentation of its DAGs."""

from __future__ import annotations

import re


def code(text: str) -> str:
    """``text`` as a Markdown code span on one line.

    Nothing in it is rendered, so it can load no image and show no link.
    """
    line = " ".join(text.split())
    longest = max((len(run) for run in re.findall("`+", line)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {line} {fence}" if longest or not line else f"{fence}{line}{fence}"
