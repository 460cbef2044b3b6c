"""Bytes that are no forest are refused with one kind of error: damaged, foreign, or made to look right."""

from __future__ import annotations

import hashlib
import json
import pickle
import struct
import tracemalloc

import numpy as np
import pytest
from examples import FORESTS, PREFIX, example, stream

import amf
from amf.memory.arena import CHILD, FEATURE
from amf.serialization.canonical import FORMAT


def sealed(body):
    """The body with its right checksum: damage that only the reader's own checks can find."""
    return bytes(body) + hashlib.sha256(body).digest()


def refused(data):
    with pytest.raises(amf.FormatError):
        amf.loads(data)
    return True


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "these 0 bytes are not a forest"),
        (b"AMFF", "these 4 bytes are not a forest"),
        (b"\x89PNG" + bytes(100), "not a forest"),
        (pickle.dumps({"a": list(range(100))}), "not a forest"),
        (
            sealed(PREFIX.pack(b"AMFF", FORMAT + 1, 0) + bytes(64)),
            f"format {FORMAT + 1}, .* reads format {FORMAT}",
        ),
        (PREFIX.pack(b"AMFF", FORMAT, 0) + bytes(64), "checksum"),
        (sealed(PREFIX.pack(b"AMFF", FORMAT, 2**63)), "end too early"),
        (sealed(PREFIX.pack(b"AMFF", FORMAT, 0)), "header of the forest is not as"),
    ],
)
def test_foreign_bytes_are_refused_with_a_reason(data, message):
    with pytest.raises(amf.FormatError, match=message):
        amf.loads(data)


def test_every_prefix_is_refused():
    data = example().dumps()
    assert all(refused(data[:n]) for n in range(len(data)))


def test_a_thousand_damaged_files_are_refused():
    """Flipped bits, cut out, inserted, exchanged and doubled parts; the checksum stands as it was."""
    data, rng = example().dumps(), np.random.default_rng(0)
    for _ in range(1000):
        damaged = bytearray(data)
        a, b = sorted(rng.integers(0, len(data), 2).tolist())
        match rng.integers(5):
            case 0:
                for at in rng.integers(0, len(data), rng.integers(1, 9)):
                    damaged[at] ^= 1 << int(rng.integers(8))
            case 1:
                del damaged[a : b + 1]
            case 2:
                damaged[a:a] = rng.bytes(rng.integers(1, 40))
            case 3:
                damaged[a : b + 1] = rng.bytes(b + 1 - a)
            case _:
                damaged[b:b] = data[a : b + 1]
        assert bytes(damaged) == data or refused(damaged)


def test_parts_that_are_missing_or_too_many_are_refused_though_the_checksum_is_right():
    body, rng = example().dumps()[:-32], np.random.default_rng(1)
    for _ in range(400):
        a, b = sorted(rng.integers(PREFIX.size, len(body), 2).tolist())
        damaged = bytearray(body)
        if rng.random() < 0.5:
            del damaged[a : b + 1]
        else:
            damaged[a:a] = rng.bytes(rng.integers(1, 40))
        assert refused(sealed(damaged))


