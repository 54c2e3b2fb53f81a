"""The page in a real Chromium inside Airflow: its content, its actions, and its accessibility by axe.

Screenshots are stored in `.devstack/screenshots`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx
import kafka
import pytest
from airflow_site import Site, wait_until
from axe_core_python.selenium import Axe
from chromium import chromium
from integration.kafka_pipeline import committed
from kafka.admin import ConfigResource, ConfigResourceType
from sealed_windows import Windows
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from changefeed.kafka.commit_log.log import CommitLog
from changefeed.kafka.commit_log.periods import PeriodRecord
from changefeed.kafka.connection import KafkaConnection
from changefeed.model.sealed_period import HOUR_MS, SealedPeriod
from changefeed.model.topic_name import commit_log_topic
from devstack.home import Home

pytestmark = pytest.mark.timeout(1200)
SCREENSHOTS = Home.default().root / "screenshots"
WAIT = 240
SOURCE = "page_source"
FIRST_HOUR = 490_000
"""An hour, since 1970."""
AXE_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]


class Page:
    """A logged-in browser."""

    def __init__(self, browser: webdriver.Chrome, site: Site) -> None:
        self.browser, self.site = browser, site

    def open(self, view: str = "") -> None:
        self.browser.get("about:blank")
        self.browser.get(f"{self.site.airflow.url}/changefeed/#/{view}")

    def find(self, css: str, text: str = "") -> WebElement:
        def found() -> WebElement | None:
            try:
                for one in self.browser.find_elements(By.CSS_SELECTOR, css):
                    if one.is_displayed() and text in one.text:
                        return one
            except StaleElementReferenceException:
                pass
            return None

        return wait_until(found, f"the page shows {css!r} with {text!r}", WAIT)

    def click(self, css: str, text: str = "") -> None:
        def try_click() -> bool:
            try:
                self.find(css, text).click()
            except WebDriverException:  # redrawn meanwhile, or not enabled yet
                return False
            return True

        wait_until(try_click, f"{css!r} with {text!r} can be clicked", WAIT)

    def fill(self, name: str, value: str) -> None:
        field = self.find(f"dialog [name={name}]")
        field.clear()
        field.send_keys(value)

    def shot(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.browser.save_screenshot(str(SCREENSHOTS / f"{name}.png"))

    def faults(self) -> list[str]:
        """Violations that axe finds."""
        results = Axe().run(self.browser, options={"runOnly": {"type": "tag", "values": AXE_RULES}})
        return [f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}" for one in results["violations"]]


def move_source(site: Site, port: int) -> None:
    """Set the port of the pipeline's source in Airflow's connection, which is created if it does not exist."""
    server = urlsplit(site.mysql.url)
    login = {"login": server.username, "password": server.password or ""}
    connection = {"connection_id": SOURCE, "conn_type": "mysql", "host": server.hostname, "port": port, **login}
    with site.client() as client:
        exists = client.get(f"/api/v2/connections/{SOURCE}").status_code == 200
        path = f"/api/v2/connections/{SOURCE}" if exists else "/api/v2/connections"
        answer = client.request("PATCH" if exists else "POST", path, json=connection)
        assert answer.status_code in (200, 201), answer.text


@pytest.fixture(scope="module")
def database(airflow_site: Site) -> Iterator[str]:
    airflow_site.mysql.execute(
        "CREATE DATABASE page",
        "CREATE TABLE page.orders (id INT PRIMARY KEY AUTO_INCREMENT, n INT)",
        "CREATE TABLE page.customers (id INT PRIMARY KEY AUTO_INCREMENT, name VARCHAR(40))",
    )
    followed = "followers: [{connection: page_copy}]\nvalues: {temporal: iso}\n"
    airflow_site.write_pipeline("page", "page", followed, server_ids="65200-65231")
    file = airflow_site.pipelines / "page.yaml"
    file.write_text(file.read_text().replace("mysql_shop", SOURCE))
    move_source(airflow_site, airflow_site.mysql.port)
    airflow_site.wait_for_dag(*(f"changefeed_{kind}__page" for kind in ("ingest", "seek", "backfill", "verify")))
    (airflow_site.pipelines / "broken.yaml").write_text("name: broken\nsorce: {}\n")
    airflow_site.run("changefeed_ingest__page")
    for number in range(2):
        airflow_site.mysql.execute(
            *(f"INSERT INTO page.orders (n) VALUES ({row}), (1), (2)" for row in range(20 + 30 * number)),
            *["INSERT INTO page.customers (name) VALUES ('Ada')"] * 10,
            f"UPDATE page.orders SET n = {76 + number} WHERE id = 3",
        )
        airflow_site.run("changefeed_ingest__page")
    yield "page"
    (airflow_site.pipelines / "broken.yaml").unlink()
    (airflow_site.pipelines / "page.yaml").unlink()
    airflow_site.mysql.execute("DROP DATABASE page")


@pytest.fixture(scope="module")
def page(airflow_site: Site, database: str) -> Iterator[Page]:
    assert database
    with chromium(airflow_site.airflow.url, "ada", "adaada") as browser:
        yield Page(browser, airflow_site)


def position(page: Page) -> dict[str, Any]:
    with page.site.client() as client:
        found: dict[str, Any] = client.get("/changefeed/api/pipelines/page").json()["position"]
        return found


def theme(page: Page, scheme: str) -> None:
    page.browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )


def width(page: Page, pixels: int) -> None:
    page.browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": pixels, "height": 1400, "deviceScaleFactor": 1, "mobile": pixels < 500},
    )


def shots(page: Page, name: str) -> None:
    """Screenshots in both themes and widths, each of an accessible page that is no wider than its window."""
    for scheme, pixels in product(("dark", "light"), (390, 1280)):
        theme(page, scheme)
        width(page, pixels)
        page.shot(f"{name}-{pixels}-{scheme}")
        assert page.browser.execute_script("return document.documentElement.scrollWidth - innerWidth") <= 0
        assert page.faults() == []


def test_address_that_is_no_utf8_shows_the_list(page: Page) -> None:
    for view in ("%E0%A4%A", "pipelines/%E0%A4%A", "%"):
        page.open(view)
        page.find("main *", "pipeline" if "/" in view else "page")


def test_bidirectional_control_characters_are_shown_escaped(page: Page) -> None:
    page.open()
    script = """
        const done = arguments[arguments.length - 1];
        import(new URL("static/dom.js", location.href)).then(({el, svg}) => {
            const drawn = svg("text", {}, "f\\u2066");
            const made = el("p", {title: "a\\u202eb", href: "c\\u202e"}, "d\\u202e\\u0000e\\n", drawn);
            done([made.getAttribute("title"), made.getAttribute("href"), made.textContent]);
        }, (error) => done(String(error)));
    """
    assert page.browser.execute_async_script(script) == [
        "a\\u202eb", "c\u202e", "d\\u202e\\u0000e\nf\\u2066",
    ]  # fmt: skip


def test_page_is_in_airflows_navigation(page: Page) -> None:
    page.browser.get(page.site.airflow.url)
    page.click("a[href$='/plugin/changefeed']")
    frame = page.find("iframe")
    page.browser.switch_to.frame(frame)
    page.find("[data-pipeline=page]")
    page.browser.switch_to.default_content()
    page.shot("in-airflow")


def test_list_shows_lag_and_refused_pipelines(page: Page) -> None:
    width(page, 700)  # always cards
    page.open()
    page.find("article[data-pipeline=page]", "Retention headroom\n30.0 days")
    page.site.mysql.execute("INSERT INTO page.orders (n) VALUES (1)")
    card = page.find("article[data-pipeline=page]", " old")  # the lag in seconds, without a reload
    assert "binlog." in card.text
    assert "Retention headroom\n30.0 days" in card.text
    page.find(".problem", "unknown key 'sorce' (did you mean 'source'?)")
    page.shot("list")
    width(page, 1280)


FOCUS_ROW = """
const link = document.querySelector(`[data-pipeline=${arguments[0]}] a`);
link.focus();
window.badgeBefore = link.closest("[data-pipeline]").querySelector(".badge");
"""


@pytest.mark.extended
def test_table_of_many_pipelines_is_filtered_by_state_and_words(page: Page) -> None:
    """Rows have the rows of the last hour, and are read again by one request for all of them. The focus stays in its
    row, and pipelines that are created or deleted meanwhile come and go."""
    site, more = page.site, [f"listed{number}" for number in range(5)]
    for name in more:
        site.write_pipeline(name, "page")
    try:
        for pixels, scheme in ((1280, "light"), (1280, "dark"), (390, "light")):
            width(page, pixels)
            theme(page, scheme)
            page.open()
            kind = "tr" if pixels > 800 else "article"
            assert page.find(f"{kind}[data-pipeline=page] svg").get_attribute("aria-label").split()[1] == "rows"
            page.shot(f"table-{pixels}-{scheme}")
            assert page.faults() == []
        width(page, 1280)
        theme(page, "light")
        site.write_pipeline("listedlater", "page")
        page.browser.execute_script(FOCUS_ROW, "listed0")
        refreshed = "return !window.badgeBefore.isConnected && document.activeElement.textContent"
        wait_until(lambda: page.browser.execute_script(refreshed), "the row is read again", WAIT)
        assert page.browser.execute_script(refreshed) == "listed0", "the focus is lost"

        def shown() -> list[str]:  # by one script, as a row may be replaced between two calls
            rows = "document.querySelectorAll('tbody tr:not([hidden])')"
            return list(page.browser.execute_script(f"return [...{rows}].map((row) => row.dataset.pipeline)"))

        def is_filtered() -> bool:  # the state changes when Airflow loads the DAGs
            badge = "document.querySelector('tr[data-pipeline=listed0] .badge')"
            page.click(".states button", page.browser.execute_script(f"return {badge}.textContent"))
            return page.find(".states button[aria-pressed=true]").text != "all" and "page" not in shown()

        wait_until(is_filtered, "the table has only pipelines in the state of listed0", WAIT)
        assert set(more) <= set(shown())
        page.find("input[type=search]").send_keys("listed3")
        assert shown() == ["listed3"]
        page.shot("table-filtered")
        page.click(".states button", "all")
        page.find("input[type=search]").send_keys(*[Keys.BACKSPACE] * len("listed3"))
        page.find("tr[data-pipeline=listedlater]")
        (site.pipelines / "listedlater.yaml").unlink()
        wait_until(lambda: "listedlater" not in shown(), "the deleted pipeline is gone", WAIT)
        urls = page.browser.execute_script("return performance.getEntriesByType('resource').map((one) => one.name)")
        assert [url for url in urls if "/api/pipelines/" in url] == []
    finally:
        for name in (*more, "listedlater"):
            (site.pipelines / f"{name}.yaml").unlink(missing_ok=True)


@pytest.mark.extended
def test_template_of_a_new_pipeline_is_accepted(page: Page) -> None:
    page.open("new")
    yaml = page.find("textarea.code").get_attribute("value") or ""
    assert "connection: kafka_shop" in yaml
    page.shot("new-pipeline")
    try:
        page.click("button", "Create")
        page.find("#toasts", "Pipeline orders created")
        page.find(".notice", "No table of the source matches shop.*")
        page.shot("new-pipeline-without-tables")
        assert page.faults() == []
    finally:
        (page.site.pipelines / "orders.yaml").unlink(missing_ok=True)


@pytest.mark.extended
def test_editor_shows_changed_lines_before_saving_and_marks_mistakes(page: Page) -> None:
    file = page.site.pipelines / "page.yaml"
    before = file.read_text()
    page.open("pipelines/page/settings")
    text = page.find("textarea")
    page.click("button", "Save")
    page.find("[role=note]", "no changes to save")
    text.send_keys(Keys.CONTROL, Keys.END)
    text.send_keys("owner: an editor")
    page.click("button", "Save")
    assert page.find("dialog ins").text == "+ owner: an editor"
    page.shot("editor-changes")
    assert page.faults() == []
    page.click("dialog button", "Back")
    assert file.read_text() == before
    page.click("button", "Save")
    page.click("dialog button", "Save")
    page.find("#toasts", "Saved")
    assert file.read_text() == f"{before}owner: an editor"
    text.send_keys(Keys.ENTER, "retires: 3")
    page.click("button", "Save")
    page.click("dialog button", "Save")
    page.find(".problem", "unknown key 'retires' (did you mean 'retries'?)")
    assert len(page.browser.find_elements(By.CSS_SELECTOR, ".editor .marks i")) == 1
    page.shot("editor-mistake")
    assert page.faults() == []
    page.click(".problem button", f"Go to line {len(before.splitlines()) + 2}")
    assert page.browser.execute_script("return getSelection().toString()") == "retires: 3"
    file.write_text(before)


@pytest.mark.extended
def test_editor_suggests_settings_and_checks_the_text_before_it_is_saved(page: Page) -> None:
    page.open("new")
    text = page.find("textarea.code")
    text.send_keys(Keys.CONTROL, Keys.END)
    text.send_keys("stat")
    assert page.find("[role=option][aria-selected=true] code").text == "statements"
    page.shot("editor-suggestions")
    assert page.faults() == []
    text.send_keys(Keys.ENTER, Keys.ARROW_DOWN, Keys.ENTER)
    assert (text.get_property("value") or "").endswith("\nstatements: publish")
    text.send_keys(Keys.ENTER, "topics:", Keys.ENTER)
    page.click("button", "Check")
    page.find(".problem", "is repeated")
    text.send_keys(*[Keys.BACKSPACE] * len("topics:\n  "))
    page.click("button", "Check")
    page.find(".findings", "A run would fail. ")
    page.find(".findings li", "'shop.*', and no table of the source")
    page.shot("editor-check")
    assert page.faults() == []
    assert not (page.site.pipelines / "orders.yaml").exists()


@pytest.mark.extended
def test_answers_of_a_new_pipeline_write_its_yaml_until_it_is_edited(page: Page) -> None:
    page.open("new")
    text = page.find("textarea.code")
    name = page.find("[name=name]")
    name.clear()
    name.send_keys("answered", Keys.TAB)
    page.click("button", "Test the connections")
    row = page.find("section[aria-label='Tables of the source'] tr", "page.customers").text
    assert row.endswith("id")
    page.click("[data-box='page.customers']")
    wait_until(lambda: '["shop.*", "page.customers"]' in (text.get_property("value") or ""), "it is captured", WAIT)
    assert (text.get_property("value") or "").startswith("name: answered\n")
    page.shot("new-pipeline-tables")
    assert page.faults() == []
    text.send_keys("# edited")
    page.click("[data-box='page.orders']")
    page.find(".notice", "The YAML was edited")
    assert "page.orders" not in (text.get_property("value") or "")
    page.click("button", "Replace the YAML")
    wait_until(lambda: "page.orders" in (text.get_property("value") or ""), "it is replaced", WAIT)
    assert page.faults() == []


def answer(page: Page, name: str, value: str) -> None:
    """Answer a question of a new pipeline."""
    page.find(f"[name={name}]").send_keys(Keys.CONTROL + "a", Keys.NULL, value, Keys.TAB)  # one change, as a user makes


@pytest.mark.extended
def test_columns_of_a_new_pipeline_are_left_out_or_masked(page: Page) -> None:
    """The columns of the key cannot be, with the reason."""
    page.site.mysql.execute(
        "CREATE TABLE page.people (id INT PRIMARY KEY, email VARCHAR(90), phone VARCHAR(20), born DATE)"
    )
    try:
        width(page, 1280)
        page.open("new")
        text = page.find("textarea.code")
        page.click("[name=pair] option", "Other connections")
        for name, value in (("source", "mysql_shop"), ("kafka", "kafka_shop"), ("tables", "page.*")):
            answer(page, name, value)
        page.click("button", "Test the connections")
        page.click("details[data-columns='page.people'] summary")
        row = page.find("details[data-columns='page.people'] tr", "primary key").text
        assert row.split()[:2] == ["id", "int"]
        choice = "select[aria-label='What records have of page.people.{}']"
        assert [one.text for one in page.find(choice.format("born")).find_elements(By.TAG_NAME, "option")] == [
            "publish", "leave out", "mask: null", "mask: a text", "mask: HMAC-SHA256", "mask: SHA-256",
            "mask: a secret text",
        ]  # fmt: skip
        for column, treatment in (("born", "leave out"), ("email", "HMAC-SHA256"), ("phone", "first characters")):
            page.click(f"{choice.format(column)} option", treatment)
        lines = [
            "columns:  # DATABASE.TABLE.COLUMN, with * and ?",
            '  exclude: ["page.people.born"]',
            "  mask:",
            '    "page.people.email": {hmac_sha256: {connection: mask_key}}',
            '    "page.people.phone": {characters: 3}',
        ]
        wait_until(lambda: "\n".join(lines) in (text.get_property("value") or ""), "the YAML has them", WAIT)
        shots(page, "new-pipeline-columns")
        for name, value in (("kafka", "kafka_other"), ("kafka", "kafka_shop"), ("tables", "/page.p.*/")):
            answer(page, name, value)
        wait_until(lambda: "/page.p.*/" in (text.get_property("value") or ""), "the YAML has the pattern", WAIT)
        assert "\n".join(lines) in (text.get_property("value") or ""), "only a change of the source drops choices"
        answer(page, "tables", "page.*")
        page.click("button", "Test the connections")
        page.find("details[data-columns='page.people'] tr", "primary key")
        page.click(f"{choice.format('email')} option", "publish")
        wait_until(lambda: "email" not in (text.get_property("value") or ""), "it is published again", WAIT)
        page.click("button", "Check")
        page.find(".findings")
        assert "columns" not in " ".join(one.text for one in page.browser.find_elements(By.CSS_SELECTOR, ".problem"))
        answer(page, "source", "mysql_other")
        page.find(".notice", "2 choices of columns to leave out or mask were dropped, because the source is another")
    finally:
        page.site.mysql.execute("DROP TABLE page.people")


def open_action(page: Page, action: str) -> None:
    """Open the dialog of an action from the menu."""
    page.click(".dropdown summary")
    page.click(".dropdown button", action)


@pytest.mark.extended
def test_verification_is_started_from_the_form_and_names_the_pause_that_it_waits_for(page: Page) -> None:
    page.open("pipelines/page/history")
    page.click(".actions button", "Pause")
    page.find("header .badge", "paused")
    page.site.mysql.execute("INSERT INTO page.orders (n) VALUES (2)")
    open_action(page, "Verify")
    assert page.find("dialog select").text.split("\n") == ["the source", "follower page_copy"]
    page.shot("verify")
    assert page.faults() == []
    page.fill("sample_percent", "0")
    page.click("dialog button", "Start the verification")
    page.find("dialog .mistake", "greater than or equal to 1")
    page.fill("sample_percent", "100")
    page.click("dialog button", "Start the verification")
    page.find("#toasts", "started")
    page.find("section[aria-label=Verifications] .notice", "the pipeline is paused. It waits for at most 15 min")
    page.shot("verification-waits")
    assert page.faults() == []
    page.click("section[aria-label=Verifications] .notice button", "Resume")
    page.find("section[aria-label=Verifications] .notice", "no run of the pipeline is planned")
    page.click("section[aria-label=Verifications] .notice button", "Run now")
    row = page.find("section[aria-label=Verifications] table", "equal").text
    assert "source" in row
    page.shot("verified")


def choose(page: Page, label: str, text: str) -> None:
    """Choose the option with ``text`` in the visible list ``label``."""
    page.click(f"dialog select[aria-label='{label}'] option", text)


def set_time(page: Page, css: str, text: str) -> None:
    """Set a date-and-time field, whose keys depend on the language of the browser."""
    script = "arguments[0].value = arguments[1];"
    events = "for (const type of ['input', 'change']) arguments[0].dispatchEvent(new Event(type, {bubbles: true}));"
    page.browser.execute_script(script + events, page.find(css), text)


@pytest.mark.extended
def test_dialogs_offer_binlog_files_and_times(page: Page) -> None:
    file = position(page)["checkpoint"].partition(":")[0]
    page.browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Kolkata"})
    page.open("pipelines/page")
    open_action(page, "Replay")
    choose(page, "Choose a binlog file", f"{file}: ")
    assert page.find("dialog [name=from_file]").get_property("value") == file
    assert " UTC" in page.find("dialog select[aria-label='Choose a binlog file'] option", f"{file}: ").text
    shots(page, "replay-files")
    page.click("dialog select[name=kind] option", "Coordinates")
    choose(page, "Begin of a binlog file", f"{file}: ")
    assert page.find("dialog [name=from_coordinates]").get_property("value") == f"{file}:4"
    page.click("dialog select[name=kind] option", "Times")
    page.click("dialog button", "Show the plan")
    page.find("dialog .mistake", "a value is required")
    set_time(page, "dialog [name=from_time]", "2026-01-31T12:00")
    page.find("dialog label", "in UTC: 31 Jan 2026, 17:30 in your time zone")
    set_time(page, "dialog [name=to_time]", "2026-01-30T12:00:30")
    page.click("dialog button", "Show the plan")
    page.find("dialog .problem", "from_time 2026-01-31T12:00:00Z is not before to_time 2026-01-30T12:00:30Z")
    shots(page, "replay-times")
    page.browser.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "UTC"})
    with page.site.client() as client:
        listed = client.get("/changefeed/api/pipelines/page/binlogs").json()["files"]
    begun = next(one["begun_seconds"] for one in listed if one["name"] == file)
    set_time(page, "dialog [name=from_time]", datetime.fromtimestamp(begun, UTC).strftime("%Y-%m-%dT%H:%M:%S"))
    set_time(page, "dialog [name=to_time]", "")
    page.click("dialog button", "Show the plan")
    page.find("dialog table", "page.customers.replay")
    page.click("dialog button[aria-label=Close]")
    open_action(page, "Seek")
    choose(page, "Begin of a binlog file", f"{file}: ")
    assert page.find("dialog [name=to]").get_property("value") == f"{file}:4"
    set_time(page, "dialog [type=datetime-local]", "2026-01-31T12:00:30")
    assert page.find("dialog [name=to]").get_property("value") == "2026-01-31T12:00:30Z"
    shots(page, "seek-choices")
    page.click("dialog button[aria-label=Close]")
    page.browser.execute_cdp_cmd("Network.enable", {})
    page.browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["*/binlogs"]})
    try:
        open_action(page, "Run until")
        page.find("dialog [role=status]", "cannot be listed, but their names can be typed")
        assert not page.browser.find_element(By.CSS_SELECTOR, "dialog select").is_displayed()
    finally:
        page.browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})
    page.fill("until", f"{file}:nowhere")
    page.click("dialog button", "Start the run")
    page.find("dialog .mistake", "FILE:POSITION")
    shots(page, "run-until")
    page.site.mysql.execute("INSERT INTO page.orders (n) VALUES (3)")
    until = page.site.mysql.head()
    page.site.mysql.execute("INSERT INTO page.orders (n) VALUES (4)")
    page.fill("until", until)
    page.click("dialog button", "Start the run")
    run_id = next(word for word in page.find("#toasts", "started").text.split() if "__" in word)
    assert page.site.wait_for_run("changefeed_ingest__page", run_id)[""] == "success"
    wait_until(lambda: position(page)["checkpoint"] == until, "the run ended before the last row", WAIT)


@pytest.mark.extended
def test_backfill_is_started_from_the_form_and_finishes(page: Page) -> None:
    file = position(page)["checkpoint"].partition(":")[0]
    page.open("pipelines/page/history")
    page.click(".dropdown summary")
    page.find(".dropdown button:enabled", "Seek")
    page.shot("actions")
    assert page.faults() == []
    page.click(".dropdown button", "Replay")
    page.fill("from_file", "binlog.000999")
    page.click("dialog button", "Show the plan")
    page.find("dialog .problem", "is not there")
    page.shot("backfill-refused")
    page.fill("from_file", file)
    page.fill("tables", "page.customers")
    page.click("dialog button", "Show the plan")
    page.find("dialog table", "page.customers.replay")
    page.shot("backfill-plan")
    assert page.faults() == []
    page.click("dialog button", "Start the replay")
    page.find("#toasts", "started")

    def has_finished() -> bool:
        return "success" in page.find("section[aria-label=Backfills]").text

    wait_until(has_finished, "the page shows that the backfill has ended", 400)
    page.shot("backfill-finished")
    assert len(committed(page.site.kafka.bootstrap, "page.customers.replay")) == 20


@pytest.mark.extended
def test_paused_pipeline_shows_its_held_run_until_resumed(page: Page) -> None:
    page.open("pipelines/page")
    page.click(".actions button", "Pause")
    page.find("header .badge", "paused")
    page.click(".actions button", "Run now")
    page.find("#toasts", "is held until the pipeline is resumed")
    page.find("header .badge", "paused, a run is held")
    held = page.find(".notice a").text
    page.shot("held")
    assert page.faults() == []
    page.click(".actions button", "Resume")
    wait_until(lambda: "paused" not in page.find("header").text, "it is resumed", WAIT)
    assert page.site.wait_for_run("changefeed_ingest__page", held)[""] == "success"


@pytest.mark.extended
def test_a_seek_shows_what_it_repeats_and_moves_the_checkpoint(page: Page) -> None:
    before = position(page)["checkpoint"]
    page.open("pipelines/page/history")
    open_action(page, "Seek")
    assert [one.text for one in page.browser.find_elements(By.CSS_SELECTOR, "dialog .required")] == ["required"] * 2
    page.click("dialog button", "Show what happens")
    page.find("dialog .mistake", "a value is required")
    page.fill("to", "yesterday")
    page.click("dialog button", "Show what happens")
    page.find("dialog .mistake", "expected earliest, latest, FILE:POSITION")
    page.shot("seek-refused")
    assert page.faults() == []
    page.fill("to", f"{before.partition(':')[0]}:5")
    page.click("dialog button", "Show what happens")
    page.find("dialog .problem", "inside a transaction")
    target = f"{before.partition(':')[0]}:4"
    page.fill("to", target)
    page.click("dialog button", "Show what happens")
    page.find("dialog", "will be published again")
    page.click("dialog button", "Move the checkpoint")
    page.find("dialog .mistake", "a value is required")
    assert page.browser.switch_to.active_element.get_attribute("name") == "why"
    page.fill("why", "a test of the page")
    page.shot("seek-plan")
    assert page.faults() == []
    page.click("dialog button", "Move the checkpoint")
    wait_until(lambda: position(page)["checkpoint"] == target, "the checkpoint has moved", 400)
    page.find("section[aria-label=Seeks]", "a test of the page")
    page.shot("seek-finished")


@pytest.mark.extended
def test_seek_shows_the_plan_of_the_choice_to_finish_or_give_up(page: Page) -> None:
    dag, site = "changefeed_ingest__page", page.site
    site.mysql.execute("INSERT INTO page.orders (n) VALUES (8)")
    path = "/changefeed/api/pipelines/page"
    with site.client() as client:
        run_id = client.post(f"{path}/run", json={}).json()["run_id"]
        task = f"/api/v2/dags/{dag}/dagRuns/{run_id}/taskInstances/ingest"
        wait_until(lambda: client.get(task).json()["state"] == "running", "the window is being published", WAIT)
        client.post(f"{path}/pause")  # the window is sealed then, and not committed
        wait_until(lambda: client.get(path).json()["dag"]["held"], "the run is held", WAIT)
        page.open("pipelines/page")
        open_action(page, "Seek")
        page.fill("to", "latest")
        page.click("dialog button", "Show what happens")
        page.find("dialog", "is published and committed first")
        assert "given up" not in page.find("dialog").text
        page.shot("seek-finish")
        page.click("dialog [name=finish]")
        page.find("dialog", ", is given up with ")
        assert "committed first" not in page.find("dialog").text
        page.shot("seek-give-up")
        client.post(f"{path}/resume")
    assert site.wait_for_run(dag, run_id)[""] == "success"


@pytest.mark.extended
def test_parked_table_returns_by_its_button_with_an_asset_event(page: Page) -> None:
    site, text = page.site, "CREATE TABLE broken.{} (id INT PRIMARY KEY, text LONGTEXT)"
    site.mysql.execute("CREATE DATABASE broken", text.format("notes"), text.format("orders"))
    file, position, *_ = site.mysql.execute("SHOW BINARY LOG STATUS")[0]
    path = site.pipelines / "parked.yaml"
    site.write_pipeline("parked", "broken", "on_table_error: park\n", "65232-65263")
    limited = 'partitions: 2\n  configs: {max.message.bytes: "20000"}'
    path.write_text(
        path.read_text().replace("start: latest", f"start: {file}:{position}").replace("partitions: 2", limited)
    )
    site.mysql.execute(
        "INSERT INTO broken.notes VALUES (1, 'a')", "INSERT INTO broken.orders VALUES (1, REPEAT('x', 30000))"
    )
    site.wait_for_dag("changefeed_ingest__parked", "changefeed_unpark__parked")
    assert site.run("changefeed_ingest__parked")[""] == "success"
    bootstrap, topic = site.kafka.bootstrap, "broken.orders"
    assert len(committed(bootstrap, "broken.notes")) == 1
    assert committed(bootstrap, topic) == []
    page.open("pipelines/parked")
    page.find(".problem", "Table broken.orders is parked")
    page.shot("parked")
    assert page.faults() == []
    with site.client() as client:
        assert client.post("/changefeed/api/pipelines/page/unpark", json={}).status_code == 409
        assert 'changefeed_parked_tables{pipeline="parked"} 1' in client.get("/changefeed/metrics").text
    settings = {"max.message.bytes": "1000000"}
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, settings)])
    admin.close()
    page.click(".problem button", "Unpark")
    started = page.find("#toasts", "started").text
    run_id = next(word for word in started.split() if "__" in word)
    states = site.wait_for_run("changefeed_unpark__parked", run_id)
    assert states == {"": "success", "plan": "success", "unpark": "success", "finish": "success"}
    wait_until(lambda: "is parked" not in page.find("main").text, "the page shows no parked table", WAIT)
    assert len(committed(bootstrap, topic)) == 1
    with site.client() as client:
        found = client.get("/api/v2/assets/events", params={"limit": 100, "order_by": "-timestamp"}).json()
    events = [event["extra"] for event in found["asset_events"] if event["extra"].get("pipeline") == "parked"]
    assert [(event["tables"], event["rows"], event["windows"]) for event in events] == [
        (["broken.orders"], 1, []),
        (["broken.notes"], 1, [1]),
    ]
    path.unlink()
    site.mysql.execute("DROP DATABASE broken")


@pytest.mark.extended
def test_records_and_columns_are_shown_after_a_snapshot_without_a_window(page: Page) -> None:
    site = page.site
    site.mysql.execute("CREATE DATABASE existing", "CREATE TABLE existing.notes (id INT PRIMARY KEY, text VARCHAR(9))")
    site.mysql.execute("INSERT INTO existing.notes VALUES (1, 'a'), (2, 'b')")
    site.write_pipeline("existing", "existing", server_ids="65264-65295")
    site.wait_for_dag("changefeed_snapshot__existing")
    assert site.run("changefeed_snapshot__existing")[""] == "success"
    page.open("pipelines/existing")
    page.find("section[aria-label=Windows]", "2 rows are published by snapshots")
    page.open("pipelines/existing/tables")
    assert "nothing published" not in page.find("section[aria-label=Topics] tr", "existing.notes").text
    assert page.find("section[aria-label=Topics] td time").get_attribute("datetime")
    page.find("section[aria-label=Schemas]", "text varchar")
    page.shot("after-snapshot")
    assert page.faults() == []
    (site.pipelines / "existing.yaml").unlink()
    site.mysql.execute("DROP DATABASE existing")


@pytest.mark.extended
def test_window_shows_its_time_and_links_to_its_run(page: Page) -> None:
    page.open("pipelines/page")
    link = page.find("section[aria-label=Windows] td a[href*='/dags/changefeed_ingest__page/runs/']")
    assert link.find_element(By.CSS_SELECTOR, "time").get_attribute("datetime")
    page.find("section[aria-label=Freshness]", "half of the time, and within")


@pytest.mark.extended
def test_older_windows_are_shown_by_hour_after_the_windows(page: Page) -> None:
    connection = KafkaConnection(page.site.kafka.bootstrap)
    sealed = Windows("page", "uuid", FIRST_HOUR * HOUR_MS, 60_000, ("page.orders",)).manifest(1)
    sums = replace(SealedPeriod.of_window(FIRST_HOUR, sealed), windows=3600, last=3600)
    CommitLog(connection, commit_log_topic("page"), "page").note(PeriodRecord(sums))
    page.open("pipelines/page")
    row = page.find("section[aria-label=Windows] tr", "#1 to #3600")
    assert "3,600" in row.text
    assert row.find_element(By.CSS_SELECTOR, "time").get_attribute("datetime") == "2025-11-24T16:00:00.000Z"
    assert page.find("section[aria-label=Windows] h3").text == "Older windows, by hour and day"
    with page.site.client() as client:
        answer = client.get("/changefeed/api/pipelines/page/windows").json()
    assert [(hour["hour"], hour["windows"]) for hour in answer["merged"]] == [(FIRST_HOUR, 3600)]
    assert all(window["window"]["number"] for window in answer["windows"])


@pytest.mark.extended
def test_records_over_rest_have_images_window_and_run_for_editors_only(page: Page) -> None:
    path = "/changefeed/api/pipelines/page/records"
    with page.site.client("vera") as viewer, page.site.client("ulf") as client:
        published = [one for one in client.get("/changefeed/api/pipelines/page/runs").json()["runs"] if one["windows"]]
        assert all(one["planned"] == len(one["windows"]) for one in published)
        assert "permission for PUT on DAG changefeed_ingest__page" in viewer.get(path).json()["detail"]
        topics = {one["topic"]: one["tables"] for one in client.get(path).json()["topics"]}
        assert topics["page.orders"] == ["page.orders"]
        found = client.get(path, params={"table": "page.orders", "key": '{"id":3}'}).json()
        last, *repeated, first = found["records"]  # a seek of another test repeats what it passes
        assert len(found["searched"]["partitions"]) == 1, "only the key's partition is read"
        assert {one["changes"][0]["op"] for one in (last, *repeated)} <= {"c", "u"}
        assert (last["changes"][0]["op"], first["changes"][0]["op"]) == ("u", "c")
        assert (last["changes"][0]["before"]["n"], last["changes"][0]["after"]["n"]) == ("76", "77")
        assert last["window"] > first["window"]
        assert last["run"]["href"].startswith("/dags/changefeed_ingest__page/runs/")
        for name in ("id", "coordinates"):
            params = {"topic": "page.orders", name: last[name]}
            same = client.get(path, params=params).json()["records"]
            assert (same[0]["partition"], same[0]["offset"]) == (last["partition"], last["offset"])
        params = {"topic": "page.orders", "since": "2999-01-01"}
        assert client.get(path, params=params).json()["records"] == []
        foreign = client.get(path, params={"topic": "rest.t"})
        assert (foreign.status_code, foreign.json()["error"]) == (422, "SettingsError")


@pytest.mark.extended
def test_records_are_searched_by_key_and_show_both_images(page: Page) -> None:
    width(page, 1280)
    page.open("pipelines/page/records")
    page.click("select[name=topic] option[value='page.orders']")
    page.find("input[name=key]").send_keys("3")
    page.click("button", "Show records")
    page.find("p[role=status]", "records. The search is complete.")
    page.click(".records summary", "update")
    row = page.find(".records td .changed", "77").find_element(By.XPATH, "./ancestor::tr").text
    assert row.split() == ["n", "76", "77", "changed"]
    assert page.find(".records dd a[href*='/dags/changefeed_ingest__page/runs/']").text.startswith("run ")
    for scheme, pixels in product(("light", "dark"), (1280, 390)):
        theme(page, scheme)
        width(page, pixels)
        page.shot(f"records-of-a-key-{pixels}-{scheme}")
        assert page.browser.execute_script("return document.documentElement.scrollWidth - innerWidth") <= 0
        assert page.faults() == []
    page.click("form summary", "More conditions")
    page.find("input[name=coordinates]").send_keys("nowhere")
    page.click("button", "Show records")
    page.find(".problem", "expected FILE:POSITION")
    page.shot("records-refused")
    assert page.faults() == []


@pytest.mark.extended
def test_dead_letter_has_its_reason_and_opens_a_replay_of_its_file_and_table(page: Page) -> None:
    site = page.site
    site.mysql.execute("CREATE DATABASE letters", "CREATE TABLE letters.notes (id INT PRIMARY KEY, text LONGTEXT)")
    file, place, *_ = site.mysql.execute("SHOW BINARY LOG STATUS")[0]
    path = site.pipelines / "letters.yaml"
    site.write_pipeline("letters", "letters", server_ids="65264-65295")
    settings = {
        "start: latest": f"start: {file}:{place}",
        "partitions: 2": 'partitions: 2\n  configs: {max.message.bytes: "20000"}',
        "connection: kafka_shop": "connection: kafka_shop\n  on_bad_record: dead_letter",
    }
    text = path.read_text()
    for before, after in settings.items():
        text = text.replace(before, after)
    path.write_text(text)
    try:
        large = [f"INSERT INTO letters.notes VALUES ({number}, REPEAT('x', 30000))" for number in (6, 7)]
        site.mysql.execute("XA START 'late'", large[1], "XA END 'late'", "XA PREPARE 'late'")
        site.mysql.execute("FLUSH BINARY LOGS", "XA COMMIT 'late'", large[0])
        commit = site.mysql.head().partition(":")[0]
        site.wait_for_dag("changefeed_ingest__letters")
        assert site.run("changefeed_ingest__letters")[""] == "success"
        page.open("pipelines/letters/records")
        page.click("select[name=topic] option[value='changefeed.letters.dead-letter']")
        page.find("main p", "until they are discarded")
        summary = page.find(".records summary", '{"id":7}')
        assert "letters.notes: its 30" in summary.text
        page.click(".records summary", '{"id":7}')
        page.find(".records dd", "letters.notes")
        shots(page, "dead-letter")
        page.click(".records button", "Retry")
        page.find("dialog p", f"Publishes the changes of letters.notes in {commit} again, not only this record.")
        assert page.find("dialog [name=from_file]").get_property("value") == commit != file, "of the XA COMMIT"
        assert page.find("dialog [name=tables]").get_property("value") == "letters.notes"
        shots(page, "dead-letter-retry")
        page.click("dialog button", "Show the plan")
        page.find("dialog table", "letters.notes.replay")
        page.click("dialog button[aria-label=Close]")
        discard_dead_letters(page)
    finally:
        path.unlink()
        site.mysql.execute("DROP DATABASE letters")


def discard_dead_letters(page: Page) -> None:
    """Discard the oldest of two dead letters, then the rest; History has both discards with their reasons."""
    for button, reason in (("Discard up to here", "replayed"), ("Discard all", "no longer needed")):
        page.open("pipelines/letters/records")
        page.click("select[name=topic] option[value='changefeed.letters.dead-letter']")
        page.find(".records summary", "dead letter")
        page.browser.find_elements(By.CSS_SELECTOR, ".records > details > summary")[-1].click()
        page.click("button", button)
        page.click("dialog button", "Show what is deleted")
        page.find("dialog table", "letters.notes")
        page.click("dialog button", "Delete the dead letters")
        page.find("dialog .mistake", "a value is required")
        page.fill("why", reason)
        shots(page, f"dead-letters-{button.split()[1]}")
        page.click("dialog button", "Delete the dead letters")
        page.find("#toasts", "deleted")
    page.find("p[role=status]", "The topic has no record")
    page.open("pipelines/letters/history")
    section = "section[aria-label=Discards] tr"
    assert page.find(section, "replayed").text.split()[-1] == "replayed"
    page.find(section, "no longer needed")
    page.shot("discards")
    assert page.faults() == []


@pytest.mark.extended
@pytest.mark.parametrize("pixels", [1280, 400])
def test_list_and_chart_are_legible_at_each_width(page: Page, pixels: int) -> None:
    width(page, pixels)
    page.open()
    page.find("[data-pipeline=page] svg")
    search, button = page.find("input[type=search]"), page.find("header a.button")
    assert abs(search.rect["y"] - button.rect["y"]) < 4, "search and button are in one line"
    if pixels < 800:
        checkpoint = page.find("article[data-pipeline=page] .coordinates .mono")
        assert checkpoint.rect["height"] < 30, "coordinates are in one line"
    page.shot(f"list-{pixels}")
    page.open("pipelines/page")
    number = page.find("section[aria-label=Windows] .chart svg text")
    drawn = page.browser.execute_script("return arguments[0].getBoundingClientRect().height", number)
    assert drawn > 10, "pixels of text"
    page.shot(f"windows-{pixels}")


@pytest.mark.extended
@pytest.mark.parametrize("pixels", [1280, 400])
def test_api_description_loads_nothing_from_the_internet(page: Page, pixels: int) -> None:
    width(page, pixels)
    page.browser.get(f"{page.site.airflow.url}/changefeed/docs")
    page.find("article", "/api/pipelines/{name}/seek/plan")
    page.shot(f"docs-{pixels}")
    fetched = page.browser.execute_script("return performance.getEntriesByType('resource').map((one) => one.name)")
    assert [name for name in fetched if not name.startswith(page.site.airflow.url)] == []
    assert page.browser.execute_script("return document.documentElement.scrollWidth - innerWidth") <= 0
    assert page.faults() == []


VIEWS: dict[str, Callable[[Page], object]] = {
    "": lambda page: page.find("[data-pipeline=page] svg"),
    "pipelines/page": lambda page: (
        page.find(".headline time"),
        page.find("section[aria-label=Freshness] svg"),
        page.find("section[aria-label=Activity] a", "window 2: "),
        page.find("section[aria-label=Windows] svg"),
        page.find(".tabbar a[aria-current]", "Overview"),
    ),
    "pipelines/page/tables": lambda page: (
        page.find("section[aria-label=Topics]", "page.orders"),
        page.find("section[aria-label=Schemas]", "name varchar utf8mb4_0900_ai_ci"),
        page.click("details[data-table='page.customers'] summary"),
        page.find("details[data-table='page.customers']", '"name":"text"'),
    ),
    "pipelines/page/runs": lambda page: page.find("section[aria-label=Runs] tr", "published"),
    "pipelines/page/history": lambda page: page.find("section[aria-label=Snapshots]", "None yet"),
    "pipelines/page/settings": lambda page: page.find("textarea"),
    "new": lambda page: page.find("textarea.code"),
    "pipelines/nosuch": lambda page: page.find("main", "Not found"),
}


@pytest.mark.extended
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("pixels", [1280, 390])
@pytest.mark.parametrize("view", VIEWS)
def test_each_view_is_accessible_and_fits(page: Page, view: str, pixels: int, scheme: str) -> None:
    theme(page, scheme)
    width(page, pixels)
    page.open(view)
    VIEWS[view](page)
    page.shot(f"{view.replace('/', '-') or 'list'}-{pixels}-{scheme}")
    assert page.browser.execute_script("return document.documentElement.dataset.theme") == scheme
    wide = page.browser.execute_script("return document.documentElement.scrollWidth - innerWidth")
    assert wide <= 0, "nothing is wider than the page"
    assert page.faults() == []


def answers(spark: str) -> bool:
    """Whether Spark's web page of a pipeline is at the address ``spark``."""
    try:
        return "changefeed" in httpx.get(spark, follow_redirects=True).text
    except httpx.TransportError:
        return False


