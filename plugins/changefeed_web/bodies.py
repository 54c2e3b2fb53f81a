"""Bodies of requests. Those of actions are the models of `changefeed.settings.requests`. Nothing unknown passes."""

from typing import Annotated

from fastapi import HTTPException
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LONGEST = 4 << 20
"""Bytes of a request's body. A pipeline's file of 200,000 characters has no more, however its JSON writes them."""


class BoundedBodies:
    """ASGI middleware that answers 413 to a body of more than `LONGEST` bytes, and keeps no more of it in memory.

    Bodies are read before it is known whose they are: without a bound anybody could fill the API server.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, counting what is read of it."""
        size = 0

        async def received() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > LONGEST:
                raise HTTPException(413, f"the body is longer than {LONGEST:,} bytes")
            return message

        await self._app(scope, received, send)


class PipelineBody(BaseModel):
    """A pipeline's file."""

    model_config = ConfigDict(extra="forbid")

    yaml: Annotated[str, Field(min_length=1, max_length=200_000, examples=["name: shop\nsource: …"])]
