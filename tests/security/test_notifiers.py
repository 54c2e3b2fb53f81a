"""Alerts: a pipeline's file names a notifier class and its arguments, but must not run other code."""

from __future__ import annotations

import asyncio
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.sdk import DAG

from changefeed.airflow.alerts import create_notifier, deadline_missed, notify, require_no_template_file
from changefeed.errors import SettingsError
from changefeed.settings.file import read_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import NotifierSettings

SMTP = "airflow.providers.smtp.notifications.smtp.SmtpNotifier"
POPEN = "airflow.providers.standard.hooks.subprocess.Popen"


@pytest.fixture
def allow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that writes a site file with these notifiers."""
    file = tmp_path / "site.yaml"
    monkeypatch.setenv("CHANGEFEED_SITE", str(file))
    return lambda *names: file.write_text(f"notifiers: {list(names)}\n")


def pipeline(folder: Path, *notifiers: str) -> Pipeline:
    path = folder / "shop.yaml"
    alerts = f"alerts: {{notify: [{', '.join(notifiers)}]}}\n"
    path.write_text("name: shop\nsource: {connection: m}\nkafka: {connection: k}\n" + alerts)
    return read_pipeline(path)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Calls of a class that a provider's module only imports."""
    calls: list[object] = []

    class Imported:
        def __init__(self, **arguments: object) -> None:
            calls.append(arguments)

    monkeypatch.setattr(POPEN, Imported)
    return calls


def test_class_that_a_module_only_imports_is_not_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: list[object], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("CHANGEFEED_SITE", raising=False)
    notify(pipeline(tmp_path, f"{{notifier: {POPEN}, arguments: {{args: [sh]}}}}"), "lag", "text", {})
    assert not called
    assert "CHANGEFEED_SITE is not set" in caplog.text


@pytest.mark.parametrize(
    "name",
    [
        POPEN,  # listed by mistake
        "airflow.providers.smtp.notifications.smtp.BaseNotifier",  # imported there
        "airflow.providers.smtp.notifications.smtp.Path",
        "airflow.providers.smtp.notifications.smtp.conf",
        "airflow.providers.smtp.hooks.smtp.SmtpHook",
        "airflow.providers.smtp.notifications.smtp.Nothing",
        "airflow.providers.nothing.Nothing",
        "subprocess.Popen",
        "os.system",
    ],
)
def test_class_that_is_no_notifier_is_refused_uncalled(allow: Any, called: list[object], name: str) -> None:
    allow(name)
    with pytest.raises(SettingsError, match="Expected the qualified name of an Airflow notifier class"):
        create_notifier(NotifierSettings(notifier=name, arguments={"args": ["sh"]}))
    assert not called


def test_forbidden_notifier_is_not_imported(allow: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allow(SMTP)
    (tmp_path / "imported_by_an_alert.py").write_text("raise SystemExit\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SettingsError, match=r"not in `notifiers` of the site's file"):
        create_notifier(NotifierSettings(notifier="imported_by_an_alert.Notifier"))


def test_allowed_notifier_sends_the_alert_despite_a_refused_one(
    allow: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    allow(SMTP)
    texts = 'subject: "{{ changefeed.kind }}", html_content: "{{ changefeed.text }}"'
    arguments = f"{{to: ops@example.com, from_email: cdc@example.com, {texts}}}"
    alerting = pipeline(tmp_path, f"{{notifier: {POPEN}}}", f"{{notifier: {SMTP}, arguments: {arguments}}}")
    with mail_server() as (port, mails):
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", f"smtp://127.0.0.1:{port}/?disable_ssl=true&disable_tls=true")
        notify(alerting, "lag", "{{ 7 * 6 }} bytes behind", {})
    (mail,) = mails
    assert mail["Subject"] == "lag"
    (body,) = (part for part in mail.walk() if not part.is_multipart())
    assert body.get_payload(decode=True) == b"{{ 7 * 6 }} bytes behind", (
        "the alert's text is not rendered as a template"
    )
    assert f"{POPEN!r} is not in `notifiers`" in caplog.text


@pytest.mark.parametrize("are_stored", [True, False])
def test_deadline_alert_stored_before_an_upgrade_goes_to_the_current_notifiers(
    allow: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, are_stored: bool
) -> None:
    allow(SMTP)
    monkeypatch.setenv("CHANGEFEED_PIPELINES", str(tmp_path))
    arguments = "to: ops@example.com, from_email: cdc@example.com, subject: late, html_content: '{{ changefeed.text }}'"
    notifiers = pipeline(tmp_path, f"{{notifier: {SMTP}, arguments: {{{arguments}}}}}").alerts.notify
    stored: dict[str, Any] = {"notify": [each.model_dump() for each in notifiers]} if are_stored else {}
    if are_stored:
        (tmp_path / "shop.yaml").unlink()  # the triggerer of a DAG bundle has no pipelines
    with mail_server() as (port, mails):
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", f"smtp://127.0.0.1:{port}/?disable_ssl=true&disable_tls=true")
        asyncio.run(deadline_missed("shop", **stored, context={}))
    assert [mail["Subject"] for mail in mails] == ["late"]
    (tmp_path / "shop.yaml").unlink(missing_ok=True)
    with pytest.raises(SettingsError, match="no pipeline 'shop'"):
        asyncio.run(deadline_missed("shop", context={}))


def test_invalid_site_file_stops_alerts_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CHANGEFEED_SITE", str(tmp_path / "nothing.yaml"))
    notify(pipeline(tmp_path, f"{{notifier: {SMTP}}}"), "lag", "text", {})
    assert "which is not a file" in caplog.text


def test_an_argument_that_airflow_would_read_as_a_file_is_refused(
    allow: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "reading_notifier.py").write_text(
        "from airflow.sdk import BaseNotifier\n"
        "class Reading(BaseNotifier):\n"
        "    template_fields, template_ext = ('text',), ('.html', '.txt')\n"
        "    def __init__(self, text):\n"
        "        self.text = text\n"
        "        super().__init__()\n"
        "    def notify(self, context):\n"
        "        raise ValueError(self.text)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    allow("reading_notifier.Reading")
    (tmp_path / "secrets.txt").write_text("a secret of the workers")
    reading = NotifierSettings(notifier="reading_notifier.Reading", arguments={"text": "secrets.txt"})
    with DAG("any", template_searchpath=str(tmp_path)) as dag, pytest.raises(ValueError, match="a secret"):
        create_notifier(reading)({"dag": dag})
    with pytest.raises(SettingsError, match=r"ends in one of \.html, \.txt"):
        require_no_template_file(reading)
    require_no_template_file(NotifierSettings(notifier="reading_notifier.Reading", arguments={"text": "secrets.txt "}))


def test_notifier_has_the_configured_class(allow: Any) -> None:
    allow(SMTP)
    instance = create_notifier(NotifierSettings(notifier=SMTP, arguments={"to": "a@example.com", "html_content": "x"}))
    assert type(instance) is SmtpNotifier


@contextmanager
def mail_server() -> Iterator[tuple[int, list[Message]]]:
    """Start an SMTP server that stores mails; yields its port and the mails."""
    mails: list[Message] = []

    class Conversation(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 mail\r\n")
            while line := self.rfile.readline():
                if line[:4].upper() == b"DATA":
                    self.wfile.write(b"354 go on\r\n")
                    mails.append(message_from_bytes(b"".join(iter(self.rfile.readline, b".\r\n"))))
                self.wfile.write(b"221 bye\r\n" if line[:4].upper() == b"QUIT" else b"250 yes\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Conversation) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_address[1], mails
        finally:
            server.shutdown()
            thread.join()
