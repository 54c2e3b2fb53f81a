"""The forms of our DAGs: typed parameters, and refusing those that are not on the form."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Param, get_current_context

from changefeed.errors import SettingsError

_WHOLE_NUMBER: dict[str, Any] = {"type": ["null", "integer"], "minimum": 1}
_TEXT: dict[str, Any] = {"type": ["null", "string"]}
_COORDINATES: dict[str, Any] = {"type": ["null", "string"], "pattern": r"^.+\.\d{6,}:\d+$"}
_TIME: dict[str, Any] = {"type": ["null", "string"], "format": "date-time"}
_FILE: dict[str, Any] = {"type": ["null", "string"], "pattern": r"^.+\.\d{6,}$"}
_ARCHIVE: dict[str, Any] = {
    "type": ["null", "string"],
    "pattern": r"^(?![\s\S]*::)(/[^\r\n]*|[A-Za-z][A-Za-z0-9+.-]*://[^@?#%\r\n]*)$",
}
"""A path or a URL without a user, a query or a chain: what is refused here is not stored with the run. Which of those
may be read, `site_archive` says."""

RANGE, DESTINATION = "Range: one of the four forms", "What, and where to"


def ingest_params() -> dict[str, Param]:
    """The form of a run of the ingest DAG: what bounds it."""
    return {
        "max_bytes": Param(
            None, title="At most so many bytes", description="Of binlog; ends at the commit before it.", **_WHOLE_NUMBER
        ),
        "max_seconds": Param(
            None,
            title="At most so many seconds",
            description="Of a long backlog no further window is begun after so long.",
            **_WHOLE_NUMBER,
        ),
        "until": Param(
            None,
            title="Until",
            description="FILE:POSITION that the run does not go past; a commit boundary.",
            **_COORDINATES,
        ),
    }


def backfill_params() -> dict[str, Param]:
    """The form of a backfill: its range, tables and topics."""

    def text(title: str, description: str, section: str, **schema: Any) -> Param:
        return Param(None, title=title, description_md=description, section=section, **schema)

    return {
        "from_file": text("From file", "First binlog file, as in `binlog.000012`.", RANGE, **_FILE),
        "to_file": text("To file", "Last binlog file, included; the first one where it is empty.", RANGE, **_FILE),
        "from_coordinates": text("From coordinates", "`FILE:POSITION`, a commit boundary.", RANGE, **_COORDINATES),
        "to_coordinates": text("To coordinates", "`FILE:POSITION`, not included.", RANGE, **_COORDINATES),
        "gtids": text("GTIDs", "The shortest range that holds all of this GTID set.", RANGE, **_TEXT),
        "from_time": text("From time", "First transaction written then or later.", RANGE, **_TIME),
        "to_time": text("To time", "Not included; now where it is empty.", RANGE, **_TIME),
        "tables": _tables(section=DESTINATION),
        "suffix": Param(
            ".replay",
            type=["null", "string"],
            pattern=r"^(\.[a-zA-Z0-9._-]{1,60})?$",
            title="Suffix of the topics",
            description_md="`.replay` publishes `shop.orders` to `shop.orders.replay`. Empty: **the live topics**.",
            section=DESTINATION,
        ),
        "archive": text(
            "Archived files",
            "Folder or URL with `mysqlbinlog --raw` output, readable by Spark's workers, below one that the "
            "administrator allows; without a user, a password or a query. Empty: the server.",
            DESTINATION,
            **_ARCHIVE,
        ),
    }


def _tables(**settings: Any) -> Param:
    return Param(
        [],
        type="array",
        items={"type": "string"},
        title="Tables",
        description_md="Patterns such as `shop.*`, one a line, of what the pipeline captures. All where empty.",
        **settings,
    )


def snapshot_params() -> dict[str, Param]:
    """The form of a snapshot: which tables and rows, and how fast."""
    return {
        "tables": _tables(),
        "where": Param(
            None,
            title="Where",
            description_md="Only rows for which this is true, as in `id > 1000 AND status = 'open'`. All where empty.",
            **_TEXT,
        ),
        "rows_per_second": Param(None, title="At most so many rows a second", **_WHOLE_NUMBER),
        "connections": Param(
            None,
            title="At most so many connections",
            description="Over which rows are read at the same time. As many as Spark has cores where empty.",
            **_WHOLE_NUMBER,
        ),
        "chunk_rows": Param(
            None,
            title="At most so many rows in a chunk",
            description="A chunk is what is published at once. Its size follows the time that it takes.",
            **_WHOLE_NUMBER,
        ),
        "changed_keys": Param(
            None,
            title="At most so many changed keys",
            description="Of rows whose changes no window has published yet, held in memory. A million where empty.",
            **_WHOLE_NUMBER,
        ),
    }


def seek_params() -> dict[str, Param]:
    """The form of a seek: its target and reason, and whether it shall be done."""
    return {
        "to": Param(
            "",
            type="string",
            title="To",
            description_md="`earliest`, `latest`, `FILE:POSITION`, a GTID set, or a time (`2026-01-31T12:00:00Z`).",
            minLength=1,
        ),
        "why": Param("", type="string", title="Why", description_md="Kept in the record of seeks.", minLength=1),
        "expected": Param(
            None,
            title="From",
            description_md="Where the checkpoint is now; the seek is refused when it moved. Empty: wherever it is.",
            **_COORDINATES,
        ),
        "finish": Param(
            False,
            type="boolean",
            title="Finish what is unfinished first",
            description_md="Publish and commit what an earlier run began, as it was frozen, before the checkpoint "
            "moves. Off: it is given up, and what of it is in Kafka may come twice, as `plan_seek` says.",
        ),
        "apply": Param(
            False,
            type="boolean",
            title="Move the checkpoint",
            description_md="Off: only show in the log of `plan_seek` what would be skipped or repeated.",
        ),
    }


def verify_params(followers: Sequence[str]) -> dict[str, Param]:
    """The form of a comparison: which tables, how much of them, and whose, where the pipeline has ``followers``."""
    return {
        "tables": _tables(),
        **({"follower": _follower(followers)} if followers else {}),
        "sample_percent": Param(
            100,
            type="integer",
            minimum=1,
            maximum=100,
            title="Sample",
            description_md="Percent of the chunks that are read. A sample never proves that all is equal.",
        ),
        "wait_seconds": Param(
            900,
            type="integer",
            minimum=0,
            maximum=86_400,
            title="Wait for runs",
            description_md="For the pipeline's own runs to publish what the source had when it was read.",
        ),
    }


def _follower(followers: Sequence[str]) -> Param:
    return Param(
        "",
        type="string",
        enum=["", *followers],
        title="Rows of",
        values_display={"": "the source", **{name: f"follower {name}" for name in followers}},
        description_md="Whose rows are compared with the topics': the source's, or a follower's where it stands.",
    )


def given_params(known: Mapping[str, Any]) -> dict[str, Any]:
    """The run's parameters; raises SettingsError for a key of its conf that is not on the form.

    Airflow checks the values that are on the form and lets every other key pass.
    """
    context = get_current_context()
    conf = context["dag_run"].conf or {}
    for key in conf:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            meant = f" (did you mean {near[0]!r}?)" if near else ""
            raise SettingsError(
                f"the run was given {key!r}, which is not a parameter{meant}; valid: {', '.join(known)}"
            )
    params = context["params"]
    return {key: params[key] for key in known if key in params}