def with_header(data, header):
    """The bytes with another header, padded as it should be."""
    (size,) = struct.unpack_from("<Q", data, 8)
    header = header.ljust(-(-len(header) // 8) * 8)
    return sealed(PREFIX.pack(b"AMFF", FORMAT, len(header)) + header + data[PREFIX.size + size : -32])


def header_of(data):
    (size,) = struct.unpack_from("<Q", data, 8)
    return data[PREFIX.size : PREFIX.size + size]


def as_json(header):
    return json.dumps(header, sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.parametrize("name", ["example", "unscaled", "with classes, empty"])
def test_nonsense_in_the_header_is_refused_though_the_checksum_is_right(name):
    data = FORESTS[name]().dumps()
    header = json.loads(header_of(data))
    assert amf.loads(with_header(data, as_json(header))).dumps() == data
    may_be_null = {"classes", "dirichlet", "feature_names"}
    for part in (header, header["params"]):
        for key, value in [*part.items()]:
            for nonsense in ["x", -1, 1e400, 10**400, [], [[]], [None], {}, *([] if key in may_be_null else [None])]:
                part[key] = nonsense
                assert refused(with_header(data, as_json(header)))
            del part[key]
            assert refused(with_header(data, as_json(header)))
            part[key] = value
        part["unknown"] = 1
        assert refused(with_header(data, as_json(header)))
        del part["unknown"]
    assert amf.loads(with_header(data, as_json(header))).dumps() == data


def test_a_header_of_much_more_than_its_bytes_takes_no_memory():
    data = amf.AMFClassifier(1, seed=1).dumps()
    header = json.loads(header_of(data))
    header.update(classes=[*range(1000)], n_features=10_000)
    header["params"].update(max_classes=60_000, max_bytes=10**12)
    lying = with_header(data[:-32] + bytes(8 * 37 * 10_000) + data[-32:], as_json(header))
    tracemalloc.start()
    try:
        assert refused(lying)
        assert tracemalloc.get_traced_memory()[1] < 4 * len(lying)
    finally:
        tracemalloc.stop()


def test_a_header_in_another_form_is_refused_though_the_checksum_is_right():
    data = example().dumps()
    text = header_of(data).rstrip()
    header = json.loads(text)
    twisted = [
        json.dumps(header, sort_keys=True).encode(),
        json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode(),
        as_json({**header, "n_features": 3.0}),
        as_json({**header, "n_features": "3"}),
        as_json({**header, "n_features": 4}),
        as_json({**header, "n_features": 2}),
        as_json({**header, "feature_names": ["a", "a", "b"]}),
        as_json({**header, "feature_names": ["a", "b", 3]}),
        as_json({**header, "feature_names": ["a", "b"]}),
        *[
            as_json({**header, "classes": [7, "no", *more]})
            for more in (["7"], [None], [[]], [True, "more", "most"], [])
        ],
        as_json({**header, "family": "amf-regressor"}),
        as_json({**header, "params": {**header["params"], "n_estimators": 4}}),
        as_json({**header, "params": {**header["params"], "max_classes": 2}}),
        as_json({**header, "params": {**header["params"], "max_features": 2}}),
        as_json({**header, "params": {**header["params"], "classes": ["no", 7, "other"]}}),
        text[:-1],
        text + b"}",
        text.replace(b'"n_features":3', b'"n_features":3,"n_features":3'),
        text.decode().encode("utf-16"),
        b"\xff" + text,
        b"[" * 100_000,
        b"null",
        b"[]",
        b"3",
    ]
    assert all(refused(with_header(data, other)) for other in twisted if other != text)


@pytest.mark.parametrize("is_known", [False, True])
def test_a_seed_in_another_form_or_place_is_refused_whatever_was_read_before(is_known):
    """Headers that differ in the seed alone are read once: what is refused must not depend on what was read before."""
    data = amf.AMFClassifier(2, seed=123, classes=["a", "b"] if is_known else ["a", "c"]).dumps()
    text = header_of(data).rstrip()
    seed = b'"seed":123'
    assert text.count(seed) == 1
    if is_known:
        assert amf.loads(data).dumps() == data
    for other in (
        b'"seed":0123',
        b'"seed":-1',
        b'"seed":1.0',
        b'"seed":18446744073709551616',
        b'"seed": 123',
        b'"seed":',
    ):
        assert refused(with_header(data, text.replace(seed, other)))
    rest = text.replace(seed, b"")
    for place in range(len(rest) + 1):
        moved = rest[:place] + seed + rest[place:]
        assert moved == text or refused(with_header(data, moved))
    padded = header_of(data) + b" " * 8
    assert refused(
        sealed(PREFIX.pack(b"AMFF", FORMAT, len(padded)) + padded + data[PREFIX.size + len(padded) - 8 : -32])
    )
    largest = with_header(data, text.replace(seed, b'"seed":18446744073709551615'))
    assert amf.loads(largest).params.seed == 2**64 - 1
    assert amf.loads(largest).dumps() == largest


@pytest.mark.parametrize("moves", [-1, 31, 2**63 - 1])
def test_features_that_moved_more_often_than_there_were_rows_are_refused_though_the_checksum_is_right(moves):
    forest = example()
    assert forest.n_samples == 30
    forest._scaling.moves[1] = moves
    assert refused(forest.dumps())


def test_links_out_of_the_tree_or_in_circles_are_refused_though_the_checksum_is_right():
    rng = np.random.default_rng(2)
    for _ in range(400):
        forest = example()
        arena, tree = forest._arena, int(rng.integers(3))
        heads, rows = arena.block(), arena.rows(tree)
        inner = rows[heads[rows, CHILD] > 0]
        if rng.random() < 0.3:
            heads[rng.choice(inner), FEATURE] = rng.choice([3, 7, 2**31 - 1, -1, -(2**31)])
        else:
            links = [0, rows[-1] + 8 * arena.n_trees, 2**31 - 1, -1, -(2**31), *rows[1:]]
            node = rng.choice(rows)
            heads[node, CHILD] = rng.choice([link for link in links if link != heads[node, CHILD]])
        assert refused(forest.dumps())


def test_wrong_numbers_of_nodes_are_refused_though_the_checksum_is_right():
    """More, fewer and negative ones; and the right number in all, so that trees take nodes from each other."""
    forest = example()
    body, sizes = forest.dumps()[:-32], forest._arena.sizes.astype(np.int64)
    at = body.index(sizes.tobytes())
    shifts = [(2**63 - 1, 0, 0), (2**62, 2**62, 2**62), (2**60, -(2**60), 0), (-sizes[0] - 1, sizes[0] + 1, 0)]
    shifts += [(-sizes[0] - 2, 0, 0), (2, 0, 0), (0, 0, -2), (0, 0, 1), (1, -1, 0), (2, -2, 0), (0, -2, 2)]
    shifts += [(-sizes[0], sizes[0], 0), (0, -sizes[1], sizes[1])]
    for shift in shifts:
        with np.errstate(over="ignore"):
            wrong = (sizes + np.array(shift)).tobytes()
        assert refused(sealed(body[:at] + wrong + body[at + len(wrong) :]))


def test_what_is_wrong_with_a_tree_is_named():
    for word, value, message in [(CHILD, 2, "not linked as a tree"), (FEATURE, 3, "splits on a feature it does not")]:
        forest = example()
        arena = forest._arena
        arena.block()[arena.rows(1)[0], word] = value
        with pytest.raises(amf.FormatError, match=message):
            amf.loads(forest.dumps())


def test_any_damage_under_a_right_checksum_is_refused_or_harmless():
    """What a checksum would find and the reader cannot: other numbers. They must not lead a kernel astray."""
    body, rng = example().dumps()[:-32], np.random.default_rng(3)
    x, y = stream(10, seed=5)
    accepted = 0
    for _ in range(600):
        damaged = bytearray(body)
        for at in rng.integers(PREFIX.size, len(body), rng.integers(1, 4)):
            damaged[at] = rng.integers(256)
        try:
            forest = amf.loads(sealed(damaged))
        except amf.FormatError:
            continue
        accepted += 1
        assert forest.predict_learn(x, y).shape == (10, 3)
        assert forest.partial_fit(x, y).predict_proba(x).shape == (10, 3)
        forest.dumps()
    assert 20 < accepted < 300


@pytest.mark.parametrize(("given", "labels"), [([True, False], [1, 0]), ([1, 0], [True, False]), ([1.0, 2], [1, 2])])
def test_classes_that_only_equal_those_of_the_parameters_are_refused_though_the_checksum_is_right(given, labels):
    """As tuples they are equal, and yet they are other classes, or other labels to predict."""
    data = amf.AMFClassifier(2, classes=given).dumps()
    header = json.loads(header_of(data))
    assert amf.loads(with_header(data, as_json(header))).dumps() == data
    header["classes"] = labels
    assert refused(with_header(data, as_json(header)))


def test_a_whole_number_for_a_float_is_refused_though_the_checksum_is_right():
    """No forest writes it: equal parameters are equal bytes."""
    data = example().dumps()
    header = json.loads(header_of(data))
    assert header["params"]["purity"] == 16.0
    header["params"]["purity"] = 16
    assert refused(with_header(data, as_json(header)))
