"""What a forest is needed for first, fetched while the one before it is at work.

A turn of a worker walks a row or two through each of a thousand forests, none of which was looked at for long: half of
that time is spent on waiting for memory, a line after the other. The lines that nearly every walk needs are known
before: the state of the features and the calibration, and of each tree the root and its children.
"""

from __future__ import annotations

from amf.jit.decorators import called, index
from amf.memory.addresses import LINE, prefetch
from amf.memory.arena import ROOT, row_of
from amf.memory.binding import BOX_WORDS, BOXES, HEAD_WORDS, HEADS, N_TREES, USED

_WORD = index(4)
_ROWS = index(3)
"""The root and its children, which lie side by side."""
_MOST_TREES = index(64)
"""Of more the first would have to leave the cache again before they are walked through."""


@called
def fetch_ahead(words):
    """Fetch what a row needs first of the forest with these words (binding.py)."""
    for word in range(USED, N_TREES):
        prefetch(words[word], index(2 * LINE))
    head, box = words[HEAD_WORDS] * _WORD, words[BOX_WORDS] * _WORD
    for tree in range(min(words[N_TREES], _MOST_TREES)):
        row = row_of(ROOT, tree, words[N_TREES])
        prefetch(words[HEADS] + row * head, _ROWS * head)
        prefetch(words[BOXES] + row * box, min(_ROWS * box, index(8 * LINE)))
