"""Pipelines written while Airflow runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from changefeed.errors import SettingsError
from changefeed.settings.file import load_pipelines
from changefeed.settings.folder import NoSuchPipelineError, PipelineChangedError, PipelineFolder
from changefeed.settings.pipeline import Pipeline

TEXT = "name: {name}\nsource: {{connection: m}}\nkafka: {{connection: k}}\nowner: {owner}\n"


def text_of(name: str = "shop", owner: str = "ada") -> str:
    return TEXT.format(name=name, owner=owner)


def anything(new: Pipeline, old: Pipeline | None, others: Mapping[str, Pipeline]) -> None:
    """Rules that refuse nothing."""


def mode(path: Path) -> str:
    return oct(path.stat().st_mode & 0o777)


@pytest.fixture(params=[0o077, 0o000])
def any_umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def test_created_pipeline_is_read_changed_and_deleted(tmp_path: Path) -> None:
    folder = PipelineFolder(tmp_path)
    made = folder.create(text_of(), anything)
    assert folder.text("shop") == made
    changed = folder.change("shop", text_of(owner="ulf"), made.tag, anything)
    assert (tmp_path / "shop.yaml").read_text() == text_of(owner="ulf")
    with pytest.raises(PipelineChangedError):
        folder.delete("shop", made.tag)
    folder.delete("shop", changed.tag)
    with pytest.raises(NoSuchPipelineError):
        folder.text("shop")


def test_tag_depends_on_the_text_as_it_was_sent(tmp_path: Path) -> None:
    folder = PipelineFolder(tmp_path)
    made = folder.create(text_of().replace("\n", "\r\n"), anything)
    assert folder.text("shop").tag == made.tag


def test_one_of_many_concurrent_changes_succeeds(tmp_path: Path) -> None:
    folder = PipelineFolder(tmp_path)
    tag = folder.create(text_of(), anything).tag

    def change(number: int) -> bool:
        try:
            folder.change("shop", text_of(owner=f"owner{number}"), tag, anything)
        except PipelineChangedError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(change, range(24))) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "shop.yaml"], "nothing is left over"


def test_one_of_many_concurrent_creations_of_a_name_succeeds(tmp_path: Path) -> None:
    folder = PipelineFolder(tmp_path)

    def create(number: int) -> bool:
        try:
            folder.create(text_of(owner=f"owner{number}"), anything)
        except PipelineChangedError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(create, range(24))) == 1


def test_rules_get_old_and_other_pipelines_and_a_refusal_writes_nothing(
    tmp_path: Path,
) -> None:
    folder = PipelineFolder(tmp_path)
    tag = folder.create(text_of(), anything).tag
    folder.create(text_of("other"), anything)
    asked = []

    def rules(new: Pipeline, old: Pipeline | None, others: Mapping[str, Pipeline]) -> None:
        asked.append((new.name, new.owner, old.owner if old else None, sorted(others)))
        raise SettingsError("refused")

    with pytest.raises(SettingsError, match="refused"):
        folder.create(text_of("third"), rules)
    with pytest.raises(SettingsError, match="refused"):
        folder.change("shop", text_of(owner="ulf"), tag, rules)
    assert asked == [("third", "ada", None, ["other", "shop"]), ("shop", "ulf", "ada", ["other"])]
    assert folder.text("shop").tag == tag
    assert sorted(path.name for path in tmp_path.glob("*.yaml")) == ["other.yaml", "shop.yaml"]


def test_change_of_the_name_is_refused(tmp_path: Path) -> None:
    folder = PipelineFolder(tmp_path)
    tag = folder.create(text_of(), anything).tag
    with pytest.raises(SettingsError, match="key of the checkpoint"):
        folder.change("shop", text_of(name="other"), tag, anything)


@pytest.mark.parametrize(
    "text",
    [
        text_of() + "retires: 1\n",  # its name is known
        text_of() + "owner: [\n",  # it is not: the file is no YAML
        "name: !!bool shop\n",
        text_of() + "tags: &a [*a]\n",
        "#" * 200_001,
    ],
)
def test_name_of_an_invalid_file_is_in_use(tmp_path: Path, text: str) -> None:
    (tmp_path / "berlin.yaml").write_text(text)
    folder = PipelineFolder(tmp_path)
    with pytest.raises(PipelineChangedError, match=r"berlin\.yaml already has pipeline 'shop', or may have it"):
        folder.create(text_of(), anything)
    for name in ("shop", "berlin"):
        with pytest.raises((SettingsError, NoSuchPipelineError)):
            folder.change(name, text_of(name), folder.text(name).tag, anything)
        with pytest.raises((SettingsError, NoSuchPipelineError)):
            folder.delete(name, folder.text(name).tag)
    assert (tmp_path / "berlin.yaml").read_text() == text
    if len(text) < 200_000:
        folder.create(text_of("shop2"), anything)


def test_symbolic_link_in_the_folder_is_not_changed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text(text_of())
    folder = tmp_path / "pipelines"
    folder.mkdir()
    (folder / "shop.yaml").symlink_to(elsewhere)
    pipelines = PipelineFolder(folder)
    tag = pipelines.text("shop").tag
    with pytest.raises(SettingsError, match="is a link to"):
        pipelines.change("shop", text_of(owner="ulf"), tag, anything)
    with pytest.raises(SettingsError, match="is a link to"):
        pipelines.delete("shop", tag)
    assert elsewhere.read_text() == text_of()


def test_lock_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    folder = tmp_path / "pipelines"
    folder.mkdir()
    (folder / ".lock").symlink_to(precious)
    with pytest.raises(SettingsError, match="cannot be written"):
        PipelineFolder(folder).create(text_of(), anything)
    assert precious.read_text() == "kept"


@pytest.mark.usefixtures("any_umask")
def test_new_file_is_readable_by_owner_and_group_of_the_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    folder = PipelineFolder(tmp_path)
    tag = folder.create(text_of(), anything).tag
    file = tmp_path / "shop.yaml"
    assert (mode(file), mode(tmp_path / ".lock")) == ("0o640", "0o600")
    assert file.stat().st_gid == tmp_path.stat().st_gid
    file.chmod(0o600)  # by whoever wants it closed
    tag = folder.change("shop", text_of(owner="ulf"), tag, anything).tag
    assert mode(file) == "0o600"
    file.chmod(0o644)  # of an earlier version
    folder.change("shop", text_of(owner="eva"), tag, anything)
    assert mode(file) == "0o640"
    tmp_path.chmod(0o700)
    folder.create(text_of("other"), anything)
    assert mode(tmp_path / "other.yaml") == "0o600"
    assert sorted(load_pipelines(tmp_path)[0]) == ["other", "shop"]


def test_folder_has_limits_of_files_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("changefeed.settings.folder.MAX_FILES", 3)
    monkeypatch.setattr("changefeed.settings.folder.MAX_BYTES", 1000)
    folder = PipelineFolder(tmp_path)
    first, _, _ = (folder.create(text_of(name), anything) for name in ("a", "b", "c"))
    with pytest.raises(SettingsError, match="more than 3 files"):
        folder.create(text_of("d"), anything)
    changed = folder.change("a", text_of("a", owner="eva"), first.tag, anything)
    with pytest.raises(SettingsError, match="1,000 bytes"):
        folder.change("a", text_of("a") + "#" * 1000, changed.tag, anything)
    assert folder.text("a") == changed
