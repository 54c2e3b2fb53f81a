"""The Airflow plugin: a page in the navigation, and a REST API. Every Airflow process loads it, so imports are lazy."""

from pathlib import Path
from typing import Any

from airflow.plugins_manager import AirflowPlugin

PREFIX = "/changefeed"


class LazyApp:
    """An ASGI application that is created by its first request."""

    def __init__(self) -> None:
        self._app: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._app is None:
            from changefeed_web.app import create_app

            self._app = create_app()
        await self._app(scope, receive, send)


class ChangefeedPlugin(AirflowPlugin):
    """Registers the page and the REST API with Airflow."""

    name = "changefeed"
    fastapi_apps: list[Any] = [{"app": LazyApp(), "url_prefix": PREFIX, "name": "changefeed"}]  # noqa: RUF012 - as Airflow declares it
    external_views: list[Any] = [  # noqa: RUF012 - as Airflow declares it
        {
            "name": "Changefeed",
            "href": f"{PREFIX}/",
            "destination": "nav",
            "url_route": "changefeed",
            "icon": f"{PREFIX}/static/icon.svg",
            "icon_dark_mode": f"{PREFIX}/static/icon-dark.svg",
        }
    ]


installed = None if Path(__file__).parent.name == "plugins" else ChangefeedPlugin
"""The package's entry point. None in a checkout, where Airflow loads the plugin from its plugins folder."""
