"""An Airflow notifier that appends its text to a file, for tests of alerts in a live Airflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import BaseNotifier


class FileNotifier(BaseNotifier):
    """Appends ``text``, a template, and a line feed to ``path``."""

    template_fields = ("text",)

    def __init__(self, path: str, text: str) -> None:
        super().__init__()
        self.path, self.text = path, text

    def notify(self, context: Any) -> None:  # noqa: ARG002 - as Airflow calls it
        """Write the text."""
        with Path(self.path).open("a") as file:
            file.write(f"{self.text}\n")
