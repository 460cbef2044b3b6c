"""Convex hulls of nodes, one for each pair of features, and where they are kept.

Hulls are no part of a forest: they follow from the points of the leaves, to the bit, since hulls are exact. So they
are kept where there is room for them, and made anew where they are missing: of those of the child with more labels, to
which the points of the other one are added. So nodes come first whose smaller child has many labels. Where outliers, or
the tail of a feature, are parted from all the rest one after the other, nodes follow each other that have nearly the
same hulls: those of one of them will do.

The hulls of a node are an entry of 32-bit words: its length, the number of its node, how many vertices its hulls have
together, three words of each hull, and the vertices, hull by hull without gaps. The three are the size of the hull, and
the first edge and the number of those that the sample sees that is being learned: what was found for the rates is not
sought again when the sample is added. Each tree has a region of words for entries (arena.py):

    header   the rows in use for which it holds; end of what is taken; labels that the smaller child of a node must have
             seen for its hulls to be kept; features
    hulls    one entry after the other
    table    from the end on backwards, for each number of a node where its entry begins, 0 where there is none

Hulls that are being made are an entry in an array of its own, from 0 on, to which points are added while it has room.
"""

from __future__ import annotations

import numpy as np

from amf.geometry.hulls import add_vertex, bits_of, coordinate, move_down, move_up, seen_from
from amf.geometry.samples import Sample, has, value_of
from amf.jit.decorators import called, index, inlined
from amf.memory.arena import CHILD, COUNT, number_of, row_of

STAMP, _TOP, _LEAST, _FEATURES, _HEADER = (index(word) for word in range(5))
_OWNER, _TOTAL, _HULLS = (index(word) for word in range(1, 4))
_FIRST, _SEEN, _WORDS = (index(word) for word in range(1, 4))
_PAIR = index(2)
_MOST_WORDS = index(2**31 - 1)
_FEWEST = 4
"""Labels that a node must have seen for its hulls to be kept: those of smaller ones are soon made."""


def hull_room(n_features: int) -> int:
    """Words of a tree's region that each of its rows brings along."""
    return 4 + 3 * n_features * (n_features - 1) // 2


@inlined
def pairs_of(n_features):
    return n_features * (n_features - index(1)) // index(2) if n_features > index(0) else index(0)


@inlined
def region(nodes, tree):
    """(first word of a tree's region, its words, those of them that entries may take).

    The table says in an int32 where an entry begins: of a region that is larger the rest stays empty.
    """
    n_trees = index(nodes.used.shape[0])
    length = index(nodes.hulls.shape[0]) // n_trees
    before_table = length - index(nodes.ints.shape[0]) // nodes.words // n_trees
    return tree * length, length, min(before_table, _MOST_WORDS)


