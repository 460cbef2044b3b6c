"""The bytes of a forest: canonical, documented, readable for ever.

Golden files: tests/golden holds one forest of each family and format ever released, `<family>-<format>.amf`, and beside
it, as JSON, rows to go on with, the engine that did, the forecasts it made and the digest of the bytes afterwards; and
digests.json has those of a forest of each system. Whoever changes a bit of a forest sees it here, has to change
amf.ENGINE, and writes those of the current format anew:

    PYTHONPATH=. python tests/amf/test_serialize.py
"""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from examples import FORESTS, PREFIX, example, stream
from trees import nodes_of

import amf
from amf.serialization.canonical import FORMAT
from amf.serialization.packing import pack

GOLDEN = Path(__file__).parents[1] / "golden"
DIGESTS = GOLDEN / "digests.json"
CURRENT = GOLDEN / f"amf-classifier-{FORMAT}.amf"


@pytest.mark.parametrize("name", FORESTS)
def test_a_forest_comes_back_and_goes_on_bit_for_bit(name):
    forest = FORESTS[name]()
    data = forest.dumps()
    x, y = np.random.default_rng(1).normal(size=(20, forest.n_features or 3)), ["no", "a"] * 10
    if forest.params.classes:
        y = [2, "a"] * 10
    for again in (amf.loads(data), pickle.loads(pickle.dumps(forest)), copy.deepcopy(forest), copy.copy(forest)):
        assert again.dumps() == data
        assert again.params == forest.params
        assert again.feature_names == forest.feature_names
        assert (again.n_samples, again.n_nodes) == (forest.n_samples, forest.n_nodes)
        assert [(type(v), v) for v in again.class_labels] == [(type(v), v) for v in forest.class_labels]
        expected = amf.loads(data)
        np.testing.assert_array_equal(again.predict_learn(x, y), expected.predict_learn(x, y))
        assert again.dumps() == expected.dumps()
    assert forest.dumps() == data


@pytest.mark.parametrize("max_bytes", [64_000_000, 40_000])
@pytest.mark.parametrize("family", amf.SYSTEMS)
def test_a_forest_from_trusted_bytes_goes_on_bit_for_bit(family, max_bytes):
    rng = np.random.default_rng(4)
    x, labels = rng.random((300, 3)), rng.integers(0, 3, 300)
    data = amf.SYSTEMS[family](3, seed=1, max_bytes=max_bytes).partial_fit(x[:200], labels[:200]).dumps()
    found, expected = (amf.loads(data, trusted=trusted) for trusted in (True, False))
    for forest in (found, expected):
        forest.partial_fit(x[200:], labels[200:])
    assert found.dumps() == expected.dumps()


def test_trusted_bytes_are_not_looked_through():
    data = bytearray(example().dumps())
    data[-1] ^= 1
    with pytest.raises(amf.FormatError, match="checksum"):
        amf.loads(data)
    assert amf.loads(data, trusted=True).dumps() == example().dumps()


@pytest.mark.parametrize("family", amf.SYSTEMS)
def test_forests_that_come_back_share_nothing(family):
    """Their headers differ in the seeds alone, and are read once."""
    rng = np.random.default_rng(3)
    x, labels = rng.random((40, 3)), [0, 1] * 20
    forests = [amf.SYSTEMS[family](2, seed=seed).partial_fit(x[:20], labels[:20]) for seed in range(3)]
    saved = [forest.dumps() for forest in forests]
    first, second, third = (amf.loads(data) for data in saved)
    assert [again.params.seed for again in (first, second, third)] == [0, 1, 2]
    first.partial_fit(x, labels)
    first.partial_fit(x[:2], [7, 8])  # new classes, where labels are classes
    assert [second.dumps(), third.dumps()] == saved[1:]
    assert amf.loads(saved[0]).dumps() == saved[0]
    for again, forest in ((second, forests[1]), (third, forests[2])):
        assert again.partial_fit(x, labels).dumps() == forest.partial_fit(x, labels).dumps()


def test_many_kinds_of_forests_come_back_one_after_the_other():
    """More than are remembered by their headers."""
    saved = [amf.AMFClassifier(1, max_features=1 + n).dumps() for n in range(600)]
    assert [amf.loads(data).dumps() for data in saved + saved[::-1]] == saved + saved[::-1]


