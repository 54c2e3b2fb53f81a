"""The checkpoint that a continuous run holds in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from changefeed.errors import CheckpointError, StaleCheckpointError
from changefeed.model.checkpoint import Checkpoint, CheckpointStore
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.state.held_store import HeldCheckpointStore

FIRST = Checkpoint("shop", 1, "uuid", BinlogCoordinates("binlog.000001", 100), "", 0)
LATER = replace(FIRST, window=2, coordinates=BinlogCoordinates("binlog.000001", 200))


def test_it_moves_by_compare_and_set() -> None:
    store: CheckpointStore = HeldCheckpointStore(FIRST)
    store.advance(FIRST, LATER)
    assert store.load("shop") == LATER
    with pytest.raises(StaleCheckpointError, match=r"expected to move .* from window 1 .* found window 2"):
        store.advance(FIRST, LATER)


def test_only_a_seek_moves_it_back() -> None:
    store = HeldCheckpointStore(LATER)
    with pytest.raises(CheckpointError, match=r"may not go from window 2"):
        store.advance(LATER, FIRST)
    store.replace(LATER, FIRST)
    assert store.load("shop") == FIRST


def test_it_has_no_other_pipelines_checkpoint() -> None:
    assert HeldCheckpointStore(FIRST).load("other") is None
