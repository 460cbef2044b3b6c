"""The hash that decides where a key goes, against values that Kafka's own tests publish."""

from __future__ import annotations

import pytest

from worker.base.partitioner import murmur2, partition_of

PUBLISHED = {
    "": 275646681,
    "1": -1993445489,
    "12": 126087238,
    "123": -267702483,
    "1234": -1614185708,
    "21": -973932308,
    "abc": 479470107,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
}


@pytest.mark.parametrize("key", PUBLISHED)
def test_the_hash_is_that_of_java_clients(key: str) -> None:
    assert murmur2(key.encode()) == PUBLISHED[key] % 2**32


def test_a_negative_hash_loses_its_sign_and_not_its_value() -> None:
    assert partition_of(b"foobar", 1000) == (-790332482 & 0x7FFFFFFF) % 1000
    assert {partition_of(b"%d" % number, 3) for number in range(100)} == {0, 1, 2}
