"""What proves that a server's binlog is not the one of the checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from changefeed.errors import (
    BinlogFormatError,
    BinlogGoneError,
    BinlogRefusedError,
    ChangefeedError,
    SourceError,
    SourceUnavailableError,
)
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.window import BinlogFile
from changefeed.pipeline.plan import other_binlog
from changefeed.source.mysql.binlogs import ServerBinlogs
from changefeed.source.mysql.source import Head

_AT, _HEAD = BinlogCoordinates("bin.000007", 400), BinlogCoordinates("bin.000007", 900)
_CHECKPOINT = Checkpoint("shop", 3, "3e11fa47-71ca-11e1-9e33-c80aa9429562", _AT, "", 1_700_000_000_000)


class _Binlogs:
    """A server without GTIDs, whose dump raises ``error``."""

    is_mariadb = False

    def __init__(self, error: ChangefeedError) -> None:
        self._error = error

    def files(self) -> list[BinlogFile]:
        return [BinlogFile("bin.000007", 900)]

    def first_events(self, _file: str, _start: int, _end: int) -> Iterator[bytes]:
        raise self._error
        yield b""


def _difference(error: ChangefeedError) -> str:
    return other_binlog(_CHECKPOINT, Head(_HEAD, ""), cast(ServerBinlogs, _Binlogs(error)))


@pytest.mark.parametrize("error", [SourceError("refuses user 'reader'"), SourceUnavailableError("is offline")])
def test_refused_login_does_not_prove_another_binlog(error: ChangefeedError) -> None:
    with pytest.raises(type(error), match=str(error)) as raised:
        _difference(error)
    assert raised.value is error


@pytest.mark.parametrize("kind", [BinlogFormatError, BinlogGoneError, BinlogRefusedError])
def test_position_that_the_server_does_not_have_proves_another_binlog(kind: type[ChangefeedError]) -> None:
    assert _difference(kind("bogus data")) == "nothing can be read at bin.000007:400 (bogus data)"