@inlined
def _in_table(nodes, tree, row):
    """Where the table has the entry of a node."""
    n_trees = index(nodes.used.shape[0])
    return (tree + index(1)) * (index(nodes.hulls.shape[0]) // n_trees) - index(1) - number_of(row, n_trees)


@inlined
def entry_of(nodes, tree, row):
    """First word of the entry of a node, 0 where there is none: every region begins with a header."""
    begin = index(nodes.hulls[_in_table(nodes, tree, row)])
    return tree * (index(nodes.hulls.shape[0]) // index(nodes.used.shape[0])) + begin if begin > index(0) else index(0)


@called
def renew(nodes, tree, n_features):
    """Drop what is kept of a tree whose rows have been moved, or whose features have become more."""
    base, length, _ = region(nodes, tree)
    hulls = nodes.hulls
    stamp = np.int32(nodes.used[tree])
    if hulls[base + STAMP] == stamp and hulls[base + _FEATURES] == np.int32(n_features):
        return
    for word in range(length):
        hulls[base + word] = 0
    hulls[base + STAMP], hulls[base + _TOP] = stamp, np.int32(_HEADER)
    hulls[base + _LEAST], hulls[base + _FEATURES] = 1, np.int32(n_features)


@inlined
def _worth(nodes, row):
    """Labels of the smaller child of an inner node; 0 of a node that is soon made anew from its leaves."""
    here = row * nodes.words
    left = index(nodes.ints[here + CHILD]) * nodes.words
    smaller = min(nodes.ints[left + COUNT], nodes.ints[left + nodes.words + COUNT])
    return max(smaller, 1) if nodes.ints[here + COUNT] >= _FEWEST else 0


@called
def _make_room(nodes, tree, words, worth):
    """Close the gaps between the entries of a tree; those of least worth go until an eighth of the room is free.

    Where a quarter is, others will be kept from now on. Returns whether there is room for so many words of a node of
    such a worth.
    """
    base, length, end = region(nodes, tree)
    hulls, n_trees = nodes.hulls, index(nodes.used.shape[0])
    while hulls[base + _LEAST] <= worth:
        top, at = _HEADER, _HEADER
        while at < index(hulls[base + _TOP]):
            size, number = index(hulls[base + at]), index(hulls[base + at + _OWNER])
            place = base + length - index(1) - number
            if index(hulls[place]) == at:
                row = row_of(number, tree, n_trees)
                if _worth(nodes, row) >= hulls[base + _LEAST]:
                    for word in range(size):
                        hulls[base + top + word] = hulls[base + at + word]
                    hulls[place] = np.int32(top)
                    top += size
                else:
                    hulls[place] = 0
            at += size
        hulls[base + _TOP] = np.int32(top)
        if index(8) * top <= index(7) * end and top + words <= end:
            if index(4) * top <= index(3) * end and hulls[base + _LEAST] > 1:
                hulls[base + _LEAST] -= np.int32(1)
            return True
        hulls[base + _LEAST] += np.int32(1) + hulls[base + _LEAST] // np.int32(8)
    return False


@called
def _take(nodes, tree, row, total, n_pairs):
    """A new entry for a node whose hulls have so many vertices, and some more; returns its first word.

    0: the hulls of the node are not to be kept, or there is no room.
    """
    hulls, worth = nodes.hulls, _worth(nodes, row)
    base, _, end = region(nodes, tree)
    words = _words_of(total + total // index(16) + n_pairs // index(4) + _PAIR, n_pairs)
    if worth < hulls[base + _LEAST] or words + _HEADER > end:
        return index(0)
    if index(hulls[base + _TOP]) + words > end and not _make_room(nodes, tree, words, worth):
        return index(0)
    top = index(hulls[base + _TOP])
    hulls[base + _TOP] = np.int32(top + words)
    hulls[base + top] = np.int32(words)
    hulls[base + top + _OWNER] = np.int32(number_of(row, index(nodes.used.shape[0])))
    hulls[_in_table(nodes, tree, row)] = np.int32(top)
    return base + top


@inlined
def _words_of(total, n_pairs):
    """Words of an entry with so many vertices."""
    return _HULLS + _WORDS * n_pairs + _PAIR * total


@inlined
def hull_at(entry, pair):
    """First word of what an entry has of a hull but its vertices."""
    return entry + _HULLS + _WORDS * pair


@inlined
def size_of(hulls, hull):
    return index(hulls[hull])


@inlined
def seen_of(hulls, hull, v, x, y, known):
    """`seen_from` of a hull with vertices from v on. known: whether it is noted of this point.

    A hull without vertices is no hull: nothing is said of it.
    """
    size = size_of(hulls, hull)
    if size == index(0):
        return index(0), index(0)
    if known:
        return index(hulls[hull + _FIRST]), index(hulls[hull + _SEEN])
    return seen_from(hulls, v, size, x, y)


@inlined
def note_seen(hulls, hull, first, n_seen):
    """Note what the sample that is being learned sees of a hull: of one without vertices a first one."""
    hulls[hull + _FIRST], hulls[hull + _SEEN] = np.int32(first), np.int32(n_seen)


@inlined
def _fill(target, new, source, old, n_pairs):
    """Fill an entry, which has room, with the hulls of another one."""
    for word in range(_TOTAL, _words_of(index(source[old + _TOTAL]), n_pairs)):
        target[new + word] = source[old + word]


@called
def keep(nodes, tree, row, source, old, n_pairs):
    """Keep hulls as those of a node; returns their entry, 0 where there is no room."""
    inside = old > index(0)  # an entry of this tree may be moved to make room
    owner = source[old + _OWNER]
    entry = _take(nodes, tree, row, index(source[old + _TOTAL]), n_pairs)
    if entry > index(0):
        if inside:
            base, length, _ = region(nodes, tree)
            begin = index(nodes.hulls[base + length - index(1) - index(owner)])
            if begin == index(0):
                nodes.hulls[_in_table(nodes, tree, row)] = 0
                return index(0)
            old = base + begin
        _fill(nodes.hulls, entry, source, old, n_pairs)
    return entry


@called
def _blank(total, n_pairs):
    """An entry in an array of its own, with room for so many vertices; nothing but its length is filled in."""
    words = _words_of(total, n_pairs)
    blank = np.empty(words, np.int32)
    blank[0] = np.int32(words)
    return blank


@called
def without_points(n_features):
    """Hulls of no point."""
    return np.zeros(_words_of(index(0), pairs_of(n_features)), np.int32)


@called
def with_point(source, entry, sample):
    """The hulls of an entry with one more point, in an array of their own: in the same one where it is theirs alone."""
    n_pairs, total = pairs_of(sample.n_features), index(source[entry + _TOTAL])
    if entry > index(0) or _words_of(total + n_pairs, n_pairs) > index(source[entry]):
        own = _blank(total + total // index(4) + _PAIR * n_pairs, n_pairs)
        _fill(own, index(0), source, entry, n_pairs)
        source = own
    _note_point(source, index(0), sample)
    _add_in_place(source, index(0), sample)
    return source


@called
def _note_point(hulls, entry, sample):
    """Note of all hulls of an entry what a point sees of them."""
    n_features, pair = sample.n_features, index(0)
    n_pairs = pairs_of(n_features)
    v = hull_at(entry, n_pairs)
    for i in range(n_features):
        for k in range(i + index(1), n_features):
            hull = hull_at(entry, pair)
            size, first, n_seen = size_of(hulls, hull), index(0), index(0)
            if has(sample, i) and has(sample, k):
                n_seen = index(1)
                if size > index(0):
                    x, y = np.float64(value_of(sample, i)), np.float64(value_of(sample, k))
                    first, n_seen = seen_from(hulls, v, size, x, y)
            note_seen(hulls, hull, first, n_seen)
            v += _PAIR * size
            pair += index(1)


@called
def _with_hulls(source, entry, others, other, n_features):
    """The hulls of an entry with the vertices of another one, in an array of their own: the fewer go to the others."""
    n_pairs = pairs_of(n_features)
    if source[entry + _TOTAL] < others[other + _TOTAL]:
        source, entry, others, other = others, other, source, entry
    target = _blank(index(source[entry + _TOTAL]) + index(others[other + _TOTAL]), n_pairs)
    v, w, u = hull_at(entry, n_pairs), hull_at(index(0), n_pairs), hull_at(other, n_pairs)
    for pair in range(n_pairs):
        size, more = size_of(source, hull_at(entry, pair)), size_of(others, hull_at(other, pair))
        for word in range(_PAIR * size):
            target[w + word] = source[v + word]
        v += _PAIR * size
        for _ in range(more):
            first, n_seen = index(0), index(0)
            if size > index(0):
                first, n_seen = seen_from(target, w, size, coordinate(others, u), coordinate(others, u + index(1)))
            if size == index(0) or n_seen > index(0):
                size = add_vertex(target, w, size, first, n_seen, others[u], others[u + index(1)])
            u += _PAIR
        target[hull_at(index(0), pair)] = np.int32(size)
        w += _PAIR * size
    target[_TOTAL] = np.int32((w - hull_at(index(0), n_pairs)) // _PAIR)
    return target


@called
def with_subtree(source, entry, nodes, tree, row, n_features):
    """The hulls of an entry with all points below a node, itself included, in an array of their own.

    Of nodes below it that are kept the hulls will do.
    """
    waiting, n_waiting = np.empty(64, np.uint64), 1
    waiting[0] = row
    while n_waiting > 0:
        n_waiting -= 1
        node = waiting[n_waiting]
        child, other = index(nodes.ints[node * nodes.words + CHILD]), entry_of(nodes, tree, node)
        if child == index(0):
            source, entry = with_point(source, entry, Sample(nodes.boxes, node * nodes.width, n_features)), index(0)
        elif other > index(0):
            source, entry = _with_hulls(source, entry, nodes.hulls, other, n_features), index(0)
        else:
            if n_waiting + 2 > waiting.shape[0]:
                longer = np.empty(2 * waiting.shape[0], np.uint64)
                longer[:n_waiting] = waiting[:n_waiting]
                waiting = longer
            waiting[n_waiting], waiting[n_waiting + 1] = child, child + index(1)
            n_waiting += 2
    return source


@called
def add_to_kept(nodes, tree, row, sample, known):
    """Add a point to the hulls of a node, if they are kept; where there is no room they are kept no longer.

    known: see `seen_of`.
    """
    entry = entry_of(nodes, tree, row)
    if entry == index(0):
        return
    if not known:
        _note_point(nodes.hulls, entry, sample)
    if not _add_in_place(nodes.hulls, entry, sample):
        own = with_point(nodes.hulls, entry, sample)
        nodes.hulls[_in_table(nodes, tree, row)] = 0
        keep(nodes, tree, row, own, index(0), pairs_of(sample.n_features))


@called
def _add_in_place(hulls, entry, sample):
    """Add the point of which it is noted what it sees; returns whether the entry has room for that.

    Most hulls stay as they are, and what comes after one that does not is moved as a whole.
    """
    n_features, n_pairs = sample.n_features, pairs_of(sample.n_features)
    begin, total, n_longer = hull_at(entry, n_pairs), index(hulls[entry + _TOTAL]), index(0)
    for pair in range(n_pairs):
        n_longer += index(hulls[hull_at(entry, pair) + _SEEN] == 1)
    if _words_of(total + n_longer, n_pairs) > index(hulls[entry]):
        return False
    hull, v, end = hull_at(entry, index(0)), begin, begin + _PAIR * total
    for i in range(n_features):
        for k in range(i + index(1), n_features):
            size, n_seen = size_of(hulls, hull), index(hulls[hull + _SEEN])
            if n_seen > index(0):
                after, first = v + _PAIR * size, index(hulls[hull + _FIRST])
                if n_seen == index(1):
                    move_up(hulls, after, end, _PAIR)
                x, y = bits_of(value_of(sample, i)), bits_of(value_of(sample, k))
                size = add_vertex(hulls, v, size, first, n_seen, x, y)
                if n_seen > _PAIR:
                    move_down(hulls, after, end, after - (v + _PAIR * size))
                end += v + _PAIR * size - after
                hulls[hull] = np.int32(size)
            v += _PAIR * size
            hull += _WORDS
    hulls[entry + _TOTAL] = np.int32((end - begin) // _PAIR)
    return True


@called
def hulls_of(nodes, tree, row, n_features):
    """(words, entry) with the hulls of a node; entry = 0: they are not kept, but have been made anew."""
    entry = entry_of(nodes, tree, row)
    if entry > index(0):
        return nodes.hulls, entry
    return with_subtree(without_points(n_features), index(0), nodes, tree, row, n_features), index(0)


@called
def hand_over(nodes, tree, row, old, n_pairs):
    """The hulls of a node go with its old self; its new self keeps a copy. The rows in use have become two more."""
    base, length, _ = region(nodes, tree)
    hulls = nodes.hulls
    hulls[base + STAMP] = np.int32(nodes.used[tree])
    number = number_of(old, index(nodes.used.shape[0]))
    here, there = _in_table(nodes, tree, row), base + length - index(1) - number
    begin = hulls[here]
    hulls[there], hulls[here] = begin, 0
    if begin > 0:
        hulls[base + index(begin) + _OWNER] = np.int32(number)
        keep(nodes, tree, row, hulls, base + index(begin), n_pairs)
