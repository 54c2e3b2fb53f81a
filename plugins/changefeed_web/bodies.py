"""Request bodies. Bodies of actions are the models of `changefeed.settings.requests`. Unknown fields are refused."""

from typing import Annotated

from fastapi import HTTPException
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 4 << 20
"""Largest request body in bytes. The JSON of a pipeline file of 200,000 characters fits, however it is escaped."""


class BoundedBodies:
    """ASGI middleware that answers 413 to a body of more than `MAX_BODY_BYTES` bytes and stores no more than that.

    Bodies are read before the login is checked: without a limit, clients could fill the API server's memory.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and count the bytes that are read."""
        size = 0

        async def receive_within_limit() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > MAX_BODY_BYTES:
                raise HTTPException(
                    413, f"the body is larger than {MAX_BODY_BYTES:,} bytes, the limit. Nothing was done"
                )
            return message

        await self._app(scope, receive_within_limit, send)


class PipelineBody(BaseModel):
    """The YAML of a pipeline."""

    model_config = ConfigDict(extra="forbid")

    yaml: Annotated[
        str,
        Field(
            min_length=1,
            max_length=200_000,
            description="The complete text of the pipeline's YAML file, at most 200,000 characters.",
        ),
    ]
