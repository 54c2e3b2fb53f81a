"""The error for a change that contradicts the known schema of its table."""

from __future__ import annotations


class ContradictionError(Exception):
    """A change that is impossible for its table, such as a change of a missing column. Only this room catches it."""
