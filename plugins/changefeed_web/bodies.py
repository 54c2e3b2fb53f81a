"""Bodies of requests. Nothing unknown passes."""

from typing import Annotated

from fastapi import HTTPException
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from changefeed.snapshot.request import SnapshotRequest
from changefeed.upkeep.backfill_request import BackfillRequest, GtidText, Short, TablePatterns

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


class Body(BaseModel):
    """The body of a request: a field that is not known is refused."""

    model_config = ConfigDict(extra="forbid")


class PipelineBody(Body):
    """A pipeline's file."""

    yaml: Annotated[str, Field(min_length=1, max_length=200_000, examples=["name: shop\nsource: …"])]


class RunBody(Body):
    """Bounds of one run."""

    max_bytes: Annotated[int, Field(gt=0, lt=2**63)] | None = None
    max_seconds: Annotated[int, Field(gt=0, lt=2**31)] | None = None
    until: Annotated[str, Field(pattern=r"^.+\.\d{6,10}:\d{1,19}$", max_length=1000)] | None = None


class SeekBody(Body):
    """Where to: earliest, latest, FILE:POSITION, a GTID set, or a time."""

    to: Annotated[str, Field(min_length=1, max_length=60_000)]
    why: Annotated[str, Field(max_length=2000)] = ""
    expected: Short | None = None
    """Where the caller saw the checkpoint; refused when it moved."""
    finish: bool = False
    """Publish and commit what an earlier run left unfinished before the checkpoint moves, instead of giving it up."""


class BackfillBody(Body):
    """A range in one of four forms, the tables, and where the messages go."""

    from_file: Short | None = None
    to_file: Short | None = None
    from_coordinates: Short | None = None
    to_coordinates: Short | None = None
    gtids: GtidText | None = None
    from_time: Short | None = None
    to_time: Short | None = None
    tables: TablePatterns = []
    suffix: str = ".replay"
    archive: str | None = None

    def request(self, pipeline: str) -> BackfillRequest:
        """The backfill that is asked for."""
        return BackfillRequest.of({"pipeline": pipeline, **self.model_dump()})


class SnapshotBody(Body):
    """The tables whose rows are published, which of their rows, and how fast."""

    tables: TablePatterns = []
    where: Annotated[str, Field(max_length=10_000)] | None = None
    rows_per_second: Annotated[int, Field(gt=0, lt=2**31)] | None = None
    connections: Annotated[int, Field(gt=0, lt=2**15)] | None = None
    chunk_rows: Annotated[int, Field(gt=0, lt=2**31)] | None = None
    changed_keys: Annotated[int, Field(gt=0, lt=2**31)] | None = None

    def request(self, pipeline: str) -> SnapshotRequest:
        """The snapshot that is asked for."""
        return SnapshotRequest.of({"pipeline": pipeline, **self.model_dump()})


class VerifyBody(Body):
    """Which tables are compared, how many of their rows and of which server, and for how long the pipeline's runs are
    waited for."""

    tables: TablePatterns = []
    sample_percent: Annotated[int, Field(ge=1, le=100)] = 100
    follower: Annotated[str, Field(max_length=250)] | None = None
    """One of the pipeline's `followers`, whose rows are compared in place of the source's."""
    wait_seconds: Annotated[int, Field(ge=0, le=86_400)] = 900
