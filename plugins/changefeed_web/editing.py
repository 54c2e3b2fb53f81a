"""REST routes for editors of a pipeline's YAML."""

from typing import Any

from fastapi import APIRouter

from changefeed.settings.settings_schema import settings_schema
from changefeed_web.access import GetUserDep

router = APIRouter(tags=["pipelines"])


@router.get("/settings-schema")
def get_settings_schema(_: GetUserDep) -> dict[str, Any]:
    """The JSON schema of a pipeline's YAML, with a description of each key."""
    return settings_schema()
