"""Memory that decoders hand on to each other is lent to one at a time."""

from __future__ import annotations

from changefeed.binlog.groups import Buffers


def test_what_is_lent_is_nobody_else_s_until_it_is_given_back() -> None:
    first, second = Buffers(), Buffers()
    assert first.output is not second.output
    assert first.arena is not second.arena
    arena = second.arena
    del second
    assert Buffers().arena is arena


def test_what_has_grown_for_a_huge_row_is_not_handed_on() -> None:
    buffers = Buffers()
    buffers.output.grow()
    grown, arena = buffers.output, buffers.arena
    del buffers
    after = Buffers()
    assert after.arena is arena
    assert after.output is not grown
    assert not after.output.has_grown
