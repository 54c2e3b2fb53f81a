"""Changes as JSON lines: input and output for trying a function without a source."""

from __future__ import annotations

from datetime import UTC, datetime

import orjson

from changefeed.errors import SettingsError
from changefeed.transforms.change import Change, Coordinates


def change_of(line: bytes, number: int, key: tuple[str, ...] | None = None) -> Change:
    """The change of a line written by `line_of`, or of a Debezium envelope such as `changefeed decode` prints.

    An envelope does not name the key's columns: ``key`` has them; by default the key is `id` if the row has this
    column. Raises SettingsError, with the line's ``number``, for any other line.
    """
    try:
        values = orjson.loads(line)
        source = values.get("source") or values
        coordinates = values.get("coordinates") or source
        row = values.get("after") or values.get("before") or {}
        given = key if key is not None else values.get("key", [name for name in ("id",) if name in row])
        database, table = source.get("database") or source["db"], source["table"]
        return Change(
            values["op"],
            database,
            table,
            values.get("before"),
            values.get("after"),
            tuple(given),
            values.get("topic", f"{database}.{table}"),
            datetime.fromtimestamp(source.get("ts_ms", 0) / 1000, UTC),
            source.get("gtid"),
            Coordinates(
                coordinates.get("file", ""),
                coordinates.get("position", coordinates.get("pos", 0)),
                coordinates.get("row") or 0,
            ),
            values.get("members") or {},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SettingsError(
            f"line {number} is no row change ({type(error).__name__}: {error}): expected a JSON object with op, "
            "before, after and source.db, source.table as `changefeed decode` prints it, or op, database, "
            "table, before, after"
        ) from None


def line_of(change: Change) -> bytes:
    """``change`` as a JSON line."""
    return orjson.dumps(
        {
            "op": change.op,
            "database": change.database,
            "table": change.table,
            "key": list(change.key),
            "topic": change.topic,
            "before": change.before,
            "after": change.after,
            "ts_ms": int(change.timestamp.timestamp() * 1000),
            "gtid": change.gtid,
            "coordinates": {
                "file": change.coordinates.file,
                "position": change.coordinates.position,
                "row": change.coordinates.row,
            },
            **({"members": change.members} if change.members else {}),
        }
    )
