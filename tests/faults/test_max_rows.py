"""`windows: {max_rows: …}`: a backlog becomes windows of at most this many rows in a continuous run."""

from __future__ import annotations

import itertools

import pytest
from faults.feed import Feed, in_order
from faults.test_continuous import has_rows, sealed, wait
from faults.test_verify import connections_of

from changefeed.model.manifest import Manifest
from changefeed.pipeline.windows import windows
from devstack.mariadb import MariadbServer

pytestmark = [pytest.mark.timeout(600), pytest.mark.extended]

MOST = 1000
COMPRESSED = "SET SESSION binlog_transaction_compression = ON"


def write(feed: Feed, transactions: list[int], *before: str, table: str = "journal") -> None:
    """Insert equal rows, in transactions of these numbers of rows."""
    with feed.mysql.connect(database=feed.name, autocommit=False) as connection, connection.cursor() as cursor:
        for statement in before:
            cursor.execute(statement)
        for rows in transactions:
            cursor.execute(f"INSERT INTO {table} (text) VALUES {', '.join(['(NULL)'] * rows)}")
            connection.commit()


def publish(feed: Feed) -> list[Manifest]:
    """Publish everything with a continuous run, check it, and return the windows with rows."""
    feed.settings["windows"] = {"every": "10m", "run_for": "20m", "max_rows": MOST}
    feed.configure()
    run, connections = feed.begin(), connections_of(feed)

    def is_sealed() -> bool:  # rows are in the topics before their window is sealed
        return sum(manifest.row_count for manifest in windows(connections)) == len(feed.ids())

    try:
        wait(lambda: sealed(run) != [0] and has_rows(feed) and is_sealed(), run)
    finally:
        run.kill()
    feed.check()
    assert in_order(feed.records("journal"))
    found = sorted(windows(connections), key=lambda manifest: manifest.window.number)
    return [manifest for manifest in found if manifest.row_count]


def check(manifests: list[Manifest], large: tuple[int, ...] = ()) -> None:
    """Check that windows have at most the limit, except those of the ``large`` transactions, and follow one another."""
    counts = [manifest.row_count for manifest in manifests]
    assert tuple(count for count in counts if count > MOST) == large
    assert all(manifest.transactions == 1 for manifest in manifests if manifest.row_count > MOST)
    for count, after in itertools.pairwise(counts):
        assert count + after > MOST, "no window is smaller than it must be"


def test_a_bulk_becomes_windows_of_at_most_the_limit(feed: Feed) -> None:
    write(feed, [100] * 30)
    write(feed, [3000])
    write(feed, [100] * 20)
    manifests = publish(feed)
    check(manifests, large=(3000,))
    assert [manifest.row_count for manifest in manifests] == [1000, 1000, 1000, 3000, 1000, 1000]


def test_rows_of_other_tables_count_too(feed: Feed) -> None:
    feed.mysql.execute(f"CREATE TABLE `{feed.name}`.other (id INT AUTO_INCREMENT PRIMARY KEY, text VARCHAR(9))")
    feed.settings["tables"] = {"include": [f"{feed.name}.journal", f"{feed.name}.accounts"]}
    for _ in range(10):
        write(feed, [50])
        write(feed, [450], table="other")
    assert [manifest.row_count for manifest in publish(feed)] == [100] * 5


def test_a_window_has_at_most_window_bytes_too(feed: Feed) -> None:
    feed.settings["window_bytes"] = 1  # a file each
    for rows in ([100] * 3, [100] * 12, [100]):
        write(feed, rows)
        feed.mysql.execute("FLUSH BINARY LOGS")
    assert [manifest.row_count for manifest in publish(feed)] == [300, 1000, 200, 100]


def test_rows_of_compressed_transactions_count(feed: Feed) -> None:
    write(feed, [100] * 30, COMPRESSED)
    write(feed, [3000], COMPRESSED)
    write(feed, [900, 200, 800, 200], COMPRESSED)
    manifests = publish(feed)
    check(manifests, large=(3000,))
    assert [manifest.row_count for manifest in manifests] == [1000, 1000, 1000, 3000, 900, 1000, 200]


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_bulk_on_mariadb(mariadb_feed: Feed, is_compressed: bool) -> None:
    feed = mariadb_feed
    assert isinstance(feed.mysql, MariadbServer)
    feed.mysql.execute(f"SET GLOBAL log_bin_compress = {is_compressed:d}")
    try:
        write(feed, [100] * 30)
        write(feed, [3000, 600, 600])
    finally:
        feed.mysql.execute("SET GLOBAL log_bin_compress = 0")
    manifests = publish(feed)
    check(manifests, large=(3000,))
    assert [manifest.row_count for manifest in manifests] == [1000, 1000, 1000, 3000, 600, 600]


def test_overlapping_xa_transactions_share_windows(feed: Feed) -> None:
    """Each is committed after the next one is prepared, so that one is prepared at the end of each window."""
    values = ", ".join(["(NULL)"] * 100)
    with (
        feed.mysql.connect(database=feed.name) as odd,
        feed.mysql.connect(database=feed.name) as even,
        odd.cursor() as first,
        even.cursor() as second,
    ):
        cursors, last = (first, second), 30
        for number in range(last + 1):
            xid, before = (f"'{feed.name}-{each}'" for each in (number, number - 1))
            if number < last:
                insert = f"INSERT INTO journal (text) VALUES {values}"
                for sql in (f"XA START {xid}", insert, f"XA END {xid}", f"XA PREPARE {xid}"):
                    cursors[number % 2].execute(sql)
            if number:
                cursors[(number - 1) % 2].execute(f"XA COMMIT {before}")
    counts = [manifest.row_count for manifest in publish(feed)]
    assert sum(counts) == 3000
    assert len(counts) <= 3000 * 2 // MOST + 2, "rows count in XA PREPARE and in XA COMMIT"
