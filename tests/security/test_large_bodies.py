"""Bodies are read before anybody knows who sends them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from airflow_site import Site

from changefeed_web.bodies import LONGEST

ROUTES = [
    ("POST", "pipelines"),
    ("PUT", "pipelines/idle"),
    *(
        ("POST", f"pipelines/idle/{what}")
        for what in ("run", "seek", "seek/plan", "backfill", "backfill/plan", "snapshot", "snapshot/plan")
    ),
]


def pieces(size: int) -> Iterator[bytes]:
    """A body of that size, whose length no header says."""
    yield b'{"yaml": "'
    for _ in range(size // 65536):
        yield b"a" * 65536
    yield b'"}'


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_stranger_fills_no_memory_by_a_long_body(airflow_site: Site, method: str, path: str) -> None:
    headers = {"Content-Type": "application/json"}
    with airflow_site.client(None) as anybody:
        url = f"/changefeed/api/{path}"
        assert anybody.request(method, url, content=pieces(LONGEST // 2), headers=headers).status_code == 401
        answer = anybody.request(method, url, content=pieces(LONGEST + 65536), headers=headers)
        assert answer.status_code == 413, answer.text