@pytest.mark.extended
def test_run_under_way_is_shown_and_ends_by_its_button(page: Page) -> None:
    """It reads 4 MB at 100 kB/s, because a job logs its progress every ten seconds. The next run publishes the rest.

    Spark is started by spark-submit, with its web page.
    """
    dag, site = "changefeed_ingest__page", page.site
    file = site.pipelines / "page.yaml"
    text = file.read_text()
    slow = text.replace("source:\n", "source:\n  max_bytes_per_second: 100000\n")
    file.write_text(re.sub(r"(?m)^spark: .*$", 'spark: {conf: {spark.ui.enabled: "true"}}', slow))
    site.mysql.execute(
        "CREATE TABLE page.large (id INT PRIMARY KEY, text LONGTEXT)",
        "INSERT INTO page.large VALUES (0, 'a')",
        "FLUSH BINARY LOGS",
        *(f"INSERT INTO page.large VALUES ({number}, REPEAT('x', 800000))" for number in range(1, 6)),
    )
    run_id = site.trigger(dag)
    page.open("pipelines/page/runs")
    page.find("article.run .badge", "is at task ingest")
    cancel = page.find("article.run button", "Cancel")
    page.browser.execute_script("arguments[0].focus()", cancel)
    page.find("article.run dl", "Slices decoded\n0 of ")
    page.find("article.run dl", "Windows sealed\n0 of 1")
    assert page.browser.switch_to.active_element == cancel
    log = page.find("article.run a").get_attribute("href") or ""
    assert unquote(log).endswith(f"/dags/{dag}/runs/{run_id}/tasks/ingest")
    spark = page.find("article.run a", "Spark").get_attribute("href") or ""
    assert answers(spark)
    for scheme, pixels in product(("light", "dark"), (1280, 390)):
        theme(page, scheme)
        width(page, pixels)
        page.shot(f"run-under-way-{pixels}-{scheme}")
        assert page.browser.execute_script("return document.documentElement.scrollWidth - innerWidth") <= 0
        assert page.faults() == []
    cancel.click()
    page.find("dialog li", "The next run goes on with the rest")
    page.shot("cancel-390-dark")
    width(page, 1280)
    theme(page, "light")
    page.shot("cancel")
    assert page.faults() == []
    page.click("dialog button", "Cancel the run")
    page.find("#toasts", f"Run {run_id} cancelled")
    page.find("section[aria-label=Runs] tr", "failed in task ingest")
    wait_until(lambda: not page.browser.find_elements(By.CSS_SELECTOR, "article.run"), "no run is under way", WAIT)
    wait_until(lambda: not answers(spark), "the job of the run has ended", WAIT)
    file.write_text(text)
    assert site.run(dag)[""] == "success"
    assert len(committed(site.kafka.bootstrap, "page.large")) == 6
    site.mysql.execute("DROP TABLE page.large")
    check_pause_of_a_continuous_run(page, file)


