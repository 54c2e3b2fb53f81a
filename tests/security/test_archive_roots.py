"""Archives through Airflow: paths outside the administrator's roots are never opened, in any spelling."""

from __future__ import annotations

import argparse
import base64
import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import pytest
from airflow.sdk.exceptions import AirflowFailException

from changefeed.airflow.backfill_dag import backfill_dag
from changefeed.airflow.reporting import table_lines
from changefeed.errors import BinlogFormatError, BinlogGoneError, ChangefeedError, SettingsError
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.run_identity import backfill_identity
from changefeed.model.window import Window
from changefeed.settings.file import read_pipeline
from changefeed.settings.site import site_archive
from changefeed.source.archive.archive import Archive, archive_below
from changefeed.source.archive.binlogs import ArchivedBinlogs

SECRET = "JWT-s3cr3t-of-the-site"
NAME = "binlog.000001"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """`root/shop` with a file, `root-of-others/shop`, and a secret outside of both."""
    for name in ("root/shop", "root-of-others/shop"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / NAME).write_bytes(b"\xfebin" + bytes(200))
    (tmp_path / NAME).write_text(SECRET)
    return tmp_path


def reference_to(path: Path) -> str:
    """An fsspec chain that reads any file: an attack that revealed the site's secret, four bytes for each error."""
    references = json.dumps({"version": 1, "refs": {NAME: [f"file://{path}", 4, 4]}})
    return "reference::data:a:b:c;base64," + base64.b64encode(references.encode()).decode()


def test_without_a_site_file_no_archive_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHANGEFEED_SITE", raising=False)
    for url in (str(folder), f"file://{folder}", "s3://bucket/binlogs", "https://h/binlogs"):
        with pytest.raises(SettingsError, match="`archives` of the site file"):
            site_archive("mysql_shop")(url)


def test_withdrawn_root_is_refused_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = folder / "site.yaml"
    monkeypatch.setenv("CHANGEFEED_SITE", str(site))
    site.write_text(f"archives: [{folder}/root]\n")
    assert site_archive("mysql_shop")(f"{folder}/root/shop") == Archive(f"{folder}/root/shop", f"{folder}/root")
    site.write_text("archives: []\n")
    with pytest.raises(SettingsError, match="may not be read"):
        site_archive("mysql_shop")(f"{folder}/root/shop")


