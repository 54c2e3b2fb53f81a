"""Compiles all kernels, or finds them compiled: `python -m changefeed.native`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from changefeed.native.compiled import kernel_sources

for module in kernel_sources(Path(__file__).parents[1]):
    import_module(f"changefeed.{module}")
