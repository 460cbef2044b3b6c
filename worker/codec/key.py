"""The key of a record, which names its model. It is text whatever codec the values have."""

from __future__ import annotations

from worker.base.limits import MAX_KEY_BYTES
from worker.base.records import Reject


def decode_key(key: bytes) -> str | Reject:
    """The model key of a record key: 1 to 512 bytes of UTF-8, kept as they are."""
    if not 0 < len(key) <= MAX_KEY_BYTES:
        return Reject("invalid-key", f"the record key has {len(key)} bytes, expected 1 to {MAX_KEY_BYTES}")
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        return Reject("invalid-key", f"the record key is not UTF-8 at byte {error.start}")
