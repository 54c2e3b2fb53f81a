"""The FastAPI application: the page at /, the REST API below /api, its description at /docs and /openapi.json."""

from pathlib import Path
from typing import Any

from airflow.api_fastapi.core_api.security import bearer_scheme, get_user
from airflow.configuration import conf
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles

from changefeed.errors import BinlogGoneError, ChangefeedError, CheckpointError, RetryableError, TerminalError
from changefeed.settings.site import load_site
from changefeed_web import actions, checks, editing, history, metrics, pipelines, records
from changefeed_web.access import GetUserDep
from changefeed_web.bodies import BoundedBodies
from changefeed_web.examples import add_examples
from changefeed_web.headers import SecurityHeaders
from changefeed_web.origins import Hosts, OriginCheck
from changefeed_web.slots import RETRY_AFTER_SECONDS

PAGE = Path(__file__).parent / "page"


def create_app() -> FastAPI:
    """A new application. Raises SettingsError if the site file is invalid."""
    hosts = Hosts.of(conf.get("api", "base_url", fallback="") or "", load_site().hosts)
    app = _Api(
        title="changefeed",
        description="Pipelines that publish MySQL's row changes to Kafka. Send a token of Airflow as "
        "`Authorization: Bearer`; "
        "permissions are Airflow's.",
        version="1",
        docs_url=None,  # FastAPI's own page loads scripts from the internet
        redoc_url=None,
        openapi_url=None,  # FastAPI's own route requires no login
    )
    for part in (pipelines, checks, editing, actions, history, records, metrics):
        app.include_router(part.router, prefix="/api" if part is not metrics else "")
    app.add_exception_handler(ChangefeedError, _answer_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid_request)
    app.mount("/static", StaticFiles(directory=PAGE), name="static")
    app.add_api_route("/", _page, include_in_schema=False)
    app.add_api_route("/docs", _docs, include_in_schema=False)
    app.add_api_route("/openapi.json", _openapi, include_in_schema=False)
    app.add_middleware(BoundedBodies)
    app.add_middleware(
        OriginCheck, hosts=hosts, all_admins=conf.getboolean("core", "simple_auth_manager_all_admins", fallback=False)
    )
    app.add_middleware(SecurityHeaders)  # added last, so it is the outermost
    return app


class _Api(FastAPI):
    """Describes itself with examples."""

    def openapi(self) -> dict[str, Any]:
        return add_examples(super().openapi())


async def _page(request: Request) -> Response:
    """The page, without data: its scripts call the REST API."""
    return await _serve_logged_in(request, "index.html")


async def _docs(request: Request) -> Response:
    """The description of the REST API for people; programs use /openapi.json."""
    return await _serve_logged_in(request, "docs.html")


async def _serve_logged_in(request: Request, file: str) -> Response:
    """A file of the page; a redirect to the login for users who are not logged in."""
    try:
        await get_user(request, None, await bearer_scheme(request))
    except HTTPException:
        return RedirectResponse("/")
    return FileResponse(PAGE / file)


def _openapi(request: Request, _: GetUserDep) -> dict[str, Any]:
    """The OpenAPI document of the REST API."""
    api: FastAPI = request.app
    return api.openapi()


async def _answer_error(_: Request, error: Exception) -> Response:
    """The answer to a ChangefeedError: its message, and a status by its class."""
    status = 500
    if isinstance(error, RetryableError):
        status = 503
    elif isinstance(error, BinlogGoneError):
        status = 410
    elif isinstance(error, CheckpointError):
        status = 409
    elif isinstance(error, TerminalError):
        status = 422
    headers = {"Retry-After": str(RETRY_AFTER_SECONDS)} if status == 503 else {}
    return JSONResponse({"detail": str(error), "error": type(error).__name__}, status, headers)


async def _answer_invalid_request(_: Request, error: Exception) -> Response:
    """The answer to an invalid request: location and message of each error.

    Values are left out: they may be secrets.
    """
    assert isinstance(error, RequestValidationError)
    errors = [
        {"type": one["type"], "loc": one["loc"], "msg": one["msg"].removeprefix("Value error, ")}
        for one in error.errors()
    ]
    return JSONResponse({"detail": errors}, 422)