def test_an_archive_of_one_source_is_not_read_by_pipelines_of_another(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = folder / "site.yaml"
    monkeypatch.setenv("CHANGEFEED_SITE", str(site))
    site.write_text(f"archives: [{folder}/root, {{url: {folder}/root-of-others, source: mysql_staff}}]\n")
    for source in ("mysql_shop", "mysql_staff"):
        assert site_archive(source)(f"{folder}/root/shop")
    assert site_archive("mysql_staff")(f"{folder}/root-of-others/shop")
    for source in ("mysql_shop", "MYSQL_STAFF"):
        with pytest.raises(SettingsError, match="may not be read"):
            site_archive(source)(f"{folder}/root-of-others/shop")


@pytest.mark.parametrize(
    "url",
    [
        "{folder}/root-of-others/shop",
        "{folder}/root/../root-of-others/shop",
        "{folder}/root/shop/../../root-of-others/shop",
        "{folder}//root-of-others/shop",
        "{folder}/root/%2e%2e/root-of-others/shop",
        "file://{folder}/root/%2E%2e/root-of-others/shop",
        "{folder}/root/..%2froot-of-others/shop",
        "{folder}/roo",
        "{folder}/ROOT/shop",
        "{folder}",
        "/",
        "",
        ".",
        "..",
        "root/shop",
        "~/binlogs",
        "file://",
        "file:{folder}/root/shop",
        "file://localhost{folder}/root/shop",
        "file://{folder}/root/shop?x=1",
        "file://{folder}/root/shop#x",
        "local://{folder}/root/shop",
        "FILE::{folder}/root/shop",
        "{folder}/root/shop::{folder}/root-of-others",
        "simplecache::{folder}/root/shop",
        "zip://a::{folder}/root/shop",
        "dir::{folder}/root/shop",
        "blockcache::file://{folder}/root/shop",
        "reference://::{folder}/root/shop",
        "filecache://{folder}/root/shop",
        "data:,x",
        "memory://root/shop",
        "webhdfs://169.254.169.254/latest",
        "hdfs://h/root",
        "ftp://h/binlogs",
        "sftp://h/binlogs",
        "smb://h/binlogs",
        "github://org:repo@main/",
        "git://{folder}/root",
        "jupyter://h/",
        "dask://h/",
        "s3://binlogs",
        "s3://binlogs/",
        "s3://binlogs/shopping",
        "s3://binlogs/shop/../other",
        "s3://binlogs/shop/%2e%2e/other",
        "s3://binlogs/%73hop",
        "s3://binlogs/SHOP",
        "s3://Binlogs/shop",
        "s3://other/shop",
        "s3://user@binlogs/shop",
        "s3://binlogs/shop?versionId=1",
        "s3://binlogs\\@other/shop",
        "s3:binlogs/shop",
        "s3:///binlogs/shop",
        "s3a://binlogs/shop",
        "gs://binlogs/shop",
        "https://archive.example/other/",
        "https://archive.example/binlogs/below/",
        "https://archive.example/",
        "https://archive.example:8443/binlogs/",
        "http://archive.example/binlogs/",
        "https://archive.example.evil/binlogs/",
        "https://archive.example@evil/binlogs/",
        "https://evil/binlogs/#archive.example/binlogs/",
        "https://archive.example/binlogs/?redirect=http://169.254.169.254/",
        "https://archive.example/binlogs/../../other",
        "https:///archive.example/binlogs/",
        "https:/archive.example/binlogs/",
        "\nhttps://archive.example/binlogs/",
        "https://archive.example/binlogs/\n",
        "{folder}/root/shop\x00",
        "{folder}/root/shop\u2028x",
        "{folder}/root/" + 2000 * "x",
    ],
)
def test_path_outside_the_roots_is_refused_and_never_opened(
    folder: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_if_opened(*_: object, **__: object) -> None:
        raise AssertionError("fsspec saw it")

    monkeypatch.setattr(fsspec.core, "url_to_fs", fail_if_opened)
    monkeypatch.setattr(fsspec, "filesystem", fail_if_opened)
    roots = [f"{folder}/root", "s3://binlogs/shop/", "HTTPS://Archive.example/binlogs/"]
    with pytest.raises(SettingsError, match=r"`archives` of the site file|environment"):
        archive_below(url.replace("{folder}", str(folder)), roots)


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("{folder}/root", "{folder}/root"),
        ("{folder}//root/./shop/", "{folder}/root/shop"),
        ("FILE://{folder}/root/shop", "{folder}/root/shop"),
        ("s3://binlogs/shop", "s3://binlogs/shop"),
        ("S3://binlogs//shop/2026/", "s3://binlogs/shop/2026"),
        ("gcs://b/x", "gs://b/x"),
        ("az://container/x", "abfs://container/x"),
        ("https://archive.example/binlogs", "https://Archive.example/binlogs/"),
        ("HTTPS://ARCHIVE.EXAMPLE//binlogs/", "https://Archive.example/binlogs/"),
    ],
)
def test_path_below_a_root_is_normalized(folder: Path, url: str, read: str) -> None:
    roots = [
        f"file://{folder}/root/",
        "s3://binlogs/shop/",
        "gs://b",
        "abfs://container",
        "https://Archive.example/binlogs/",
    ]
    assert archive_below(url.replace("{folder}", str(folder)), roots).url == read.replace("{folder}", str(folder))


@pytest.mark.parametrize(
    "root", ["binlogs", "ftp://h/x", "s3://key:secret@bucket/x", "simplecache::s3://b", "/a/../b", ""]
)
def test_root_that_cannot_be_compared_is_refused(root: str) -> None:
    with pytest.raises(SettingsError, match="number 2 of `archives` in the site file") as caught:
        archive_below("/srv/binlogs/shop", ["/srv/other", root])
    assert "secret" not in str(caught.value)


