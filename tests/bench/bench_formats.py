"""What a format, record headers and column rules cost: `make bench-formats`.

The bulk workload of `bench_decode.py` is decoded by the kernel with one core, into each format and with each rule. All
take turns, five times; a figure is the median. Formats are compared with the fastest of them, rules with the format
that they are added to.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from bench_decode import REPEATS, kernel_images, rate, workloads

from changefeed.formats.format import FormatSettings
from changefeed.formats.headers import HEADERS, WithHeaders
from changefeed.formats.registry import DEFAULT_FORMAT, FORMATS, format_of
from changefeed.pipelines.column_rules import (
    ColumnRule,
    ColumnRules,
    Constant,
    Excluded,
    FirstCharacters,
    HmacSha256,
    Sha256,
    Treatment,
)
from devstack.home import Home

RULES: dict[str, tuple[str, Treatment]] = {
    "two columns left out": ("bench.*.[nd]o*", Excluded()),
    "two masked by a text": ("bench.*.[nd]o*", Constant("***")),
    "two masked by null": ("bench.*.[nd]o*", Constant(None)),
    "one cut to 20 characters": ("bench.*.note", FirstCharacters(20)),
    "one hashed": ("bench.*.note", Sha256("salt")),
    "one hashed with a key": ("bench.*.note", HmacSha256("key")),
}


def measured(runs: dict[str, Callable[[], int]]) -> dict[str, float]:
    """The median of each run's rows per CPU second."""
    for run in runs.values():
        run()  # programs, and the pages of buffers
    rounds = [{name: rate(run) for name, run in runs.items()} for _ in range(REPEATS)]
    return {name: statistics.median(each[name] for each in rounds) for name in runs}


def shown(title: str, rates: dict[str, float], against: float) -> None:
    print(f"{title:36}{'rows/CPU s':>12}{'ns a row':>10}{'times':>8}")
    for name, rows in sorted(rates.items(), key=lambda item: -item[1]):
        print(f"{name:36}{rows:12,.0f}{1e9 / rows:10,.0f}{against / rows:8.2f}")
    print(flush=True)


def main() -> None:
    path = workloads(Home.default().run.parent / "bench")["bulk"]
    formats = {name: format_of(name, FormatSettings("bench", 0)) for name in FORMATS}
    rates = measured({name: kernel_images(path, format) for name, format in formats.items()})
    shown("format", rates, max(rates.values()))
    plain = formats[DEFAULT_FORMAT]
    added = {
        f"{DEFAULT_FORMAT} alone": kernel_images(path, plain),
        "all record headers": kernel_images(path, WithHeaders(plain, tuple(HEADERS))),
    }
    for name, (pattern, treatment) in RULES.items():
        rules = ColumnRules((ColumnRule(pattern, treatment, "columns"),), "bench")
        added[name] = kernel_images(path, plain, rules)
    rates = measured(added)
    shown("with", rates, rates[f"{DEFAULT_FORMAT} alone"])


if __name__ == "__main__":
    main()
