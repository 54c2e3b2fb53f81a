"""Pipelines written while Airflow runs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from changefeed.errors import SettingsError
from changefeed.pipelines.folder import NoSuchPipelineError, PipelineChangedError, PipelineFolder

TEXT = "name: {name}\nsource: {{connection: m}}\nkafka: {{connection: k}}\nowner: {owner}\n"


def text_of(name: str = "shop", owner: str = "ada") -> str:
    return TEXT.format(name=name, owner=owner)


def test_what_is_created_is_read_changed_and_deleted(tmp_path: Path) -> None:
    folder = PipelineFolder(tmp_path)
    made = folder.create(text_of())
    assert folder.text("shop") == made
    changed = folder.change("shop", text_of(owner="ulf"), made.tag)
    assert (tmp_path / "shop.yaml").read_text() == text_of(owner="ulf")
    with pytest.raises(PipelineChangedError):
        folder.delete("shop", made.tag)
    folder.delete("shop", changed.tag)
    with pytest.raises(NoSuchPipelineError):
        folder.text("shop")


def test_of_many_changes_at_once_one_wins(tmp_path: Path) -> None:
    folder = PipelineFolder(tmp_path)
    tag = folder.create(text_of()).tag

    def change(number: int) -> bool:
        try:
            folder.change("shop", text_of(owner=f"owner{number}"), tag)
        except PipelineChangedError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(change, range(24))) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "shop.yaml"], "nothing is left over"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("retires: 3\n", "did you mean 'retries'"),
        ("spark: {conf: {spark.jars: http://evil/x.jar}}\n", "can name code to run"),
        ("alerts: {notify: [{notifier: subprocess.run}]}\n", "can name code to run"),
    ],
)
def test_wrong_text_is_refused_and_nothing_is_written(tmp_path: Path, more: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        PipelineFolder(tmp_path).create(text_of() + more)
    assert not list(tmp_path.glob("*.yaml"))


def test_a_pipeline_keeps_its_name(tmp_path: Path) -> None:
    folder = PipelineFolder(tmp_path)
    tag = folder.create(text_of()).tag
    with pytest.raises(SettingsError, match="key of the checkpoint"):
        folder.change("shop", text_of(name="other"), tag)
