"""Keys go to the partition that Kafka's own producers would choose."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_pythons_murmur2

from changefeed.records.partition import murmur2, partition_of


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_the_one_of_kafkas_own_tests(key: bytes, signed: int) -> None:
    """Vectors of `org.apache.kafka.common.utils.UtilsTest.testMurmur2`."""
    assert murmur2(key) == signed % 2**32


@given(st.binary(max_size=70))
def test_the_hash_is_the_one_of_kafka_python(key: bytes) -> None:
    assert murmur2(key) == kafka_pythons_murmur2(key) % 2**32


@given(st.none() | st.binary(max_size=20), st.binary(min_size=1, max_size=20), st.integers(1, 500))
def test_a_message_has_one_partition_of_those_that_are_there(key: bytes | None, event: bytes, partitions: int) -> None:
    place = partition_of(key, event, partitions)
    assert 0 <= place < partitions
    assert place == partition_of(key, event, partitions), "the same again: a retry must find the same partition"


@given(st.binary(max_size=20), st.binary(max_size=9), st.binary(max_size=9))
def test_all_changes_of_a_key_go_to_one_partition(key: bytes, one: bytes, other: bytes) -> None:
    assert partition_of(key, one, 12) == partition_of(key, other, 12)


def test_messages_without_a_key_are_spread() -> None:
    assert {partition_of(None, b"uuid/bin.000007:4/%d" % row, 3) for row in range(50)} == {0, 1, 2}


def test_a_null_key_with_a_gtid_has_one_partition_on_each_server() -> None:
    """The event id is another one on each; the rows of a statement go round the partitions."""
    gtid = b"3e11fa47-71ca-11e1-9e33-c80aa9429562:7"
    for row in range(12):
        here, there = (partition_of(None, event, 3, gtid=gtid, statement_row=row) for event in (b"a/1:4/0", b"b/9:7/5"))
        assert here == there == (partition_of(None, b"", 3, gtid=gtid) + row) % 3
