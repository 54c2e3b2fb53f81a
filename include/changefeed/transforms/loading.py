"""Loads transforms from their source text, so that a worker needs no file and runs the text that was checked."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from changefeed.errors import SettingsError
from changefeed.settings.transform_settings import TransformCall
from changefeed.settings.transform_source import BATCH_FUNCTION, TransformSource, list_supplied_transforms

_PREFIX = "changefeed_transforms_"


class _Sources(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An importer for the modules of packages that were created from texts."""

    def __init__(self) -> None:
        self.texts: dict[str, Mapping[str, str]] = {}

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - importlib's signature
        target: ModuleType | None = None,  # noqa: ARG002 - as above
    ) -> ModuleSpec | None:
        package, _, module = fullname.partition(".")
        if package not in self.texts or (module and module not in self.texts[package]):
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=not module)

    def exec_module(self, module: ModuleType) -> None:
        package, _, name = module.__name__.partition(".")
        if name:
            exec(compile(self.texts[package][name], f"transforms/{name}.py", "exec"), module.__dict__)


_sources = _Sources()


@dataclass(frozen=True)
class Transform:
    """A function with its arguments and its name in the pipeline."""

    name: str
    function: Callable[[Any], Any]
    takes_batches: bool
    """Whether it gets Arrow batches instead of `Change` objects."""

    @classmethod
    def of(cls, call: TransformCall) -> Transform:
        """The function that ``call`` names; raises SettingsError if it cannot be imported."""
        function = partial(function_of(call.source), **call.arguments)
        return cls(call.source.name, function, call.source.function == BATCH_FUNCTION)


def function_of(source: TransformSource) -> Callable[..., Any]:
    """The function of ``source``; raises SettingsError if its module cannot be imported."""
    return _function(source.name, source.function, tuple(sorted(source.modules.items())), source.digest)


@cache
def _function(name: str, function: str, modules: tuple[tuple[str, str], ...], digest: str) -> Callable[..., Any]:
    if _sources not in sys.meta_path:
        sys.meta_path.append(_sources)
    package = _PREFIX + digest  # a package for each version, because workers serve many windows
    _sources.texts[package] = dict(modules)
    try:
        made: Callable[..., Any] = getattr(importlib.import_module(f"{package}.{name}"), function)
    except Exception as error:
        where = "comes with the package" if name in list_supplied_transforms() else "of the folder of transforms"
        raise SettingsError(
            f"transform {name!r}, which is {where}, cannot be imported: {type(error).__name__}: {error}. What it "
            "imports has to be installed for Spark's workers too."
        ) from error
    return made
