"""Who may read the metrics: a user of Airflow, or the holder of the site's scrape token, which gives no other right."""

import hmac
import logging
import re
import threading
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

from airflow.api_fastapi.core_api.security import bearer_scheme, get_user
from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPAuthorizationCredentials

from changefeed.airflow.connections import server_lookup
from changefeed.errors import ChangefeedError, SettingsError
from changefeed.settings.site import load_site
from changefeed_web.access import has_permission

REREAD_SECONDS = 10
"""How long a token is used before it is read again. So requests with a wrong token are no load for a secrets backend,
and an error is logged once in that time."""

_reading = threading.Lock()
_TOKEN = re.compile(r"[!-~]{32,}")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class MetricsReader:
    """A client that may read metrics: a user of Airflow, or the holder of the scrape token, who is no user."""

    user: Any = None
    has_scrape_token: bool = False

    def may_read(self, dag_id: str) -> bool:
        """Whether the client may read the metrics of the pipeline with this ingest DAG."""
        return self.has_scrape_token or has_permission(self.user, "GET", dag_id)


async def metrics_reader(
    request: Request, bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer_scheme)]
) -> MetricsReader:
    """The client of a request for metrics. Answers 401 or 403, as Airflow does, if it is neither."""
    if bearer is not None and await run_in_threadpool(is_scrape_token, bearer.credentials):
        return MetricsReader(has_scrape_token=True)
    return MetricsReader(await get_user(request, None, bearer))


MetricsReaderDep = Annotated[MetricsReader, Depends(metrics_reader)]


def is_scrape_token(text: str) -> bool:
    """Whether ``text`` is the site's scrape token. False if the site has none, or it cannot be used."""
    with _reading:  # one request reads it, and the others wait
        expected = _token_at(int(time.monotonic() // REREAD_SECONDS))
    return expected is not None and hmac.compare_digest(expected, text.encode())


@lru_cache(maxsize=1)
def _token_at(_period: int) -> bytes | None:
    try:
        where = load_site().scrape_token
        return None if where is None else _check_token(where.read(server_lookup))
    except ChangefeedError as error:
        _log.error("scrape_token of the site's file cannot be used, and requests with it are refused: %s", error)
        return None
    except Exception as error:  # of a secrets backend or Airflow's database; its text may have a secret
        _log.error("scrape_token of the site's file cannot be read: %s", type(error).__name__)
        return None


def _check_token(token: str) -> bytes:
    """The token's bytes. Raises SettingsError, without the token, if it is too short or no header can contain it."""
    if not _TOKEN.fullmatch(token):
        raise SettingsError(
            f"expected at least 32 characters, printable ASCII without spaces, found {len(token)} characters that do "
            "not fit. Create a token with `openssl rand -hex 32`"
        )
    return token.encode()
