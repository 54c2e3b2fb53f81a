"""Coordinates in a binlog, found on a real server and in archived files."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from changefeed.binlog.events.framing import complete_events
from changefeed.binlog.events.gtids import logged_before
from changefeed.binlog.search.finder import Finder
from changefeed.errors import BinlogFormatError, BinlogGoneError, SettingsError
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.gtid import GtidSet
from changefeed.model.seek import SeekTarget
from changefeed.source.archive.archive import Archive
from changefeed.source.archive.binlogs import ArchivedBinlogs
from changefeed.source.mysql.binlogs import ServerBinlogs
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.source import head
from devstack.mysql import MysqlServer


@dataclass
class Known:
    """Three files with five inserts each; the server's coordinates after each of them."""

    server: MysqlServer
    session: Session
    files: list[str]
    places: list[tuple[BinlogCoordinates, GtidSet]]
    pause_seconds: int

    def finder(self) -> Finder:
        return Finder(ServerBinlogs(self.session))


@pytest.fixture(scope="module")
def known(full_mysql_server: MysqlServer) -> Iterator[Known]:
    full_mysql_server.execute(
        "CREATE DATABASE places", "CREATE TABLE places.t (id INT PRIMARY KEY AUTO_INCREMENT, n INT)"
    )
    with Session(MysqlConnection.from_uri(full_mysql_server.url)) as session:
        files, places = [], []
        for number in range(3):
            full_mysql_server.execute("FLUSH BINARY LOGS")
            for row in range(5):
                full_mysql_server.execute(f"INSERT INTO places.t (n) VALUES ({number * 5 + row})")
                at = head(session)
                places.append((at.coordinates, GtidSet.parse(at.gtids)))
            files.append(places[-1][0].file)
            if number == 1:
                time.sleep(1.1)
                pause = int(time.time())
                time.sleep(0.1)
        yield Known(full_mysql_server, session, files, places, pause)
    full_mysql_server.execute("DROP DATABASE places")


def test_coordinates_of_every_commit_are_found_with_their_gtids(known: Known) -> None:
    finder = known.finder()
    for coordinates, gtids in known.places:
        place = finder.at(coordinates)
        assert (place.coordinates, GtidSet.parse(place.gtids)) == (coordinates, gtids)


def test_coordinates_inside_a_transaction_raise_with_nearest_boundaries(known: Known) -> None:
    before, after = known.places[6][0], known.places[7][0]
    with pytest.raises(SettingsError, match="inside a transaction") as refused:
        known.finder().at(BinlogCoordinates(after.file, after.position - 31))
    assert f"{before} or {after}" in str(refused.value)


def test_a_gtid_set_leads_to_the_transaction_after_it(known: Known) -> None:
    for coordinates, gtids in known.places[:-1]:
        assert known.finder().after_gtids(gtids).coordinates.has_reached(coordinates)
    assert known.finder().after_gtids(known.places[7][1]).coordinates == known.places[7][0]


def test_a_file_s_last_gtid_set_leads_past_its_end(known: Known) -> None:
    found = known.finder().after_gtids(known.places[4][1])
    assert found.coordinates.number == known.places[5][0].number or found.coordinates == known.places[4][0]


def test_a_range_of_gtids_is_the_shortest_that_holds_them(known: Known) -> None:
    expected = known.places[8][1].subtract(known.places[6][1])
    start, end = known.finder().around_gtids(expected)
    assert (start.coordinates, end.coordinates) == (known.places[6][0], known.places[8][0])


def test_missing_gtids_are_refused_with_the_existing_files(known: Known) -> None:
    unknown = GtidSet.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5")
    with pytest.raises(BinlogGoneError, match=known.files[0].rpartition(".")[0]):
        known.finder().around_gtids(unknown)


def test_a_time_leads_to_the_first_transaction_written_then(known: Known) -> None:
    place = known.finder().at_time(known.pause_seconds)
    assert place.coordinates.file == known.files[2]
    assert known.places[10][0].has_reached(place.coordinates)


