"""Options of a command, made of the fields of a request."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from copy import copy
from enum import Enum
from typing import Annotated, Any

import typer
from typer.models import OptionInfo, ParameterInfo

from changefeed.settings.requests.request import Request, form_of

_TYPES: dict[str, type] = {"integer": int, "string": str, "boolean": bool, "array": list[str]}
_NO_NEWS = 2**31 - 1
"""A maximum from which on help does not show it; the request refuses what is above it all the same."""
_METAVARS = {"integer": "N", "string": "TEXT", "array": "TEXT"}


def takes(
    model: type[Request], *, omit: tuple[str, ...] = (), **own: ParameterInfo
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command whose parameter ``asked``, a dict, has the values of all fields of ``model``: an option each.

    ``own`` is what only the command has of a field: its name and metavar. Fields to ``omit`` have no option; the
    command adds them to ``asked`` from parameters of its own, if it has any.
    """
    parameters = [_parameter(model, name, own.get(name)) for name in form_of(model) if name not in omit]
    names = [parameter.name for parameter in parameters]

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**values: Any) -> None:
            command(asked={name: values.pop(name) for name in names}, **values)

        signature = inspect.signature(command, eval_str=True)
        all_of_them: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            all_of_them += parameters if parameter.name == "asked" else [parameter]
        keyword_only = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in all_of_them]
        run.__signature__ = signature.replace(parameters=keyword_only)  # type: ignore[attr-defined]
        run.__annotations__ = {}
        return run

    return decorated


def description(model: type[Request], name: str) -> str:
    """What a field of ``model`` is for."""
    return str(form_of(model)[name]["description"])


def _parameter(model: type[Request], name: str, own: ParameterInfo | None) -> inspect.Parameter:
    schema, field = form_of(model)[name], model.model_fields[name]
    *nullable, kind = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    is_enum = isinstance(field.annotation, type) and issubclass(field.annotation, Enum)
    annotation: Any = field.annotation if is_enum else _TYPES[kind]
    info = copy(own or typer.Option())
    info.help = schema["description"] + (" May be given again." if kind == "array" else "")
    info.min, info.max = schema.get("minimum"), schema.get("maximum")
    if info.max is not None and info.max >= _NO_NEWS:
        info.max = None
    if isinstance(info, OptionInfo) and not info.metavar and not is_enum:
        info.metavar = _METAVARS.get(kind)
    default = inspect.Parameter.empty if field.is_required() else field.default
    if nullable:
        annotation = annotation | None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[annotation, info]
    )
