"""A hostile file of settings is refused, and costs no more than its size."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random

import pytest

from changefeed.errors import SettingsError
from changefeed.settings.file import load_pipelines, parse_pipeline, read_pipeline
from changefeed.settings.secrets import redact_yaml

GOOD = "name: shop\nsource: {connection: m}\nkafka: {connection: k}\n"
LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)

HOSTILE = {
    "aliases of aliases": (GOOD + LAUGHS, "line 5, column 8: aliases are not supported"),
    "aliases as the name": (LAUGHS + "name: *i\n", "aliases are not supported"),
    "a list that holds itself": (GOOD + "tags: &a [*a]\n", "aliases are not supported"),
    "a file that holds itself": ("&a {name: *a}", "aliases are not supported"),
    "lists in lists": ("- " * 90_000, "nested deeper than 20 levels"),
    "keys in keys": ("? " * 90_000, "nested deeper than 20 levels"),
    "brackets": (GOOD + "tags: " + "[" * 50_000 + "]" * 50_000, "nested deeper than 20 levels"),
    "mappings in mappings": (GOOD + "tags: " + "{a: " * 20_000, "nested deeper than 20 levels"),
    "a long file": (GOOD + "#" * 200_000, "longer than 200,000 characters"),
    "a long hexadecimal number": (GOOD + "retries: 0x" + "F" * 100_000, "a number of more than 40 characters"),
    "a long number to the base of 60": (
        GOOD + "retries: " + "1:" * 90_000 + "1",
        "a number of more than 40 characters",
    ),
    "a number beyond floats": (GOOD + "retries: " + "1:" * 300 + "1.5", "a number of more than 40 characters"),
    "an empty number": (GOOD + "retries: !!int ''\n", "is not YAML"),
    "a truth that is none": (GOOD + "retries: !!bool x\n", "is not YAML"),
    "a date that is none": (GOOD + "start: 2020-99-99\n", "is not YAML"),
    "many unknown keys": (GOOD + "".join(f"k{number}: 1\n" for number in range(15_000)), "and 14,980 more mistakes"),
    "a key many times": (GOOD + "retries: 1\n" * 15_000, "is repeated"),
    "a key twice in a list": (
        GOOD + "alerts: {notify: [{notifier: a.b, notifier: c.d}]}\n",
        "line 4: key 'alerts.notify.0.notifier' is repeated",
    ),
}


@pytest.mark.parametrize("attack", HOSTILE)
def test_hostile_file_is_refused_and_other_files_are_read(tmp_path: Path, attack: str) -> None:
    text, words = HOSTILE[attack]
    bad = tmp_path / "bad.yaml"
    bad.write_text(text)
    (tmp_path / "good.yaml").write_text(GOOD.replace("shop", "good"))
    with pytest.raises(SettingsError) as refused:
        read_pipeline(bad)
    assert words in str(refused.value)
    assert len(str(refused.value)) < 10_000
    pipelines, errors = load_pipelines(tmp_path)
    assert (list(pipelines), list(errors)) == (["good"], [bad])


def test_pipe_in_the_folder_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "good.yaml").write_text(GOOD.replace("shop", "good"))
    pipelines, errors = load_pipelines(tmp_path)
    assert list(pipelines) == ["good"]
    assert [f"{path.name}: cannot be read: it is not a file" for path in errors] == [str(e) for e in errors.values()]


@pytest.mark.timeout(30)
def test_longest_list_of_patterns_is_compiled_once(tmp_path: Path) -> None:
    patterns = [f"a*{number:05}.c" for number in range(10_000)]
    path = tmp_path / "shop.yaml"
    path.write_text(GOOD + f"tables: {{include: {patterns}}}\n")
    tables = read_pipeline(path).tables
    taken = [number for number in range(500) if tables.matches(f"ab{number:05}", "c") and not tables.matches("ab", "c")]
    assert taken == list(range(500))


_FRAGMENTS = [
    *(
        "&a ",
        "*a",
        "? ",
        ": ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        "<<: ",
        "=",
        "\n",
        "  ",
        "\t",
        "'",
        '"',
        "|\n",
        "---\n",
        "...\n",
    ),
    *("!!int ", "!!float ", "!!bool ", "!!binary ", "!!set ", "!!omap ", "!!timestamp ", "!!null ", "!!map ", "!!seq "),
    *("0x", "1:1:1", ".inf", ".nan", "2020-99-99", "~", "\\0", "\\ud800", "\u2028", "%YAML 9.9\n", "1e999", "\x01"),
]
_WHOLE = """\
columns: {exclude: ["a.b.c"], mask: {"a.b.d": {sha256: {connection: salt}}, "a.b.e": {characters: 3}}}
alerts: {headroom_hours: 12, lag_bytes: 5, notify: [{notifier: a.b, arguments: {x: 1, y: [a, b]}}]}
spark: {conf: {a: b}, connect: "sc://h"}
"""


def test_any_text_gives_a_pipeline_or_an_error_message() -> None:
    """An error of another class in one file would remove the DAGs of all other files."""
    random = Random(7)
    taken = 0
    for _ in range(1_000):
        text = GOOD + _WHOLE
        for _ in range(random.randint(1, 4)):
            at = random.randrange(len(text))
            text = text[:at] + random.choice(_FRAGMENTS) + text[at + random.choice([0, 0, 1, 5, 40]) :]
        try:
            pipeline = parse_pipeline(text, "shop.yaml")
        except SettingsError as error:
            str(error).encode()
        else:
            taken += 1
            json.dumps([pipeline.owner, pipeline.alerts.headroom_hours, redact_yaml(text)], allow_nan=False)
    assert taken