def check_pause_of_a_continuous_run(page: Page, file: Path) -> None:
    """Pause ends the run under way, which would publish for ten minutes. The pipeline is not deleted before."""
    dag, text = "changefeed_ingest__page", file.read_text()
    file.write_text(text.replace("followers: [{connection: page_copy}]\n", "windows: {run_for: 10m}\n"))
    try:
        page.site.trigger(dag)
        page.open("pipelines/page/runs")
        page.find("article.run .badge", "is at task ingest")
        page.open("pipelines/page/settings")
        page.click("button.danger", "Delete")
        page.browser.switch_to.alert.accept()
        page.find(".problem", "Pause the pipeline, wait until the run has ended, then delete it")
        assert file.exists()
        page.shot("not-deleted")
        page.open("pipelines/page/runs")
        page.click(".actions button", "Pause")
        page.find("#toasts", "Paused: the run under way ends after its window")
        page.find(".actions button", "Resume")
        page.shot("pause")
        assert page.faults() == []
        ended = ("published", "nothing new")  # it may have published the DDL of the last test step before the pause
        wait_until(lambda: page.find("article.run .badge").text in ended, "the run has ended", WAIT)
    finally:
        file.write_text(text)
    page.click(".actions button", "Resume")
    page.find(".actions button", "Pause")


