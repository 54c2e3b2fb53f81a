"""Request bodies are read before the login is checked, so their size is limited."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from airflow_site import Site

from changefeed_web.bodies import MAX_BODY_BYTES

ROUTES = [
    ("POST", "pipelines"),
    ("PUT", "pipelines/idle"),
    *(
        ("POST", f"pipelines/idle/{what}")
        for what in ("run", "seek", "seek/plan", "backfill", "backfill/plan", "snapshot", "snapshot/plan")
    ),
]


def chunks(size: int) -> Iterator[bytes]:
    """A body of about ``size`` bytes, sent without a Content-Length header."""
    yield b'{"yaml": "'
    for _ in range(size // 65536):
        yield b"a" * 65536
    yield b'"}'


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_large_body_without_a_login_is_refused(airflow_site: Site, method: str, path: str) -> None:
    headers = {"Content-Type": "application/json"}
    with airflow_site.client(None) as anybody:
        url = f"/changefeed/api/{path}"
        assert anybody.request(method, url, content=chunks(MAX_BODY_BYTES // 2), headers=headers).status_code == 401
        answer = anybody.request(method, url, content=chunks(MAX_BODY_BYTES + 65536), headers=headers)
        assert answer.status_code == 413, answer.text
