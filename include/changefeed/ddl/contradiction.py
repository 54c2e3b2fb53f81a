"""A change that contradicts what is known of its table."""

from __future__ import annotations


class ContradictionError(Exception):
    """A change that this table cannot have had: a column it names is not there. Never leaves this room."""
