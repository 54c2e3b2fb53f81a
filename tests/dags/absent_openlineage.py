"""Hides Airflow's OpenLineage provider, as if it were not installed; to import before Airflow."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Iterator
from importlib.abc import MetaPathFinder
from typing import Any

import importlib_metadata


class _Absent(MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:  # noqa: ARG002 - the interface
        if name.partition(".")[0] == "openlineage" or name.startswith("airflow.providers.openlineage"):
            raise ModuleNotFoundError(name)


def _without_openlineage(distributions: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    return lambda **chosen: (each for each in distributions(**chosen) if "openlineage" not in (each.name or ""))


sys.meta_path.insert(0, _Absent())
_modules: tuple[Any, ...] = (importlib.metadata, importlib_metadata)
for _module in _modules:
    _module.distributions = _without_openlineage(_module.distributions)
