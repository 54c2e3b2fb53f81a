"""Data that unpacks to a thousand times its size is given up at its bound, whatever packed it."""

from __future__ import annotations

import tracemalloc
import zlib
from collections.abc import Iterator

import pytest

from changefeed.errors import CheckpointError
from changefeed.kafka.commit_log.records import LogEntry, ProgressRecord, stored_value
from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.records import compression
from changefeed.records.compression import CODECS, MOST_OF_A_LOG, UnpackedTooLargeError, inflate

_BOMBS = {name: CODECS[name].compress(bytes(64 << 20), None) for name in ("gzip", "snappy", "lz4", "zstd")}


@pytest.fixture
def _memory() -> Iterator[None]:
    tracemalloc.start()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 24 << 20


@pytest.mark.usefixtures("_memory")
@pytest.mark.parametrize("name", _BOMBS)
def test_batch_that_unpacks_to_more_than_it_may_is_refused_before_it_is_unpacked(name: str) -> None:
    with pytest.raises(UnpackedTooLargeError, match="unpacks to more than 4,194,304 bytes"):
        CODECS[name].decompress(_BOMBS[name], 4 << 20)


@pytest.mark.parametrize("name", list(CODECS))
def test_batch_of_exactly_the_bound_is_unpacked(name: str) -> None:
    plain = bytes(range(256)) * 400
    assert CODECS[name].decompress(CODECS[name].compress(plain, None), len(plain)) == plain


@pytest.mark.parametrize("name", ["gzip", "lz4"])
def test_batch_without_an_end_is_refused(name: str) -> None:
    packed = CODECS[name].compress(bytes(range(256)) * 400, None)
    with pytest.raises(EOFError):
        CODECS[name].decompress(packed[: len(packed) // 2])


def test_value_of_the_commit_log_that_unpacks_to_more_than_it_may_is_refused() -> None:
    bomb = zlib.compress(b"[" + b" " * (MOST_OF_A_LOG + 1) + b"]")
    assert len(bomb) < 1 << 20
    key = ProgressRecord.key_of("shop", "t", 0)
    record = KafkaRecord("changefeed.shop.commits", 0, 7, key, bomb, (), 0, False)
    with pytest.raises(CheckpointError, match="unpacks to more than 134,217,728 bytes"):
        LogEntry.of(record).read()
    with pytest.raises(zlib.error):
        inflate(zlib.compress(b"x" * 1000)[:-5], 2000)


def test_value_that_could_not_be_read_again_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("changefeed.kafka.commit_log.records.MOST_OF_A_LOG", 1000)
    with pytest.raises(CheckpointError, match="expected at most 1,000"):
        stored_value(["x" * 1001])
    assert compression.MOST_OF_A_LOG == MOST_OF_A_LOG