def test_a_time_before_the_oldest_file_is_refused(known: Known) -> None:
    with pytest.raises(BinlogGoneError, match="begins at"):
        known.finder().at_time(1_000_000)


@pytest.mark.parametrize("size_bytes", [1, 400, 1000, 2500, 10_000_000])
def test_a_bound_in_bytes_ends_at_a_commit_and_always_moves(known: Known, size_bytes: int) -> None:
    finder = known.finder()
    start, end = finder.at(known.places[0][0]), finder.at(known.places[-1][0])
    found = finder.within(start, end, size_bytes)
    assert found.coordinates > start.coordinates
    assert finder.at(found.coordinates) == found
    if size_bytes == 10_000_000:
        assert found == end


def test_archived_files_give_the_same_places(known: Known, tmp_path: Path) -> None:
    known.server.execute("FLUSH BINARY LOGS")
    for file in known.files:
        shutil.copy(known.server.data / file, tmp_path)
    finder = Finder(ArchivedBinlogs(Archive(str(tmp_path))))
    assert finder.earliest().coordinates == BinlogCoordinates(known.files[0], 4)
    for coordinates, _ in known.places:
        assert finder.at(coordinates).coordinates == coordinates
    expected = known.places[8][1].subtract(known.places[6][1])
    start, end = finder.around_gtids(expected)
    assert (start.coordinates, end.coordinates) == (known.places[6][0], known.places[8][0])


def test_an_archive_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binlog.000001").write_bytes(b"text, and no binlog")
    with pytest.raises(BinlogFormatError, match="not a binlog"):
        list(ArchivedBinlogs(Archive(str(tmp_path))).chunks("binlog.000001", 4, 19))
    with pytest.raises(SettingsError, match="cannot be"):
        ArchivedBinlogs(Archive("nosuch://host/folder")).files()
    (tmp_path / "empty").mkdir()
    with pytest.raises(BinlogGoneError, match=r"binlog\.000012"):
        ArchivedBinlogs(Archive(str(tmp_path / "empty"))).files()


def test_targets_of_a_seek_are_read_in_every_form() -> None:
    assert SeekTarget.parse("latest").kind == "latest"
    assert SeekTarget.parse("binlog.000012:4077").coordinates == BinlogCoordinates("binlog.000012", 4077)
    moment = SeekTarget.parse("2026-01-31T12:00:00Z")
    assert moment.ts_seconds == int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp())
    assert SeekTarget.parse("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-42").kind == "gtids"
    with pytest.raises(SettingsError, match="expected earliest"):
        SeekTarget.parse("yesterday")


@pytest.mark.extended
@pytest.mark.parametrize("kind", ["full_mysql_server", "mariadb_server"])
def test_the_gtids_before_a_file_are_read_as_the_server_shows_them(
    kind: str, request: pytest.FixtureRequest, unique_name: str
) -> None:
    """MySQL's with tags, in a form of their own, and without."""
    server = request.getfixturevalue(kind)
    server.execute(f"CREATE DATABASE {unique_name}")
    if kind == "full_mysql_server":
        for tag in ("ours", "theirs"):
            server.execute(f"SET gtid_next = 'AUTOMATIC:{tag}'", f"CREATE TABLE {unique_name}.{tag} (id INT)")
    server.execute(f"DROP DATABASE {unique_name}", "FLUSH BINARY LOGS")
    file = server.head().partition(":")[0]
    data = (server.data / file).read_bytes()[4:]
    body = next(
        (event[4], bytes(event[19:-4])) for event in complete_events([data], len(data)) if event[4] in (35, 163)
    )
    with Session(MysqlConnection.from_uri(server.url)) as session:
        shown = ServerBinlogs(session).logged_before(file)
    assert logged_before(*body) == GtidSet.parse(shown)
    assert (":ours:" in shown) == (kind == "full_mysql_server")
