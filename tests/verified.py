"""A comparison without Spark: its stages one after another in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from changefeed.coordinates import BinlogCoordinates
from changefeed.endpoints.endpoints import Endpoints
from changefeed.verify.comparison import compare
from changefeed.verify.entries import Entries
from changefeed.verify.job import PartitionPiece, TableChunk, VerifyJob
from changefeed.verify.judged import Judged, judged
from changefeed.verify.judgement import Judge
from changefeed.verify.plan import plan_verify
from changefeed.verify.report import VerifyReport
from changefeed.verify.request import VerifyRequest
from changefeed.verify.server_rows import ChunkReport, ServerRows
from changefeed.verify.topic_rows import PartitionReport, TopicRows


class InlineStages:
    """`Stages` in lists."""

    def __init__(self) -> None:
        self.entries: list[Entries] = []

    def read_server(self, job: VerifyJob, chunks: Sequence[TableChunk], expected_bytes: int) -> list[ChunkReport]:
        assert expected_bytes >= 0
        self.entries = []
        with ServerRows(job) as server:
            return self._kept(item for chunk in chunks for item in server.read(chunk))

    def read_topics(self, job: VerifyJob, pieces: Sequence[PartitionPiece]) -> list[PartitionReport]:
        topics = TopicRows(job)
        return self._kept(item for piece in pieces for item in topics.read(piece))

    def judged(self, judge: Judge) -> Judged:
        found = Judged()
        if self.entries:
            for _, bucket in Entries.joined(self.entries).buckets(2):
                found.add(judged(judge, Entries.from_bytes(bytearray(bucket.to_bytes()))))
        return found

    def _kept(self, items: Any) -> list[Any]:
        reports = []
        for item in items:
            if isinstance(item, Entries):
                self.entries.append(item)
            else:
                reports.append(item)
        return reports


def verified(
    endpoints: Endpoints, published: Callable[[BinlogCoordinates], None] = lambda _: None, **asked: Any
) -> VerifyReport:
    """A comparison whose pipeline has published what the source has, unless ``published`` sees to that."""
    request = VerifyRequest.of({name: value for name, value in asked.items() if name != "chunk_rows"})
    planned = plan_verify(endpoints, request, chunk_rows=asked.get("chunk_rows", 20_000))
    return compare(planned.job, planned.chunks, InlineStages(), published)