def test_link_out_of_the_root_is_not_followed(folder: Path) -> None:
    root = folder / "root"
    (root / "linked").symlink_to(folder / "root-of-others" / "shop")
    (root / "one").mkdir()
    (root / "one" / NAME).symlink_to(folder / NAME)
    with pytest.raises(SettingsError, match="may not be read"):
        archive_below(str(root / "linked"), [str(root)])
    archive = archive_below(str(root / "one"), [str(root)])
    with pytest.raises(SettingsError, match="link out of the root"):
        ArchivedBinlogs(archive).files()
    with pytest.raises(SettingsError, match="may not be read"):
        archive_below(str(root / "one" / NAME), [str(root)])


def test_link_created_after_the_plan_is_not_followed_by_the_job(folder: Path) -> None:
    archive = archive_below(f"{folder}/root/shop", [f"{folder}/root"])
    planned = ArchivedBinlogs(archive)
    assert [file.name for file in planned.files()] == [NAME]
    (folder / "root" / "shop" / NAME).unlink()
    (folder / "root" / "shop" / NAME).symlink_to(folder / NAME)
    for reader in (planned, ArchivedBinlogs(archive)):  # one that listed the files before, and a new one
        with pytest.raises(SettingsError, match="link out of the root"):
            list(reader.chunks(NAME, 4, 8))
    (folder / "root" / "shop").rename(folder / "root" / "moved")
    (folder / "root" / "shop").symlink_to(folder)
    with pytest.raises(SettingsError, match="link out of the root"):
        ArchivedBinlogs(archive).files()


def test_links_inside_the_root_and_of_the_command_are_followed(folder: Path) -> None:
    (folder / "root" / "linked").mkdir()
    (folder / "root" / "linked" / NAME).symlink_to(folder / "root" / "shop" / NAME)
    inside = archive_below(f"{folder}/root/linked", [f"{folder}/root"])
    assert [file.size_bytes for file in ArchivedBinlogs(inside).files()] == [204]
    (folder / "own").mkdir()
    (folder / "own" / NAME).symlink_to(folder / "root" / "shop" / NAME)
    assert [file.size_bytes for file in ArchivedBinlogs(Archive(str(folder / "own"))).files()] == [204]


def test_error_shows_no_byte_of_a_file_that_is_no_binlog(folder: Path) -> None:
    (folder / "root" / "text").mkdir()
    (folder / "root" / "text" / NAME).write_text(SECRET)
    for archive in (
        archive_below(f"{folder}/root/text", [f"{folder}/root"]),
        Archive(f"{folder}/root/text"),
        Archive(reference_to(folder / NAME)),  # by the command, whose user may read the file
    ):
        with pytest.raises(BinlogFormatError, match="not a binlog") as caught:
            list(ArchivedBinlogs(archive).chunks(NAME, 4, 19))
        shown = str(caught.value).partition("not a binlog")[2]
        assert [part for part in (SECRET[:4], SECRET[4:8], SECRET[4:8].encode().hex()) if part in shown] == []
    with pytest.raises(SettingsError, match="chain"):
        archive_below(reference_to(folder / NAME), ["/"])


def test_storage_errors_are_not_shown_through_airflow(folder: Path) -> None:
    (folder / "root" / "gone").mkdir()
    file = folder / "root" / "gone" / NAME
    file.write_bytes(b"\xfebin" + bytes(200))
    binlogs = ArchivedBinlogs(archive_below(f"{folder}/root/gone", [f"{folder}/root"]))
    binlogs.files()
    file.unlink()
    with pytest.raises(SettingsError, match=r"FileNotFoundError: No such file or directory\. Expected"):
        list(binlogs.chunks(NAME, 4, 19))
    with pytest.raises(SettingsError, match="cannot be read: FileNotFoundError"):
        ArchivedBinlogs(archive_below(f"{folder}/root/never", [f"{folder}/root"])).files()


@pytest.mark.parametrize(
    "name",
    [
        "binlog.000001\nINFO published",
        "binlog\x1b[2J.000001",
        "binlog.²²²²²²",
        "binlog." + 5000 * "9",
        "b" * 300 + ".000001",
    ],
)
def test_file_with_an_impossible_binlog_name_is_skipped(name: str) -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe({f"/listed/{name}": b"x"})
    try:
        with pytest.raises(BinlogGoneError, match="no file with a binlog's name"):
            ArchivedBinlogs(Archive("memory://listed")).files()
    finally:
        memory.rm("/listed", recursive=True)


