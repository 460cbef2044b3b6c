"""Memory that grows without being copied, in large pages where there is much of it.

Where a forest that grows is copied to fresh memory, the system clears each page of 4 kB anew and looks it up: that took
a third of the time to learn. So arrays are resized by the C library, and large blocks are mappings of their own: the
system moves their pages, and is asked for large ones.
"""

from __future__ import annotations

import contextlib
import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LARGE = 1 << 22
"""Bytes from which on a block is a mapping: systems allow some ten thousand of them in a process."""
_NOTHING = np.empty(0, np.int32)
_CAN_MOVE = hasattr(mmap, "MAP_PRIVATE") and hasattr(mmap, "MADV_HUGEPAGE")


class Block:
    """Flat int32 memory that is zero at first, and can be resized; what is new is zero.

    words: the memory, until it is resized. Other arrays that view it keep what it was, and cost a copy then.
    """

    __slots__ = ("_mapping", "words")
    words: NDArray[np.int32]

    def __init__(self, size: int) -> None:
        """size: in words."""
        self._mapping = _mapping(size)
        self.words = np.zeros(size, np.int32) if self._mapping is None else _view(self._mapping, size)

    def resize(self, size: int) -> None:
        """Raises MemoryError, and changes nothing, where there is no memory."""
        if not self._resize_in_place(size):
            kept, other = min(size, self.words.shape[0]), Block(size)
            other.words[:kept] = self.words[:kept]
            self._mapping, self.words = other._mapping, other.words

    def _resize_in_place(self, size: int) -> bool:
        """Whether that can be: of a block that stays a mapping or an array, and that nothing else refers to."""
        is_mapped = self._mapping is not None
        if is_mapped != (_CAN_MOVE and 4 * size >= _LARGE):
            return False
        n_words, words = self.words.shape[0], self.words
        self.words = _NOTHING
        if is_mapped:
            del words  # it looks at the mapping
            try:
                self._mapping.resize(4 * size)
            except BufferError:
                return False
            except OSError as error:
                raise MemoryError(f"no memory for {4 * size} bytes of trees") from error
            finally:
                self.words = _view(self._mapping, len(self._mapping) // 4)
            # New pages are zero; the rest of the last old one is what it was before the block was made smaller.
            self.words[n_words : n_words + mmap.PAGESIZE // 4] = 0
            return True
        try:
            words.resize(size)
        except ValueError:
            return False
        finally:
            self.words = words
        return True


def _mapping(size: int) -> Any:
    """A mapping for so many words, None where a plain array will do."""
    if not _CAN_MOVE or 4 * size < _LARGE:
        return None
    try:
        mapping = mmap.mmap(-1, 4 * size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no memory for {4 * size} bytes of trees") from error
    with contextlib.suppress(OSError):  # it is advice, and not every system takes it
        mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping


def _view(mapping: Any, size: int) -> NDArray[np.int32]:
    return np.frombuffer(mapping, np.int32, size)
