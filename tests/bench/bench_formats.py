"""The cost of a format, record headers, column rules, filters and functions: `make bench-formats`.

The bulk workload of `bench_decode.py` is decoded by the kernel with one core, into each registered format, and with
each rule. All run alternately, five times; a line has the median, the fastest and the slowest. Formats are compared
with the fastest of them, rules with the same format without the rule.

Goals: each JSON format within 1.3 times the fastest, Avro faster than those; masks except hashes, omitted columns and
simple conditions cost less than a tenth. The output flags misses. The cost of hashes and functions is only shown;
functions get a tenth of the file, as they are much slower.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_decode import REPEATS, kernel_images, rate, workloads

from changefeed.binlog.events.framing import HEADER, EventType
from changefeed.formats.format import Format, FormatSettings
from changefeed.formats.headers import HEADERS, WithHeaders
from changefeed.formats.registry import DEFAULT_FORMAT, WITH_SCHEMA_REGISTRY, format_of, known_names
from changefeed.model.column_rules import (
    ALL_SHOWN,
    ColumnRule,
    ColumnRules,
    Constant,
    Excluded,
    FirstCharacters,
    HmacSha256,
    Sha256,
    Treatment,
)
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import compile_routes
from changefeed.settings.transform_settings import TransformCall
from changefeed.settings.transform_source import transform_source
from changefeed.transforms.finisher import TransformFinisher
from devstack.home import Home

RULES: dict[str, tuple[str, Treatment]] = {
    "two columns left out": ("bench.*.[nd]o*", Excluded()),
    "two masked by a text": ("bench.*.[nd]o*", Constant("***")),
    "two masked by null": ("bench.*.[nd]o*", Constant(None)),
    "one cut to 20 characters": ("bench.*.note", FirstCharacters(20)),
    "one hashed": ("bench.*.note", Sha256("salt")),
    "one hashed with a key": ("bench.*.note", HmacSha256("key")),
}
HASHES = ("one hashed", "one hashed with a key")
CONDITIONS = {
    "a condition on a number": "a >= -2147483648",
    "on text and null": "note <> 'none' AND a IS NOT NULL",
}
"""True for all rows, so that the same messages are written as without it."""
FUNCTIONS = {
    "a function that changes nothing": "def transform(change):\n    return change\n",
    "one that writes a column": "def transform(change):\n    change.row['note'] = '***'\n    return change\n",
    "one of batches": "def transform_batch(batch):\n    return batch\n",
}

Rates = dict[str, list[float]]


def measured(runs: dict[str, Callable[[], int]]) -> Rates:
    """Each run's rows per CPU second, of all rounds."""
    for run in runs.values():
        run()  # programs, and the pages of buffers
    rounds = [{name: rate(run) for name, run in runs.items()} for _ in range(REPEATS)]
    return {name: [each[name] for each in rounds] for name in runs}


def shown(title: str, rates: Rates, against: float, is_too_slow: Callable[[str, float], bool]) -> None:
    print(f"{title:34}{'rows/CPU s':>12}{'slowest':>12}{'fastest':>12}{'ns a row':>10}{'times':>8}")
    medians = {name: statistics.median(rounds) for name, rounds in rates.items()}
    for name, rows in sorted(medians.items(), key=lambda item: -item[1]):
        times = against / rows
        columns = f"{rows:12,.0f}{min(rates[name]):12,.0f}{max(rates[name]):12,.0f}{1e9 / rows:10,.0f}{times:8.2f}"
        print(f"{name:34}{columns}{'  misses the goal' if is_too_slow(name, times) else ''}")
    print(flush=True)


def conditions(condition: str) -> Any:
    """A condition as routes have it."""
    settings = {"source": {"connection": "m"}, "kafka": {"connection": "k"}, "rows": {"bench.*": condition}}
    route = compile_routes(Pipeline.model_validate({"name": "bench", **settings})).of("bench", "t0")
    assert route is not None
    return route.route.rows


def finisher(body: str, folder: Path, format: Format) -> TransformFinisher:
    """A function for all tables."""
    (folder / "function.py").write_text(body)
    call = TransformCall("*.*", transform_source("function", folder), {})
    return TransformFinisher([call], format, ALL_SHOWN, lambda _topic: 3)


def bytes_of(path: Path, share: float) -> int:
    """The end of the transaction at ``share`` of the file's size."""
    data, at = path.read_bytes(), FIRST_POSITION
    while at < len(data):
        kind, size = data[at + 4], HEADER.unpack_from(data, at)[3]
        at += size
        if kind == EventType.XID and at > share * len(data):
            break
    return int(at)


def main() -> None:
    path = workloads(Home.default().run.parent / "bench")["bulk"]
    every = {name: format_of(name, FormatSettings("bench", 0)) for name in known_names()}
    rates = measured({name: kernel_images(path, format) for name, format in every.items()})
    json = {name: statistics.median(rounds) for name, rounds in rates.items() if name not in WITH_SCHEMA_REGISTRY}
    fastest = max(json.values())
    shown("format", rates, fastest, lambda name, times: times > (1.3 if name in json else 1.0))

    plain, alone = every[DEFAULT_FORMAT], f"{DEFAULT_FORMAT} alone"
    added = {
        alone: kernel_images(path, plain),
        "all record headers": kernel_images(path, WithHeaders(plain, tuple(HEADERS))),
    }
    for name, (pattern, treatment) in RULES.items():
        rules = ColumnRules((ColumnRule(pattern, treatment, "columns"),), "bench")
        added[name] = kernel_images(path, plain, rules)
    for name, condition in CONDITIONS.items():
        added[name] = kernel_images(path, plain, rows=conditions(condition))
    rates = measured(added)
    bounded = {*RULES, *CONDITIONS} - {*HASHES}
    shown("with", rates, statistics.median(rates[alone]), lambda name, times: name in bounded and times > 1.1)

    size_bytes = bytes_of(path, 0.1)
    called = {alone: kernel_images(path, plain, size_bytes=size_bytes)}
    with tempfile.TemporaryDirectory() as folder:
        for name, body in FUNCTIONS.items():
            python = finisher(body, Path(folder), plain)
            called[name] = kernel_images(path, plain, size_bytes=size_bytes, finisher=python)
        rates = measured(called)
    shown("with functions", rates, statistics.median(rates[alone]), lambda _name, _times: False)


if __name__ == "__main__":
    main()
