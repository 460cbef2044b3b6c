"""Convex hulls of nodes, one for each pair of features, and where they are kept.

Hulls are no part of a forest: they follow from the points of the leaves, to the bit, since hulls are exact. So they
are kept where there is room for them, those of large nodes first, and made anew where they are missing. The hulls of a
node are an entry of 32-bit words: its length, the number of its node, room for vertices in each hull, three words of
each hull, their vertices. The three are its size, and the first edge and the number of those that a sample sees: what
was found when the rates were is not sought again when the sample is added. Each tree has a region of words for entries (arena.py):

    header   the rows in use for which it holds; end of what is taken; labels that a node must have seen for its hulls
             to be kept; features
    hulls    one entry after the other
    table    from the end on backwards, for each number of a node where its entry begins, 0 where there is none

Hulls that are being made are an entry in an array of its own, from 0 on.
"""

from __future__ import annotations

import numpy as np

from amf._kernel import called, index, inlined
from amf.arena import CHILD, COUNT, number_of, row_of
from amf.hulls import add_vertex, bits_of, coordinate, seen_from

STAMP, _TOP, LEAST, _FEATURES, _HEADER = (index(word) for word in range(5))
_OWNER, _ROOM, _HULLS = (index(word) for word in range(1, 4))
_FIRST, _SEEN, _WORDS = (index(word) for word in range(1, 4))
"""Words of a hull in an entry, after its size."""
_PAIR = index(2)
_FEWEST = 8
"""Labels that a node must have seen for its hulls to be kept, where there is room: those of smaller ones are soon
made."""
_NONE = index(2**32)


def hull_room(n_features: int) -> int:
    """Words of a tree's region that each of its rows brings along."""
    return 4 + 3 * n_features * (n_features - 1) // 2


@inlined
def pairs_of(n_features):
    return n_features * (n_features - index(1)) // index(2) if n_features > index(0) else index(0)


@inlined
def region(nodes, used, tree):
    """(first word of a tree's region, its words, those of them before the table)."""
    n_trees = index(used.shape[0])
    length = index(nodes.hulls.shape[0]) // n_trees
    return tree * length, length, length - index(nodes.ints.shape[0]) // nodes.words // n_trees


