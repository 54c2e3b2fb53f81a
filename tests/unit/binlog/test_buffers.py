"""Memory that decoders reuse is lent to one at a time."""

from __future__ import annotations

from changefeed.binlog.groups import Buffers


def test_lent_buffers_are_exclusive_until_returned() -> None:
    first, second = Buffers(), Buffers()
    assert first.output is not second.output
    assert first.arena is not second.arena
    arena = second.arena
    del second
    assert Buffers().arena is arena


def test_output_grown_for_a_huge_row_is_not_reused() -> None:
    buffers = Buffers()
    buffers.output.grow()
    grown, arena = buffers.output, buffers.arena
    del buffers
    after = Buffers()
    assert after.arena is arena
    assert after.output is not grown
    assert not after.output.has_grown
