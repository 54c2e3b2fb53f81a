"""Commands about a pipeline's commit log: windows, recover, rename, sign, prune."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from changefeed.cli.app import (
    AsJson,
    PipelineName,
    app,
    complete_pipeline,
    connections_of,
    out,
    print_json,
    print_table,
    store_of,
)
from changefeed.model.manifest import Manifest
from changefeed.model.sealed_period import SealedPeriod
from changefeed.settings.file import load_pipeline

if TYPE_CHECKING:  # loads the client of Kafka
    from changefeed.kafka.commit_log.log import CommitLogState


@app.command()
def windows(
    name: PipelineName,
    limit: Annotated[int, typer.Option("-n", help="Number of windows, and of hours and days.")] = 20,
    merged: Annotated[bool, typer.Option("--merged", help="Show only older windows, by hour and day.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the manifests of the last sealed windows in the commit log, latest first.

    Older windows follow, merged by the hour, and later the day, in which they were sealed (UTC). With --json only
    --merged shows them.
    """
    from changefeed.kafka.commit_log.periods import latest_periods
    from changefeed.pipeline.windows import commit_log_state, latest_manifests

    state = commit_log_state(connections_of(load_pipeline(name)))
    if as_json:
        found: Sequence[Manifest | SealedPeriod]
        found = latest_periods(state, limit) if merged else latest_manifests(state, limit)
        print_json([one.to_json() for one in found])
        return
    periods = latest_periods(state, limit)
    if not merged:
        _print_windows(state, latest_manifests(state, limit))
        if periods:
            out.print("\nOlder windows, merged by the hour or day in which they were sealed:")
    if periods or merged:
        _print_periods(periods)


def _print_windows(state: CommitLogState, manifests: Sequence[Manifest]) -> None:
    rows = [
        (
            f"{manifest.window.number}{' (failover)' if manifest.window.failover else ''}",
            str(manifest.window.start),
            str(manifest.window.head),
            f"{manifest.row_count:,}",
            f"{manifest.message_count:,}",
            f"{manifest.dead_letters:,}",
            f"{manifest.size_bytes:,}",
            f"{sum(manifest.seconds.values()):.1f}",
            _time(state.sealed_at_ms(manifest.window.number), "%Y-%m-%d %H:%M:%S"),
        )
        for manifest in manifests
    ]
    counts = ("rows", "messages", "dead letters", "bytes")
    print_table(("window", "start", "head", *counts, "seconds", "sealed (UTC)"), rows)


def _print_periods(periods: Sequence[SealedPeriod]) -> None:
    rows = [
        (
            _time(one.begins_ms, "%Y-%m-%d %H:%M"),
            str(one.hours),
            f"{one.windows:,}",
            f"{one.first} to {one.last}",
            str(one.start),
            str(one.head),
            f"{one.row_count:,}",
            f"{one.message_count:,}",
            f"{one.dead_letters:,}",
            f"{one.size_bytes:,}",
            f"{sum(one.seconds.values()):.1f}",
        )
        for one in periods
    ]
    period, counts = ("from (UTC)", "hours", "windows", "numbers"), ("rows", "messages", "dead letters", "bytes")
    print_table((*period, "start", "head", *counts, "seconds"), rows)


def _time(unix_ms: int, notation: str) -> str:
    return datetime.fromtimestamp(unix_ms / 1000, UTC).strftime(notation)


@app.command()
def recover(name: PipelineName, as_json: AsJson = False) -> None:
    """Rebuild a lost or outdated checkpoint from the latest sealed window or seek in the commit log."""
    from changefeed.operations.recover import recover as recover_checkpoint

    pipeline = load_pipeline(name)
    done = recover_checkpoint(connections_of(pipeline), store_of(pipeline))
    if as_json:
        before = done.before and done.before.to_json()
        print_json({"pipeline": name, "before": before, "now": done.now.to_json(), "origin": done.origin})
        return
    replaced = f"window {done.before.window} at {done.before.coordinates}" if done.before else "none"
    out.print(
        f"{name}: the checkpoint was {replaced}, and is now of window {done.now.window} at {done.now.coordinates}, by "
        f"{done.origin}"
    )


@app.command()
def rename(
    old: Annotated[str, typer.Argument(metavar="OLD", help="Old name of the pipeline.")],
    new: Annotated[
        str, typer.Argument(metavar="NEW", help="New name, which its YAML has.", autocompletion=complete_pipeline)
    ],
    as_json: AsJson = False,
) -> None:
    """Move a pipeline's checkpoint, commit log and schema history to the new name that its YAML has.

    Refused while a run is alive; a continuous run ends before its next window. If the command is killed, run it again.
    Topics of rows do not change.
    """
    from changefeed.operations.rename import rename as move

    pipeline = load_pipeline(new)
    done = move(connections_of(pipeline), old, store_of(pipeline))
    if as_json:
        print_json({"pipeline": new, "old": old, "now": done.checkpoint.to_json(), "records": done.records})
        return
    at = done.checkpoint
    out.print(
        f"{new}: has the checkpoint of {old} now, window {at.window} at {at.coordinates}, and {done.records} records "
        "of its commit log"
    )


@app.command()
def sign(name: PipelineName, as_json: AsJson = False) -> None:
    """Sign all records of the commit log and the schema history with the pipeline's `commit_log.key`.

    Run it once after the key was set or changed. Refused while a run is alive. Beside a continuous run it takes place
    between two windows; a run without the new key ends.
    """
    from changefeed.operations.sign import sign as sign_logs

    done = sign_logs(connections_of(load_pipeline(name)))
    if as_json:
        print_json({"pipeline": name, **asdict(done)})
        return
    out.print(
        f"{name}: signed {done.records} records of the commit log, {done.untrusted} of which none of the keys had "
        f"signed{', and the schema history' if done.schemas else ''}"
    )


@app.command()
def prune(
    name: PipelineName,
    topic: Annotated[
        list[str] | None, typer.Option(help="Pattern of topics that were removed from Kafka. May be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Remove the records of dropped tables from the commit log. Their topics stay.

    With --topic: remove the records of topics that were removed from Kafka, if runs stop because of them.
    """
    from changefeed.operations.prune import forget_removed
    from changefeed.operations.prune import prune as prune_log

    pipeline = load_pipeline(name)
    connections = connections_of(pipeline)
    done = forget_removed(connections, topic) if topic else prune_log(connections, store_of(pipeline))
    if as_json:
        print_json({"pipeline": name, **asdict(done)})
        return
    topics = ", ".join(done.topics) or "no topic"
    out.print(f"{name}: forgot {topics}; {done.records} records of the commit log")