def test_loads_takes_any_buffer_and_keeps_none():
    forest = example()
    data = forest.dumps()
    buffer = bytearray(data)
    shifted = [memoryview(bytes(shift) + data)[shift:] for shift in range(1, 9)]  # they begin at any address
    loaded = [amf.loads(kind) for kind in (buffer, memoryview(data), np.frombuffer(data, np.uint8), *shifted)]
    buffer[:] = bytes(len(buffer))
    assert all(again.dumps() == data for again in loaded)
    assert amf.loads(data, n_threads=2).n_threads == 2
    with pytest.raises(ValueError, match="n_threads") as refused:
        amf.loads(data, n_threads=0)
    assert not isinstance(refused.value, amf.FormatError)  # the bytes are as they should be
    for name in ("m.amf", Path("m.amf")):
        with pytest.raises(TypeError, match=r"expected the bytes of a forest, got the name of a file: .*read_bytes"):
            amf.loads(name)


@pytest.mark.parametrize("max_bytes", [64_000_000, 2000])
def test_the_bytes_are_as_documented(max_bytes):
    forest, d = example(max_bytes=max_bytes), 3
    data = forest.dumps()
    magic, version, header_size = PREFIX.unpack_from(data)
    assert (magic, version, header_size % 8) == (b"AMFF", FORMAT, 0)
    header = json.loads(data[PREFIX.size : PREFIX.size + header_size])
    assert sorted(header) == ["classes", "family", "feature_names", "n_features", "params"]
    assert header["classes"] == forest.class_labels
    assert (header["family"], header["n_features"], header["feature_names"]) == (forest.family, d, ["a", "ü", "late"])
    assert amf.AMFClassifierParams(**header["params"]) == forest.params
    at = PREFIX.size + header_size

    def column(dtype, *shape):
        nonlocal at
        values = np.frombuffer(data, dtype, int(np.prod(shape)), at).reshape(shape)
        at += -(-values.nbytes // 8) * 8
        return values

    scaling, arena = forest._scaling, forest._arena
    np.testing.assert_array_equal(column("<f8", d), scaling.origin)
    np.testing.assert_array_equal(column("<f8", d), scaling.lowest)
    np.testing.assert_array_equal(column("<f8", d), scaling.highest)
    np.testing.assert_array_equal(column("<f8", d), scaling.last)
    np.testing.assert_array_equal(column("<i8", d), scaling.moves)
    np.testing.assert_array_equal(column("<f8", d, 32), scaling.pairs)
    np.testing.assert_array_equal(column("<f4", 8), scaling.weights)
    assert column("<i8", 1) == 30
    np.testing.assert_array_equal(column("<f8", forest._calibration.shape[0]), forest._calibration)
    np.testing.assert_array_equal(column("<u8", 3), forest._words)
    n_nodes = column("<i8", 3)
    assert n_nodes.sum() == forest.n_nodes
    for tree in range(3):
        heads, boxes = nodes_of(forest, tree)
        np.testing.assert_array_equal(column("<i4", n_nodes[tree], arena.layout.head), heads)
        np.testing.assert_array_equal(column("<f4", n_nodes[tree], 2, arena.layout.feature_room), boxes)
    assert data[at:] == hashlib.sha256(data[:at]).digest()


@pytest.mark.parametrize("n_samples", [0, 1, 2, 50])
@pytest.mark.parametrize("kind", [amf.AMFClassifier, amf.AMFRegressor, amf.UnrestrictedAMFClassifier])
def test_nodes_are_packed_in_order_of_creation(kind, n_samples):
    """By kernels, which copy chunks of rows, as by numpy node by node; and no tree is as large as another."""
    rng = np.random.default_rng(0)
    forest = kind(5, split_pure=True).partial_fit(rng.random((n_samples, 9)), rng.integers(0, 3, n_samples))
    for tree in range(5 if n_samples > 2 else 0):
        for _ in range(tree):
            forest._shrink(tree, int(forest._arena.used[tree]) + 1)
    arena, trees = forest._arena, [nodes_of(forest, tree) for tree in range(5)]
    assert len({heads.shape[0] for heads, _ in trees}) == (5 if n_samples > 2 else 1)
    packed = np.empty(arena.n_nodes * arena.layout.nbytes // 4, np.int32)
    pack(arena, packed)
    words = [np.concatenate([heads.ravel(), boxes.ravel().view(np.int32)]) for heads, boxes in trees]
    np.testing.assert_array_equal(packed, np.concatenate(words))
    assert amf.loads(forest.dumps()).dumps() == forest.dumps()


# Golden files.


def digest(forest):
    return hashlib.blake2b(forest.dumps()).hexdigest()


def hexed(table):
    """Floats as text that keeps every bit."""
    return [[value.hex() for value in row] for row in table.tolist()]


def digest_of(name):
    """Of a forest of this system that has learned, and of what it said on the way. No row depends on a C library."""
    rng = np.random.default_rng(7)
    x, rest = rng.integers(0, 64, (400, 4)) / 64.0, rng.random(400)
    x[rng.random(400) < 0.1, 3] = 1.0 if "unrestricted" in name else np.nan
    told = x[:, 0] + 0.5 * x[:, 1] + 0.25 * rest
    forest = amf.SYSTEMS[name](3, seed=5)
    said = forest.prequential(x, told.tolist() if name.endswith("regressor") else (4 * told).astype(int).tolist())
    return hashlib.blake2b(b"".join(np.ascontiguousarray(each).tobytes() for each in said) + forest.dumps()).hexdigest()


def write_golden():
    """Write the golden files of the current format."""
    known, digests = json.loads(DIGESTS.read_text()), {name: digest_of(name) for name in amf.SYSTEMS}
    if known["engine"] == amf.ENGINE and any(digests.get(name) != bits for name, bits in known["digests"].items()):
        raise SystemExit(f"bits have changed since engine {amf.ENGINE}: give it another name first")
    DIGESTS.write_text(json.dumps({"engine": amf.ENGINE, "digests": digests}, indent=1) + "\n")
    forest, (x, y) = example(), stream(20, seed=1)
    CURRENT.write_bytes(forest.dumps())
    forecasts = hexed(forest.predict_learn(x, y))
    after = {"engine": amf.ENGINE, "x": hexed(x), "y": y, "forecasts": forecasts, "digest": digest(forest)}
    CURRENT.with_suffix(".json").write_text(json.dumps(after, indent=1) + "\n")


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.amf")), ids=lambda path: path.stem)
def test_golden_files_load_and_go_on_to_known_forecasts(path):
    after = json.loads(path.with_suffix(".json").read_text())
    forest, x = amf.loads(path.read_bytes()), [[float.fromhex(value) for value in row] for row in after["x"]]
    forecasts = forest.predict_learn(x, after["y"])
    assert forecasts.shape == (len(x), len(forest.classes_))
    if after["engine"] == amf.ENGINE:
        assert hexed(forecasts) == after["forecasts"]
        assert digest(forest) == after["digest"]


@pytest.mark.parametrize("name", amf.SYSTEMS)
def test_bits_are_those_of_the_engine_whatever_the_system(name):
    known = json.loads(DIGESTS.read_text())
    assert (digest_of(name), amf.ENGINE) == (known["digests"][name], known["engine"])


def test_the_golden_file_of_the_current_format_is_canonical_and_of_this_engine():
    data = CURRENT.read_bytes()
    assert amf.loads(data).dumps() == data
    assert json.loads(CURRENT.with_suffix(".json").read_text())["engine"] == amf.ENGINE


@pytest.mark.parametrize("n_samples", [0, 30])
def test_the_hash_is_that_of_the_bytes_beside_it(n_samples):
    rng = np.random.default_rng(0)
    forest = amf.AMFClassifier(2).partial_fit(rng.random((n_samples, 2)), rng.integers(0, 2, n_samples))
    data = forest.dumps()
    assert forest.dumps_hashed() == (data, hashlib.sha256(data).hexdigest())


def test_a_text_that_the_bytes_could_not_hold_is_refused_before_it_is_learned():
    """JSON joins the halves of a pair: two classes, or two columns, came back as one, so that nothing could be read."""
    halves, rows = "\ud83c\udf89", np.eye(2)
    forest = amf.AMFClassifier(1)
    for learn in (
        lambda: forest.partial_fit(rows, [halves, "\U0001f389"]),
        lambda: forest.add_features([halves]),
        lambda: forest.partial_fit(pd.DataFrame(rows, columns=[halves, "b"]), [1, 2]),
        lambda: amf.AMFClassifier(1, classes=[halves, "b"]),
    ):
        with pytest.raises(ValueError, match="two halves of a surrogate pair"):
            learn()
    assert forest.dumps() == amf.AMFClassifier(1).dumps()
    forest.partial_fit(rows, ["\ud83c", "\udf89\ud83c"])  # halves of no pair
    assert amf.loads(forest.dumps()).class_labels == ["\ud83c", "\udf89\ud83c"]


def test_equal_parameters_are_equal_bytes():
    one, other = amf.AMFClassifier(2, purity=8, smoothing=2), amf.AMFClassifier(2, purity=8.0, smoothing=2.0)
    assert one.params == other.params
    assert one.dumps() == other.dumps()


if __name__ == "__main__":
    write_golden()