def test_a_folder_with_more_files_than_any_archive_has_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("changefeed.source.archive.binlogs.MOST_FILES", 3)
    for number in range(2, 6):
        (folder / "root" / "shop" / f"notes-{number}.txt").touch()
    archive = archive_below(f"{folder}/root", [f"{folder}/root"])
    assert len(ArchivedBinlogs(Archive(f"{archive.url}/shop", archive.root)).files()) == 1
    for number in range(2, 6):
        (folder / "root" / "shop" / f"binlog.{number:06}").touch()
    with pytest.raises(SettingsError, match="more than 3 binlog files"):
        ArchivedBinlogs(Archive(f"{archive.url}/shop", archive.root)).files()


@pytest.mark.parametrize(
    "url",
    [
        "https:/u:S@h/b",
        "https:\\\\u:S@h\\b",
        "https://u:S%40h/b",
        "s3://AKIA:S/more@bucket/b",
        "s3://AKIA:S/more",
        "https://h:443/S@x",
        "s3:AKIA:S@bucket",
        "/a::ftp://u:S@h/",
        "simplecache::https://h/b?sig=S",
        "file:/x?sig=S",
    ],
)
def test_error_for_a_url_with_a_secret_hides_it(url: str) -> None:
    url = url.replace("S", "s3cr3t")
    for read in (Archive, lambda url: archive_below(url, ["/", "s3://bucket", "https://h"])):
        with pytest.raises(ChangefeedError) as caught:
            read(url)
        assert "s3cr3t" not in str(caught.value)
        assert caught.value.__cause__ is None


def test_job_gets_its_root_from_the_worker_not_from_an_xcom(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "own.yaml").write_text("name: own\nsource: {connection: mysql_own}\nkafka: {connection: kafka_own}\n")
    others = f"{{url: {folder}/root-of-others, source: mysql_other}}"
    (folder / "site.yaml").write_text(f"archives: [{folder}/root, {others}]\n")
    monkeypatch.setenv("CHANGEFEED_SITE", str(folder / "site.yaml"))
    monkeypatch.setenv("CHANGEFEED_PIPELINES", str(folder))
    ingest = backfill_dag(read_pipeline(folder / "own.yaml")).task_dict["ingest"]

    def plan_for_job(archive: str) -> Any:
        planned = {
            "request": {"pipeline": "own", "from_file": NAME, "archive": archive},
            "window": {"pipeline": "own"},
            "identity": backfill_identity("own", "manual__1"),
            "archive_roots": ["/"],
        }
        ti = SimpleNamespace(xcom_pull=lambda **_: planned)
        return ingest._read_plan({"ti": ti, "run_id": "manual__1"})

    assert plan_for_job(f"{folder}/root/shop")["archive_roots"] == [f"{folder}/root"]
    with pytest.raises(AirflowFailException, match="may not be read"):
        plan_for_job(f"{folder}/root-of-others/shop")


def test_job_without_a_root_reads_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHANGEFEED_PIPELINES", str(folder))
    monkeypatch.setenv("CHANGEFEED_SITE", str(folder / "site.yaml"))  # the worker's site file may allow any root
    (folder / "own.yaml").write_text("name: own\nsource: {connection: mysql_own}\nkafka: {connection: kafka_own}\n")
    (folder / "site.yaml").write_text("archives: [/]\n")
    window = Window("own", 1, "u", BinlogCoordinates(NAME, 4), BinlogCoordinates(NAME, 9), "", "", 0)
    planned = {"request": {"pipeline": "own", "from_file": NAME, "archive": str(folder)}, "window": window.to_json()}
    (folder / "plan.json").write_text(json.dumps({"plan": {**planned, "identity": "own.backfill.x"}}))
    publish = runpy.run_path(str(Path(__file__).parents[2] / "jobs" / "backfill.py"))["publish"]
    with pytest.raises(SettingsError, match="may not be read"):
        list(publish(argparse.Namespace(job=str(folder / "plan.json"))))


def test_a_name_in_a_log_stays_on_its_line() -> None:
    lines = table_lines(["table", "bytes"], [("shop.t\nINFO forged", 1), ("shop.\x1b[2Jt", 2), ("shop.t", 3)])
    assert len("\n".join(lines).splitlines()) == 4
    assert lines[-1].startswith("shop.t ")
    assert "\x1b" not in "".join(lines)
