"""Which partition a key goes to: as Java clients decide it, and librdkafka under the name murmur2_random."""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_M = 0x5BD1E995


def partition_of(key: bytes, partitions: int) -> int:
    """Partition of a record with this key in a topic of so many partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """The 32-bit hash MurmurHash2 of Austin Appleby, unsigned, with the seed that Kafka gives it."""
    whole = len(data) // 4 * 4
    h = (_SEED ^ len(data)) & _MASK
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    if whole < len(data):
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15