@pytest.mark.extended
def test_absent_server_is_one_banner_above_the_last_known_values(page: Page) -> None:
    width(page, 1280)
    page.open("pipelines/page")
    page.find("section[aria-label=Windows] svg")
    lag = page.find(".facts dd").text
    page.open("pipelines/page/tables")
    page.find("section[aria-label=Topics]", "page.orders")
    page.find("section[aria-label=Tables]", "page.customers")
    move_source(page.site, 1)
    try:
        page.find(".problem", "A server does not answer")
        page.open("pipelines/page")  # what the API server knows, not the page
        banner = page.find(".problem", "What is shown are the last known values, read").text
        assert "127.0.0.1:1 cannot be reached" in banner
        page.find("header .badge", "no answer")
        page.find("section[aria-label=Windows] svg")
        text = page.find("main").text
        shown = [each.text for each in page.browser.find_elements(By.CSS_SELECTOR, ".problem")]
        assert len([each for each in shown if "A server does not answer" in each]) == 1, shown
        assert "No table matches" not in text
        assert page.find(".facts dd").text.split("\n")[0] == lag.split("\n")[0] != "–"
        page.shot("source-absent")
        assert page.faults() == []
        page.open("pipelines/page/tables")
        page.find("section[aria-label=Topics]", "page.orders")
        page.find("section[aria-label=Tables]", "page.customers")
        width(page, 700)
        page.open()
        assert page.find(".problem", "A server does not answer").text.count("cannot be reached") == 1
        page.find("article[data-pipeline=page]", "Last known, read")
        page.shot("list-source-absent")
        assert page.faults() == []
        width(page, 1280)
        page.open("pipelines/page")
        page.find(".problem", "A server does not answer")
    finally:
        move_source(page.site, page.site.mysql.port)
    wait_until(lambda: "does not answer" not in page.find("main").text, "the banner is gone", WAIT)


