"""`make test-foreign`: the statements of MySQL's and MariaDB's own tests, file by file, on real servers.

ARGS: `--server mysql` or `mariadb` for one of them, `--metadata FULL` (by default servers are as they come: MINIMAL and
NO_LOG, where all names are learned), and patterns of files below the suite's folder, such as `t/alter*.test`. With
`--follower` each file runs on a source with a follower, and the tables of both servers are compared.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pymysql
from foreign.follower_arena import Ending, FollowerArena
from foreign.suites import SUITES, reference_of
from foreign.trial import Arena, SpoiledServerError, Trial, TrialResult

from devstack.errors import ServerError
from devstack.home import Home
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.process import run_server

_SHOWN = 1500
"""The most characters of a difference that are printed."""


def main() -> int:
    """Run what the arguments say; return 1 if there is a difference that is not the server's fault."""
    parser = argparse.ArgumentParser(prog="make test-foreign", description=__doc__)
    parser.add_argument("--server", choices=sorted(SUITES), action="append")
    parser.add_argument("--metadata", choices=["FULL", "MINIMAL", "NO_LOG"])
    parser.add_argument("--follower", action="store_true")
    parser.add_argument("patterns", nargs="*", metavar="PATTERN")
    chosen = parser.parse_args()
    names = chosen.server or sorted(SUITES)
    folders = {name: SUITES[name].files.fetch(Home.default()) for name in names}
    if chosen.follower:
        return follow(names, folders, chosen.metadata, chosen.patterns)
    with ProcessPoolExecutor(len(names)) as processes:
        arguments = zip(*((name, folders[name], chosen.metadata, chosen.patterns) for name in names), strict=True)
        totals = dict(zip(names, processes.map(run, *arguments), strict=True))
    for name, total in totals.items():
        print(f"\n{name}: " + ", ".join(f"{total[result]} files {result}" for result in TrialResult))
        print(f"  {total['schemas']} definitions, {total['tables']} tables and {total['changes']} row changes compared")
        for what, count in total.items():
            if what.startswith("because "):
                print(f"  {count} files {TrialResult.NOT_COMPARABLE} {what}")
    return int(any(total[TrialResult.DIFFERENT] for total in totals.values()))


def run(name: str, folder: Path, metadata: str | None, patterns: list[str]) -> Counter[str]:
    """Run a suite on its own server; return how many files have each result, and what was compared."""
    suite = SUITES[name]
    total: Counter[str] = Counter()
    options = {"binlog_row_metadata": metadata} if metadata else {}
    left = list(suite.scripts(folder, patterns))
    while left:  # a server that a script has spoiled is followed by another one
        with (
            tempfile.TemporaryDirectory(prefix=f"foreign-{name}-") as scratch,
            run_server(suite.server(Path(scratch), options=options, owner=ProcessId.own(), quick=True)) as server,
            suppress(SpoiledServerError, pymysql.MySQLError, ServerError),
        ):
            arena = Arena(server, reference_of(server))
            while left:
                begun = time.monotonic()
                trial = arena.run(left[0], folder)
                del left[0]
                show(name, trial, time.monotonic() - begun)
                total[trial.result] += 1
                observations = trial.observations
                total += Counter(schemas=observations.schemas, tables=observations.tables, changes=observations.changes)
                if trial.result is TrialResult.NOT_COMPARABLE:
                    total[f"because {trial.reason}"] += 1
    return total


def follow(names: list[str], folders: dict[str, Path], metadata: str | None, patterns: list[str]) -> int:
    """Run suites on sources with followers; return 1 if a follower differs from its source without an error."""
    with (
        tempfile.TemporaryDirectory(prefix="foreign-kafka-") as scratch,
        run_server(KafkaBroker(Path(scratch), owner=ProcessId.own(), quick=True)) as broker,
        ProcessPoolExecutor(len(names)) as processes,
    ):
        arguments = zip(*((name, folders[name], metadata, patterns, broker.bootstrap) for name in names), strict=True)
        totals = dict(zip(names, processes.map(follow_suite, *arguments), strict=True))
    for name, total in totals.items():
        print(f"\n{name}, with a follower: " + ", ".join(f"{total[ending]} files {ending}" for ending in Ending))
        print(
            f"  {total['definitions']} definitions and {total['rows']} rows applied, {total['tables']} tables compared"
        )
        for what, count in total.most_common():
            if what.startswith("because "):
                print(f"  {count} files {Ending.REFUSED} {what}")
    return int(any(total[Ending.DIFFERENT] for total in totals.values()))


def follow_suite(name: str, folder: Path, metadata: str | None, patterns: list[str], bootstrap: str) -> Counter[str]:
    """Run a suite on its own source and follower; return how many files ended in each way."""
    suite = SUITES[name]
    total: Counter[str] = Counter()
    options: dict[str, str | int] = {"binlog_row_metadata": metadata} if metadata else {}
    left = list(suite.scripts(folder, patterns))
    while left:  # servers that a script has spoiled are followed by others
        with (
            tempfile.TemporaryDirectory(prefix=f"foreign-{name}-") as scratch,
            ExitStack() as stack,
            suppress(SpoiledServerError, pymysql.MySQLError, ServerError),
        ):
            source, follower = (
                stack.enter_context(run_server(suite.server(
                    Path(scratch) / role, options={**options, "server_id": number}, owner=ProcessId.own(), quick=True
                )))
                for number, role in enumerate(("source", "follower"), 1)
            )  # fmt: skip
            arena = FollowerArena(source, follower, bootstrap, Path(scratch), reference_of(source))
            while left:
                path = left.pop(0)
                done = arena.follow(path, folder)
                note = f": {done.text[:_SHOWN]}" if done.text else ""
                print(
                    f"{name} {done.script}: {done.ending}; {done.definitions} definitions, {done.rows} rows, "
                    f"{done.tables} tables, {done.seconds:.0f} s{note}",
                    flush=True,
                )
                total[done.ending] += 1
                total += Counter(tables=done.tables, rows=done.rows, definitions=done.definitions)
                if done.ending is Ending.REFUSED:
                    total[f"because {re.sub(chr(39) + '.*?' + chr(39) + '|[0-9]+', '…', done.text)[:160]}"] += 1
    return total


def show(name: str, trial: Trial, seconds: float) -> None:
    """Print a line for a file, and what is different."""
    observations = trial.observations
    notes = [trial.reason, *(f"{count} not compared: {what}" for what, count in observations.skipped.items())]
    lines = [
        f"{name} {trial.script}: {trial.result}; {observations.schemas} definitions, {observations.tables} tables, "
        f"{observations.changes} changes, {seconds:.0f} s{''.join(f'; {note}' for note in notes if note)}"
    ]
    for difference in observations.differences:
        whose = " (the server's)" if difference.is_servers else ""
        lines.append(f"  {difference.what}{whose} {difference.table}: {difference.text[:_SHOWN]}")
    print("\n".join(lines), flush=True)


if __name__ == "__main__":
    sys.exit(main())
