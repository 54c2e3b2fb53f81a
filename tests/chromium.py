"""A headless Chromium that is logged in to Airflow, for the browser tests and the benchmark of the list."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from selenium import webdriver
from selenium.webdriver.common.by import By

from devstack.chromium import fetch_chromium
from devstack.home import Home

ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,1000")
LOGIN_SECONDS = 240


@contextmanager
def chromium(url: str, user: str, password: str) -> Iterator[webdriver.Chrome]:
    """A browser that is logged in to the Airflow at ``url``. It ends with the block."""
    software = fetch_chromium(Home.default())
    options = webdriver.ChromeOptions()
    options.binary_location = str(software.browser)
    for argument in ARGUMENTS:
        options.add_argument(argument)
    env = {**os.environ, **({"LD_LIBRARY_PATH": software.libraries} if software.libraries else {})}
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(software.driver), env=env))
    browser.set_script_timeout(LOGIN_SECONDS)
    browser.set_page_load_timeout(LOGIN_SECONDS)
    try:
        browser.get(f"{url}/auth/login")
        _wait(lambda: bool(browser.find_elements(By.NAME, "username")), "the login page")
        browser.find_element(By.NAME, "username").send_keys(user)
        browser.find_element(By.NAME, "password").send_keys(password)
        browser.find_element(By.CSS_SELECTOR, "button[type=submit]").click()
        _wait(lambda: browser.get_cookie("_token") is not None, "a login")
        yield browser
    finally:
        browser.quit()


def _wait(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + LOGIN_SECONDS
    while not condition():
        assert time.monotonic() < end, f"expected within {LOGIN_SECONDS} seconds: {what}"
        time.sleep(0.2)
