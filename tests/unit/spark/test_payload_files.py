"""Payloads are read from files as they were written; an incomplete payload is an error."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.records.batch import Batch
from changefeed.spark.stages.messages import StoredBatch, batches_of, stored_batches
from changefeed.spark.stages.payload_files import PayloadFile


@given(st.lists(st.binary(max_size=300), max_size=40))
def test_payloads_of_several_files_come_out_in_any_order(payloads: list[bytes]) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="with a space ") as folder,
        PayloadFile(folder) as one,
        PayloadFile(folder) as two,
    ):
        written = [((one, two)[number % 2].write(payload), payload) for number, payload in enumerate(payloads)]
        assert all(where.read() == payload for where, payload in reversed(written))


def test_a_batch_is_the_same_by_a_file_as_through_spark(tmp_path: Path) -> None:
    batch = Batch("t.users", 3, "binlog.000007", 2, 9, 1, 5, 6, b"gtid", 1, b"coordinates", b"records")
    with PayloadFile(str(tmp_path)) as file:
        assert StoredBatch.of(batch, 17, file).batch() == batch
    stored = StoredBatch.of(batch, 17)
    assert list(batches_of(stored_batches([stored]))) == [stored]
    assert stored.batch() == batch


def test_a_file_that_ends_early_or_is_damaged_or_gone_is_an_error_that_names_it(tmp_path: Path) -> None:
    with PayloadFile(str(tmp_path)) as file:
        file.write(b"first")
        where = file.write(b"second")
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"firstsec")
    with pytest.raises(OSError, match=f"expected 6 bytes of a decoded batch at 5 of '{path}', found 3"):
        where.read()
    path.write_bytes(b"firstsecanD")
    with pytest.raises(OSError, match=r"expected checksum .* of a decoded batch at 5"):
        where.read()
    path.unlink()
    with pytest.raises(FileNotFoundError):
        where.read()
