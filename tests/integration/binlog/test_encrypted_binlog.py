"""binlog_encryption=ON: the server's sizes count a header that its dump does not send."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from changefeed.binlog.decoder import KernelDecoder
from changefeed.binlog.search.finder import Finder
from changefeed.formats.debezium import DebeziumFormat
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import FIRST_POSITION, BinlogCoordinates
from changefeed.model.route import Route
from changefeed.model.slice_report import SliceReport
from changefeed.model.window import Window, file_slices
from changefeed.source.mysql import source
from changefeed.source.mysql.binlogs import ServerBinlogs
from changefeed.source.mysql.session import Session
from devstack.identity import ProcessId
from devstack.mysql import MysqlServer, fetch_mysql
from devstack.process import run_server


class EncryptingServer(MysqlServer):
    """MySQL with a keyring file.

    A server looks for the list of its components beside its program, and a component for its settings beside itself,
    so both are links in the server's own folder.
    """

    def _mysqld(self) -> list[str]:
        *loader, program = super()._mysqld()
        link = self.directory / "sbin" / "mysqld"
        _link(link, Path(program))
        link.with_name("mysqld.my").write_text(json.dumps({"components": "file://component_keyring_file"}))
        return [*loader, str(link)]

    def _settings(self) -> dict[str, str | int]:
        component = fetch_mysql(self.home).plugins / "component_keyring_file.so"
        link = self.directory / "plugin" / component.name
        _link(link, component)
        settings = {"path": str(self.directory / "keyring"), "read_only": False}
        link.with_suffix(".cnf").write_text(json.dumps(settings))
        return super()._settings()


def _link(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.exists():
        link.symlink_to(target)


@pytest.fixture(scope="module")
def encrypting(session_folder: Path) -> Iterator[MysqlServer]:
    folder = session_folder / "encrypting"
    options = {"binlog_row_metadata": "FULL", "binlog_encryption": "ON", "plugin_dir": str(folder / "plugin")}
    with run_server(EncryptingServer(folder, options=options, owner=ProcessId.own(), quick=True)) as server:
        yield server


def test_window_over_encrypted_files_is_read_completely(encrypting: MysqlServer) -> None:
    encrypting.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    for number in range(3):
        encrypting.execute(f"INSERT INTO d.t VALUES ({2 * number}), ({2 * number + 1})", "FLUSH BINARY LOGS")
    encrypting.execute("INSERT INTO d.t VALUES (100)")
    with Session(MysqlConnection.from_uri(encrypting.url)) as session:
        binlogs, files = ServerBinlogs(session), source.binlog_files(session)
        assert (encrypting.data / files[0].name).read_bytes()[:4] == b"\xfdbin"
        head = source.head(session).coordinates
        start = BinlogCoordinates(files[0].name, FIRST_POSITION)
        slices = list(file_slices(Window("p", 1, source.server_uuid(session), start, head, "", "", 0), files))
        assert len(slices) == 4
        assert slices[-1].end == files[-1].size_bytes
        rows = size_bytes = 0
        decoder = KernelDecoder(lambda *_: Route("t", 1), lambda *_: None, DebeziumFormat("p", 0), "uuid")
        for slice in slices:
            for item in decoder.decode(binlogs.chunks(slice.file, slice.start, slice.end), slice):
                if isinstance(item, SliceReport):
                    size_bytes += item.size_bytes
                    rows += item.rows.get("d.t", {}).get("c", 0)
        assert (rows, size_bytes) == (7, sum(slice.size_bytes for slice in slices))
        finder = Finder(binlogs)
        end = finder.end_of(files[1].name)
        assert finder.at(BinlogCoordinates(files[1].name, files[1].size_bytes)).gtids == end.gtids