@pytest.mark.extended
def test_unreachable_airflow_is_reported_and_retried(page: Page) -> None:
    page.open()
    page.find("[data-pipeline]")
    page.browser.execute_cdp_cmd("Network.enable", {})
    page.browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["*/changefeed/api/*"]})
    try:
        page.browser.execute_script("location.hash = '#/pipelines/page'")
        page.find(".problem", "Airflow does not answer")
        page.shot("no-answer")
    finally:
        page.browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})
    page.click(".problem button", "Try again")
    page.find("section[aria-label=Windows] svg")


@pytest.mark.extended
def test_foreign_page_changes_nothing_with_this_browsers_cookie(page: Page) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as elsewhere:
        threading.Thread(target=elsewhere.serve_forever, daemon=True).start()
        page.browser.get(f"http://127.0.0.1:{elsewhere.server_port}/none")  # browsers ignore the port of a site
        attack = """
            const [url, done] = arguments;
            const asked = { method: "POST", mode: "no-cors", credentials: "include" };
            const send = (path, body) => fetch(url + path, { ...asked, body });
            Promise.all([send("/pause"), send("/run", "{}")]).then(() => done("sent"), (error) => done(String(error)));
        """
        url = f"{page.site.airflow.url}/changefeed/api/pipelines/page"
        assert page.browser.execute_async_script(attack, url) == "sent"
        elsewhere.shutdown()
    with page.site.client() as client:
        dag = client.get("/changefeed/api/pipelines/page").json()["dag"]
    assert (dag["paused"], dag["running"]) == (False, [])


@pytest.mark.extended
def test_page_requires_a_login(page: Page) -> None:
    with page.site.client(None) as nobody:
        answer = nobody.get("/changefeed/")
        assert answer.status_code == 307
        assert nobody.get("/changefeed/api/pipelines").status_code == 401


def test_no_script_failed(page: Page) -> None:
    severe = [one for one in page.browser.get_log("browser") if one["level"] == "SEVERE"]
    ours = [one["message"] for one in severe if ".js" in one["message"] and "Failed to load" not in one["message"]]
    assert ours == []
