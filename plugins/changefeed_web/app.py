"""The application: REST below /api, the page at /, OpenAPI at /docs."""

from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles

from changefeed.errors import BinlogGoneError, ChangefeedError, CheckpointError, RetryableError, TerminalError
from changefeed_web import actions, history, metrics, pipelines

PAGE = Path(__file__).parent / "page"

_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",
}


def create_app() -> FastAPI:
    """Made once, by the API server's first request to it."""
    app = FastAPI(
        title="changefeed",
        description="Pipelines that publish MySQL's row changes to Kafka. Tokens and permissions are Airflow's.",
        version="1",
        docs_url=None,  # FastAPI's own loads its scripts from the internet
        redoc_url=None,
    )
    for part in (pipelines, actions, history, metrics):
        app.include_router(part.router, prefix="/api" if part is not metrics else "")
    app.add_exception_handler(ChangefeedError, _told)
    app.mount("/static", StaticFiles(directory=PAGE), name="static")
    app.add_api_route("/", _page, include_in_schema=False)
    app.add_api_route("/docs", _docs, include_in_schema=False)
    return app


async def _page(request: Request) -> Response:
    """The page, which has no data in it; whoever is not logged in is sent to the login."""
    from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN

    if not request.cookies.get(COOKIE_NAME_JWT_TOKEN) and not request.headers.get("Authorization"):
        return RedirectResponse("/")
    return FileResponse(PAGE / "index.html", headers=_HEADERS)


async def _docs() -> Response:
    """The description of the REST API, for people; the machine's is /openapi.json."""
    return FileResponse(PAGE / "docs.html", headers=_HEADERS)


async def _told(_: Request, error: Exception) -> Response:
    """Our errors as they are: what was wanted, what was found, what to do."""
    status = 500
    if isinstance(error, RetryableError):
        status = 503
    elif isinstance(error, BinlogGoneError):
        status = 410
    elif isinstance(error, CheckpointError):
        status = 409
    elif isinstance(error, TerminalError):
        status = 422
    return JSONResponse({"detail": str(error), "error": type(error).__name__}, status)