@inlined
def _in_table(nodes, used, tree, row):
    """Where the table has the entry of a node."""
    n_trees = index(used.shape[0])
    return (tree + index(1)) * (index(nodes.hulls.shape[0]) // n_trees) - index(1) - number_of(row, n_trees)


@inlined
def entry_of(nodes, used, tree, row):
    """First word of the entry of a node, 0 where there is none: every region begins with a header."""
    begin = index(nodes.hulls[_in_table(nodes, used, tree, row)])
    return tree * (index(nodes.hulls.shape[0]) // index(used.shape[0])) + begin if begin > index(0) else index(0)


@called
def renew(nodes, used, tree, n_features):
    """Drop what is kept of a tree whose rows have been moved, or whose features have become more."""
    base, length, _ = region(nodes, used, tree)
    hulls = nodes.hulls
    stamp = np.int32(used[tree])
    if hulls[base + STAMP] == stamp and hulls[base + _FEATURES] == np.int32(n_features):
        return
    for word in range(length):
        hulls[base + word] = 0
    hulls[base + STAMP], hulls[base + _TOP] = stamp, np.int32(_HEADER)
    hulls[base + LEAST], hulls[base + _FEATURES] = _FEWEST, np.int32(n_features)


@called
def _make_room(nodes, used, tree, words, count):
    """Close the gaps between the entries of a tree; those of small nodes go until a quarter of the room is free.

    Returns whether there is room for so many words of a node that has seen `count` labels.
    """
    base, length, end = region(nodes, used, tree)
    hulls, n_trees = nodes.hulls, index(used.shape[0])
    while hulls[base + LEAST] <= count:
        top, at = _HEADER, _HEADER
        while at < index(hulls[base + _TOP]):
            size, number = index(hulls[base + at]), index(hulls[base + at + _OWNER])
            place = base + length - index(1) - number
            if index(hulls[place]) == at:
                row = row_of(number, tree, n_trees)
                if nodes.ints[row * nodes.words + COUNT] >= hulls[base + LEAST]:
                    for word in range(size):
                        hulls[base + top + word] = hulls[base + at + word]
                    hulls[place] = np.int32(top)
                    top += size
                else:
                    hulls[place] = 0
            at += size
        hulls[base + _TOP] = np.int32(top)
        if index(4) * top <= index(3) * end and top + words <= end:
            return True
        hulls[base + LEAST] += hulls[base + LEAST] // np.int32(2)
    return False


@called
def _take(nodes, used, tree, row, room, n_pairs):
    """A new entry for a node, with so much room for vertices in each hull; returns its first word, 0: no room."""
    hulls = nodes.hulls
    base, _, end = region(nodes, used, tree)
    words = _HULLS + n_pairs * (_WORDS + _PAIR * room)
    if words + _HEADER > end:
        return index(0)
    count = np.int64(nodes.ints[row * nodes.words + COUNT])
    if index(hulls[base + _TOP]) + words > end and not _make_room(nodes, used, tree, words, count):
        return index(0)
    top = index(hulls[base + _TOP])
    if index(2) * top < end and hulls[base + LEAST] > _FEWEST:
        hulls[base + LEAST] -= np.int32(1)
    hulls[base + _TOP] = np.int32(top + words)
    hulls[base + top] = np.int32(words)
    hulls[base + top + _OWNER], hulls[base + top + _ROOM] = (
        np.int32(number_of(row, index(used.shape[0]))),
        np.int32(room),
    )
    hulls[_in_table(nodes, used, tree, row)] = np.int32(top)
    return base + top


@inlined
def _hull(entry, pair):
    """First word of what an entry has of a hull but its vertices."""
    return entry + _HULLS + _WORDS * pair


@inlined
def _vertices(hulls, entry, pair, n_pairs):
    return _hull(entry, n_pairs) + _PAIR * index(hulls[entry + _ROOM]) * pair


@inlined
def seen_of(hulls, entry, pair, n_pairs, x, y, known):
    """(first word of the vertices of a hull, its size, then `seen_from`) of an entry, where it is noted, too.

    known: whether it is noted there of this point already. Of no vertices nothing is seen.
    """
    hull, v = _hull(entry, pair), _vertices(hulls, entry, pair, n_pairs)
    size = index(hulls[hull])
    if known or size == index(0):
        return v, size, index(hulls[hull + _FIRST]), index(hulls[hull + _SEEN])
    first, n_seen = seen_from(hulls, v, size, x, y)
    hulls[hull + _FIRST], hulls[hull + _SEEN] = np.int32(first), np.int32(n_seen)
    return v, size, first, n_seen


@inlined
def note_within(hulls, entry, pair):
    """Note that the sample sees nothing of a hull."""
    hulls[_hull(entry, pair) + _SEEN] = 0


@called
def room_for(hulls, entry, n_pairs):
    """Room for each hull of those in an entry, and some vertices more."""
    largest = index(0)
    for pair in range(n_pairs):
        largest = max(largest, index(hulls[_hull(entry, pair)]))
    return (largest + index(4)) // _PAIR * _PAIR


@called
def copy_hulls(source, old, target, new, n_pairs):
    """Fill an entry with the hulls of another one; it has room for them."""
    for pair in range(n_pairs):
        at, to = _hull(old, pair), _hull(new, pair)
        for word in range(_WORDS):
            target[to + word] = source[at + word]
        v, w = _vertices(source, old, pair, n_pairs), _vertices(target, new, pair, n_pairs)
        for word in range(_PAIR * index(source[at])):
            target[w + word] = source[v + word]


@called
def keep(nodes, used, tree, row, source, old, n_pairs):
    """Keep hulls as those of a node; returns their entry, 0 where there is no room."""
    room = room_for(source, old, n_pairs)
    inside = old > index(0)  # an entry of this tree may be moved to make room
    owner = source[old + _OWNER]
    entry = _take(nodes, used, tree, row, room, n_pairs)
    if entry > index(0):
        if inside:
            base, length, _ = region(nodes, used, tree)
            begin = index(nodes.hulls[base + length - index(1) - index(owner)])
            if begin == index(0):
                nodes.hulls[_in_table(nodes, used, tree, row)] = 0
                return index(0)
            old = base + begin
        copy_hulls(source, old, nodes.hulls, entry, n_pairs)
    return entry


@called
def blank(room, n_pairs):
    """Empty hulls that are kept nowhere, in an array of their own."""
    hulls = np.zeros(_HULLS + n_pairs * (_WORDS + _PAIR * room), np.int32)
    hulls[_ROOM] = np.int32(room)
    return hulls


@called
def _add_point(hulls, entry, x, at, n_features, pair_first, inside, known):
    """Add a point to the hulls of all pairs from one on; returns the pair at which room ended, or _NONE.

    inside: bool (pairs,): those whose hull the point is known to lie within; where it lies within more they are noted.
    known: see `seen_of`.
    """
    n_pairs, room, pair = pairs_of(n_features), index(hulls[entry + _ROOM]), index(0)
    for i in range(n_features):
        for k in range(i + index(1), n_features):
            if pair >= pair_first and not inside[pair] and x[at + i] == x[at + i] and x[at + k] == x[at + k]:
                v, size, first, n_seen = seen_of(
                    hulls, entry, pair, n_pairs, np.float64(x[at + i]), np.float64(x[at + k]), known
                )
                if size == index(0) or n_seen > index(0):
                    if size == room:
                        return pair
                    size = add_vertex(hulls, v, size, first, n_seen, bits_of(x[at + i]), bits_of(x[at + k]))
                    hulls[_hull(entry, pair)] = np.int32(size)
                else:
                    inside[pair] = True
            pair += index(1)
    return _NONE


@called
def with_point(hulls, x, at, n_features):
    """Hulls with one more point; in a larger array where they need it."""
    n_pairs, pair = pairs_of(n_features), index(0)
    inside = np.zeros(n_pairs, np.bool_)
    while True:
        pair = _add_point(hulls, index(0), x, at, n_features, pair, inside, False)
        if pair == _NONE:
            return hulls
        larger = blank(_PAIR * index(hulls[_ROOM]), n_pairs)
        copy_hulls(hulls, index(0), larger, index(0), n_pairs)
        hulls = larger


@called
def _with_hulls(hulls, source, entry, n_features):
    """Hulls with the vertices of others."""
    n_pairs, point = pairs_of(n_features), np.empty(2, np.float32)
    for pair in range(n_pairs):
        v = _vertices(source, entry, pair, n_pairs)
        for vertex in range(index(source[_hull(entry, pair)])):
            point[0] = np.float32(coordinate(source, v + _PAIR * vertex))
            point[1] = np.float32(coordinate(source, v + _PAIR * vertex + index(1)))
            hulls = _with_vertex(hulls, pair, point, n_pairs)
    return hulls


@called
def _with_vertex(hulls, pair, point, n_pairs):
    """Hulls of which that of one pair has one more point."""
    room, x, y = index(hulls[_ROOM]), np.float64(point[0]), np.float64(point[1])
    v, size, first, n_seen = seen_of(hulls, index(0), pair, n_pairs, x, y, False)
    if size > index(0) and n_seen == index(0):
        return hulls
    if size == room:
        larger = blank(_PAIR * room, n_pairs)
        copy_hulls(hulls, index(0), larger, index(0), n_pairs)
        hulls = larger
        v = _vertices(hulls, index(0), pair, n_pairs)
    size = add_vertex(hulls, v, size, first, n_seen, bits_of(point[0]), bits_of(point[1]))
    hulls[_hull(index(0), pair)] = np.int32(size)
    return hulls


@called
def with_subtree(hulls, nodes, used, tree, row, n_features):
    """Hulls with all points below a node, itself included: of those that are kept, the hulls will do."""
    waiting, n_waiting = np.empty(64, np.uint64), 1
    waiting[0] = row
    while n_waiting > 0:
        n_waiting -= 1
        node = waiting[n_waiting]
        child, entry = index(nodes.ints[node * nodes.words + CHILD]), entry_of(nodes, used, tree, node)
        if child == index(0):
            hulls = with_point(hulls, nodes.boxes, node * nodes.width, n_features)
        elif entry > index(0):
            hulls = _with_hulls(hulls, nodes.hulls, entry, n_features)
        else:
            if n_waiting + 2 > waiting.shape[0]:
                longer = np.empty(2 * waiting.shape[0], np.uint64)
                longer[:n_waiting] = waiting[:n_waiting]
                waiting = longer
            waiting[n_waiting], waiting[n_waiting + 1] = child, child + index(1)
            n_waiting += 2
    return hulls


@called
def add_to_kept(nodes, used, tree, row, x, at, n_features, inside, known):
    """Add a point to the hulls of a node, if they are kept; where there is no room they are kept no longer.

    inside: as of `_add_point`, of this node or of one below it, within whose hulls the point then lies here, too.
    known: see `seen_of`.
    """
    n_pairs, pair = pairs_of(n_features), index(0)
    entry = entry_of(nodes, used, tree, row)
    while entry > index(0):
        room = index(nodes.hulls[entry + _ROOM])
        pair = _add_point(nodes.hulls, entry, x, at, n_features, pair, inside, known)
        if pair == _NONE:
            return
        own = blank(room, n_pairs)
        copy_hulls(nodes.hulls, entry, own, index(0), n_pairs)
        nodes.hulls[_in_table(nodes, used, tree, row)] = 0
        entry = keep(nodes, used, tree, row, own, index(0), n_pairs)


@called
def hulls_of(nodes, used, tree, row, n_features):
    """(words, entry) with the hulls of a node; entry = 0: they are not kept, but have been made anew."""
    n_pairs, entry = pairs_of(n_features), entry_of(nodes, used, tree, row)
    if entry > index(0):
        return nodes.hulls, entry
    return with_subtree(blank(index(6), n_pairs), nodes, used, tree, row, n_features), index(0)


@called
def hand_over(nodes, used, tree, row, old, n_pairs):
    """The hulls of a node go with its old self; its new self keeps a copy. The rows in use have become two more."""
    base, length, _ = region(nodes, used, tree)
    hulls = nodes.hulls
    hulls[base + STAMP] = np.int32(used[tree])
    number = number_of(old, index(used.shape[0]))
    here, there = _in_table(nodes, used, tree, row), base + length - index(1) - number
    begin = hulls[here]
    hulls[there], hulls[here] = begin, 0
    if begin > 0:
        hulls[base + index(begin) + _OWNER] = np.int32(number)
        keep(nodes, used, tree, row, hulls, base + index(begin), n_pairs)
