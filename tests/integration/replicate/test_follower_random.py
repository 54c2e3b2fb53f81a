"""Random tables, changes and DDL with random settings, and a follower that is killed at random.

`make test-replicate` is the long form: CHANGEFEED_RUNS runs for each pair of servers. CHANGEFEED_SEED repeats a run.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from integration.hostile_settings import choose_hostile_settings, set_globals
from integration.random_source import EVERY_DEFINITION, RandomSource
from integration.replicate.test_follower_filled import Filled, KilledError, Killer
from integration.shown_tables import shown, table_differences

from changefeed.errors import (
    AccountingError,
    BadRecordError,
    RetryableError,
    TerminalError,
)
from changefeed.model import fault_point
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.process import run_server

RUNS = int(os.environ.get("CHANGEFEED_RUNS", "0"))
"""Runs for each pair; 0 is the short form: one run of a seed that is known to end equal, with stock servers."""
SEED = int(os.environ.get("CHANGEFEED_SEED", "0"))
SHORT_SEED = 11

SHORT_PAIRS = {
    "mysql": ("mysql_server", "mysql_follower"),
    "mariadb": ("mariadb_server", "mariadb_follower"),
}
LONG_PAIRS = {
    "mysql-everything": ("everything_mysql_server", "mysql_follower"),
    "mysql-lower-case": ("everything_mysql_server", "lower_case_mysql"),
    "mysql-8.0": ("mysql_80_server", "mysql_follower"),
    "mysql-5.7": ("mysql_57_server", "mysql_follower"),
    "mariadb-everything": ("everything_mariadb_server", "mariadb_follower"),
    "mariadb-lower-case": ("mariadb_server", "lower_case_mariadb"),
    "mariadb-10.11": ("mariadb_1011_server", "mariadb_follower"),
    "mariadb-11.8": ("mariadb_server", "mariadb_118_server"),
}
PAIRS = {**SHORT_PAIRS, **(LONG_PAIRS if RUNS else {})}
"""The fixtures of a source and of its follower."""

DIFFERENCES = (AccountingError, BadRecordError)
"""Errors that report a difference of the follower, not a refusal."""

STAGES = frozenset({"before_log_write", "in_open_transaction", "before_seal", "after_seal", "after_decode"})
"""Stages at which a window is stopped."""

pytestmark = [pytest.mark.extended, pytest.mark.timeout(600 + 240 * RUNS)]


@pytest.fixture(scope="session")
def lower_case_mysql(session_folder: Path) -> Iterator[MysqlServer]:
    options = {"lower_case_table_names": 1, "character_set_server": "latin1", "server_id": 3, "skip_log_bin": "ON"}
    options |= {
        "gtid-mode": "OFF",
        "enforce-gtid-consistency": "OFF",
        "sql_mode": "ANSI",
        "default_time_zone": "+03:00",
    }
    with run_server(MysqlServer(session_folder / "mysql-3", options=options, owner=ProcessId.own())) as server:
        yield server


@pytest.fixture(scope="session")
def lower_case_mariadb(session_folder: Path) -> Iterator[MariadbServer]:
    options = {"lower_case_table_names": 1, "character_set_server": "utf8mb3", "server_id": 3, "sql_mode": "ANSI"}
    options |= {"default_time_zone": "+03:00"}
    folder = session_folder / "mariadb-3"
    with run_server(MariadbServer(folder, options=options, owner=ProcessId.own(), quick=True)) as server:
        yield server


@dataclass
class Outcome:
    """The result of a run: `equal`, `refused` with the message, or `differs` with the difference."""

    seed: int
    end: str = "equal"
    text: str = ""
    kills: int = 0
    rows: int = 0
    definitions: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    settings: dict[str, str] = field(default_factory=dict)
    seconds: float = 0

    def __str__(self) -> str:
        figures = f"{self.kills} kills, {self.rows} rows and {self.definitions} definitions applied"
        said = f": {self.text[:1500]}" if self.text else ""
        settings = "".join(f"\n    {name} = {value}" for name, value in self.settings.items())
        return (
            f"CHANGEFEED_SEED={self.seed} {self.end}, {figures}, {self.seconds:.0f} s{said}{settings if said else ''}"
        )


class Stopper:
    """Stops windows and snapshots at a random stage, now and then."""

    def __init__(self, patch: pytest.MonkeyPatch, rng: random.Random) -> None:
        self.stops, self._rng, self._stage = 0, rng, ""
        patch.setattr(fault_point, "reach", self._reached)

    def _reached(self, stage: str) -> None:
        if stage == self._stage:
            self._stage = ""
            self.stops += 1
            raise KilledError

    def publish(self, followed: Filled) -> None:
        if self._rng.random() < 0.25:
            self._stage = self._rng.choice(sorted(STAGES))
            try:
                followed.publish()
            except KilledError:
                pass
            finally:
                self._stage = ""
        followed.publish()


def run_once(followed: Filled, seed: int, patch: pytest.MonkeyPatch) -> Outcome:
    """Run one seed; return whether it ended equal, refused or different."""
    began = time.monotonic()
    rng = random.Random(seed)
    outcome = Outcome(seed)
    killer, stopper = Killer(patch, rng), Stopper(patch, rng)
    filled = rng.random() < 0.4
    settings: dict[str, Any] = {"start": "snapshot"} if filled else {}
    if rng.random() < 0.5:
        settings["format"] = {"name": "debezium", "schemas": rng.random() < 0.5}
    if rng.random() < 0.3:
        settings["topics"] = {"template": f"{followed.name}.all", "shared": True, "partitions": rng.choice([1, 3])}
    if rng.random() < 0.3:
        settings["columns"] = {}
    followed.configure(**settings)
    patch.setattr("changefeed.replicate.commits.COMMIT_ROWS", rng.choice([5, 40, 20000]))
    patch.setattr("changefeed.replicate.filler.COMMIT_ROWS", rng.choice([5, 40, 20000]))
    sessions = rng.choice([1, 2, 4])
    with ExitStack() as stack:
        if rng.random() < 0.8:
            chosen = stack.enter_context(set_globals(followed.source, choose_hostile_settings(rng, 25)))
            outcome.settings |= {f"source {name}": value for name, value in chosen.items()}
        if rng.random() < 0.6:
            chosen = stack.enter_context(set_globals(followed.follower, choose_hostile_settings(rng, 15)))
            outcome.settings |= {f"follower {name}": value for name, value in chosen.items()}
        definitions = EVERY_DEFINITION - ({"swap", "rename", "modify"} if filled else frozenset())
        work = RandomSource(
            followed.source, f"{followed.name}_a", rng, definitions, rows=rng.choice([20, 60]), partial=not filled
        )
        try:
            _follow_to_the_end(followed, work, rng, killer, stopper, filled, sessions, outcome)
            _compare(followed, outcome)
        except DIFFERENCES as error:
            outcome.end, outcome.text = "differs", f"{type(error).__name__}: {error}"
        except TerminalError as error:
            outcome.end, outcome.text = "refused", f"{type(error).__name__}: {error}"
        outcome.counts = work.counts
    outcome.kills = killer.kills + stopper.stops
    outcome.seconds = time.monotonic() - began
    return outcome


def _follow_to_the_end(
    followed: Filled,
    work: RandomSource,
    rng: random.Random,
    killer: Killer,
    stopper: Stopper,
    filled: bool,
    sessions: int,
    outcome: Outcome,
) -> None:
    def follow() -> Any:
        killer.left = rng.randrange(8, 120) if rng.random() < 0.7 else 0
        try:
            done = followed.follow(sessions=sessions)
        except KilledError:
            killer.kills += 1
            return None
        finally:
            killer.left = 0
        outcome.rows += done.rows
        outcome.definitions += done.definitions
        return done

    stopper.publish(followed)
    if filled:
        work.run(2)
        stopper.publish(followed)
        for step in followed.snapshot(chunk_rows=rng.choice([7, 30])):
            if rng.random() < 0.4:
                work.run(2)
            if rng.random() < 0.5 or step.round:
                stopper.publish(followed)
            if rng.random() < 0.5:
                follow()
    for _ in range(rng.randrange(3, 7)):
        work.run(rng.randrange(2, 12))
        stopper.publish(followed)
        if rng.random() < 0.8:
            follow()
    followed.publish()
    retries = 0
    for _ in range(200):
        try:
            done = follow()
        except RetryableError:  # the server has not noticed yet that the session of a killed run is gone
            retries += 1
            if retries > 5:
                raise
            time.sleep(0.5)
            continue
        if done is not None:
            assert done.waiting == (), done
            return
    raise AssertionError("200 kills in a row")


def _compare(followed: Filled, outcome: Outcome) -> None:
    lower = bool(int(followed.follower.execute("SELECT @@lower_case_table_names")[0][0]))
    expected, found = shown(followed.source, f"{followed.name}_a"), shown(followed.follower, f"{followed.name}_a")
    same_release = followed.source.execute("SELECT VERSION()") == followed.follower.execute("SELECT VERSION()")
    expected, found = (_comparable(each, lower, same_release) for each in (expected, found))
    if "source default_storage_engine" in outcome.settings:  # a follower creates tables without an engine as InnoDB
        for table in expected.values():
            if isinstance(table, dict) and "definition" in table:
                table["definition"] = table["definition"].replace("ENGINE=MyISAM", "ENGINE=InnoDB")
    different = [name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)]
    if different:
        outcome.end = "differs"
        texts = (table_differences(name, expected.get(name), found.get(name)) for name in sorted(different))
        outcome.text = "; ".join(itertools.chain.from_iterable(texts))


def _comparable(all_shown: dict[str, Any], lower: bool, same_release: bool) -> dict[str, Any]:
    """The tables without counters, charsets that follow from a collation, and what releases show in different ways."""
    result: dict[str, Any] = {}
    for name, table in all_shown.items():
        if isinstance(table, dict):
            definition = re.sub(r" AUTO_INCREMENT=\d+", "", table["definition"])
            definition = re.sub(r" CHARACTER SET \w+ COLLATE", " COLLATE", definition)
            table = {**table, "definition": definition.replace(name, name.lower()) if lower else definition}
            if not same_release:
                table = {key: table[key] for key in ("indexes", "rows")}
        elif not same_release:
            continue
        result[name.lower() if lower else name] = table
    return result


@pytest.mark.parametrize("pair", PAIRS)
def test_random_changes_and_ddl_end_with_both_servers_alike(
    pair: str, request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> None:
    """The long form allows refusals, and prints them."""
    source, follower = map(request.getfixturevalue, PAIRS[pair])
    first = SEED or (random.SystemRandom().randrange(1, 10**9) if RUNS else SHORT_SEED)
    outcomes = []
    for number in range(RUNS or 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            followed = Filled(f"{unique_name}r{number}", source, follower, kafka_broker, folder)
            try:
                outcomes.append(run_once(followed, first + number, patch))
            except Exception as error:
                outcomes.append(Outcome(first + number, "failed", f"{type(error).__name__}: {error}"))
        print(f"{pair} {outcomes[-1]}", flush=True)
        drop(followed)
    ends = Counter(outcome.end for outcome in outcomes)
    definitions = sum(outcome.definitions for outcome in outcomes)
    print(
        f"{pair}: {json.dumps(ends)}, {sum(outcome.kills for outcome in outcomes)} kills, "
        f"{sum(outcome.rows for outcome in outcomes)} rows, {definitions} definitions, "
        f"{sum(outcome.seconds for outcome in outcomes):.0f} s; statements: "
        f"{dict(sum((outcome.counts for outcome in outcomes), Counter()))}",
        flush=True,
    )
    wrong = [outcome for outcome in outcomes if outcome.end not in ("equal", "refused" if RUNS else "equal")]
    assert not wrong, "\n".join(map(str, wrong))


def drop(followed: Filled) -> None:
    for server in (followed.source, followed.follower):
        for database in followed.databases(server):
            server.execute(f"DROP DATABASE `{database}`")
