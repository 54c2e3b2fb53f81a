"""The rules and the dashboard of examples/monitoring, and the metrics and labels that their expressions use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from devstack.home import PROJECT

FOLDER = PROJECT / "examples" / "monitoring"

_SELECTOR = re.compile(r"\b(changefeed_\w+)\s*(?:\{([^}]*)\})?")
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPED = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
_SHOWN = re.compile(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}")
_SAMPLE = re.compile(r"(\w+)\{(.*)\} \S+")


@dataclass(frozen=True)
class Expression:
    """A PromQL expression, the texts that show its labels, and where it is."""

    where: str
    text: str
    templates: list[str] = field(default_factory=list)

    @property
    def metrics(self) -> set[str]:
        """The names of the metrics."""
        return {name for name, _ in _SELECTOR.findall(self.text)}

    @property
    def labels(self) -> set[str]:
        """The labels by which it selects or groups, and those that its texts show."""
        selected = {label for _, inside in _SELECTOR.findall(self.text) for label in _LABEL.findall(inside)}
        grouped = {label.strip() for inside in _GROUPED.findall(self.text) for label in inside.split(",")}
        return selected | grouped | {label for text in self.templates for label in _SHOWN.findall(text)}


def rules() -> list[Expression]:
    """The expressions of the alert rules."""
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    return [
        Expression(rule["alert"], rule["expr"], list(rule["annotations"].values()))
        for group in groups
        for rule in group["rules"]
    ]


def dashboard() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
    return content


def panels() -> list[Expression]:
    """The expressions of the dashboard's panels and variables."""
    content = dashboard()
    found = [
        Expression(panel["title"], target["expr"], [target["legendFormat"]])
        for panel in content["panels"]
        for target in panel["targets"]
    ]
    for variable in content["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.findall(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])[0]
            found.append(Expression(f"variable {variable['name']}", f"sum by ({label}) ({metric})"))
    return found


def labels_by_metric(exposition: str) -> dict[str, set[str]]:
    """The labels of each metric in an answer of the endpoint. Raises ValueError for a line that is not valid."""
    found: dict[str, set[str]] = {}
    for line in _sample_lines(exposition):
        sample = _SAMPLE.fullmatch(line)
        if sample is None:
            raise ValueError(line)
        found.setdefault(sample[1], set()).update(re.findall(r'(\w+)="', sample[2]))
    return found


def _sample_lines(exposition: str) -> Iterator[str]:
    return (line for line in exposition.splitlines() if line and not line.startswith("#"))
