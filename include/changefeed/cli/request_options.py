"""Builds the options of a command from the fields of a request."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from copy import copy
from enum import Enum
from typing import Annotated, Any

import typer
from typer.models import OptionInfo, ParameterInfo

from changefeed.settings.requests.request import Request, build_form_schemas

_TYPES: dict[str, type] = {"integer": int, "string": str, "boolean": bool, "array": list[str]}
_MAX_SHOWN = 2**31 - 1
"""Help does not show a maximum of this size or more. The request checks it in any case."""
_METAVARS = {"integer": "N", "string": "TEXT", "array": "TEXT"}


def add_options(
    model: type[Request], *, omit: tuple[str, ...] = (), **overrides: ParameterInfo
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator that adds an option for each field of ``model``; the command gets their values as its dict
    ``arguments``.

    ``overrides`` are names and metavars of options by field. Fields in ``omit`` get no option; the command may add them
    to ``arguments`` itself.
    """
    parameters = [
        _parameter(model, name, overrides.get(name)) for name in build_form_schemas(model) if name not in omit
    ]
    names = [parameter.name for parameter in parameters]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**values: Any) -> None:
            command(arguments={name: values.pop(name) for name in names}, **values)

        signature = inspect.signature(command, eval_str=True)
        all_of_them: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            all_of_them += parameters if parameter.name == "arguments" else [parameter]
        keyword_only = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in all_of_them]
        run.__signature__ = signature.replace(parameters=keyword_only)  # type: ignore[attr-defined]
        run.__annotations__ = {}
        return run

    return decorate


def description(model: type[Request], name: str) -> str:
    """The description of a field of ``model``."""
    return str(build_form_schemas(model)[name]["description"])


def _parameter(model: type[Request], name: str, overrides: ParameterInfo | None) -> inspect.Parameter:
    schema, field = build_form_schemas(model)[name], model.model_fields[name]
    *nullable, kind = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    is_enum = isinstance(field.annotation, type) and issubclass(field.annotation, Enum)
    annotation: Any = field.annotation if is_enum else _TYPES[kind]
    info = copy(overrides or typer.Option())
    info.help = schema["description"] + (" May be repeated." if kind == "array" else "")
    info.min, info.max = schema.get("minimum"), schema.get("maximum")
    if info.max is not None and info.max >= _MAX_SHOWN:
        info.max = None
    if isinstance(info, OptionInfo) and not info.metavar and not is_enum:
        info.metavar = _METAVARS.get(kind)
    default = inspect.Parameter.empty if field.is_required() else field.default
    if nullable:
        annotation = annotation | None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[annotation, info]
    )
