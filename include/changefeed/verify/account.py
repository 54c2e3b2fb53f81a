"""The last comparisons of a pipeline, as its commit log keeps them."""

from __future__ import annotations

from changefeed.endpoints.endpoints import Endpoints
from changefeed.kafka.commit_log import CommitLogState
from changefeed.kafka.log_record import VerifyRecord
from changefeed.verify.report import VerifyReport


def keep(endpoints: Endpoints, report: VerifyReport) -> None:
    """Write ``report`` to the commit log, in place of the last one of the same server. It holds no row's values."""
    endpoints.commit_log().keep(VerifyRecord(report.follower, report.to_json()))


def last_reports(state: CommitLogState) -> list[VerifyReport]:
    """The last report of the source and of each follower, latest first."""
    reports = [VerifyReport.from_json(dict(record.report)) for record in state.of(VerifyRecord)]
    return sorted(reports, key=lambda report: -report.finished_at_ms)
