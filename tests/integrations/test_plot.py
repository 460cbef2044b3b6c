"""Pictures are held to what they show: the artists and their data, never the pixels."""

from __future__ import annotations

import doctest
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from numpy.testing import assert_allclose, assert_array_equal

import amf
from amf import plot
from tests.integrations import pictures

RNG = np.random.default_rng(0)
X = RNG.random((300, 2)) * [1.0, 9.0]
THIRDS = np.array(["left", "middle", "right"])[(3 * X[:, 0]).astype(int)]


@pytest.fixture(autouse=True)
def _off_screen() -> Iterator[None]:
    plt.switch_backend("Agg")
    yield
    plt.close("all")


def grown(labels: np.ndarray, names: tuple[str, ...] = ()) -> amf.AMFClassifier:
    forest = amf.AMFClassifier(5, seed=1)
    if names:
        forest.add_features(names)
    return forest.partial_fit(X, labels)


def texts(ax: plt.Axes) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_the_surface_is_white_where_undecided_and_coloured_by_the_likeliest_class() -> None:
    colours = plot._surface(np.array([[1 / 3, 1 / 3, 1 / 3], [0.0, 1.0, 0.0], [0.2, 0.2, 0.6]]))
    assert_allclose(colours[0], [1.0, 1.0, 1.0])
    assert_allclose(colours[1], 1.0 - plot._STRONGEST * (1.0 - np.array(to_rgb(plot.COLOURS[1]))))
    assert_allclose(colours[2], 1.0 - 0.4 * plot._STRONGEST * (1.0 - np.array(to_rgb(plot.COLOURS[2]))))


def test_the_surface_shows_what_the_forest_predicts_there() -> None:
    forest = grown(THIRDS)
    ax = plot.decision_regions(forest, X, THIRDS, resolution=40)
    [image] = ax.images
    left, right, bottom, top = image.get_extent()
    across, up = np.linspace(left, right, 40), np.linspace(bottom, top, 40)
    for i, j in ((0, 0), (5, 31), (39, 12)):
        assert_allclose(image.get_array()[i, j], plot._surface(forest.predict_proba([[across[j], up[i]]]))[0])
    assert left < X[:, 0].min() < X[:, 0].max() < right
    assert bottom < X[:, 1].min() < X[:, 1].max() < top


def test_of_a_forest_on_the_unit_cube_the_plane_ends_with_that() -> None:
    corners = np.array([[0.0, 0.5], [1.0, 0.6]])
    forest = amf.UnrestrictedAMFClassifier(5, seed=1).partial_fit(corners, ["left", "right"])
    [image] = plot.decision_regions(forest, corners, ["left", "right"], resolution=40).images
    assert_allclose(image.get_extent(), [0.0, 1.0, 0.495, 0.605])


def test_samples_have_the_colour_and_the_marker_of_their_class() -> None:
    ax = plot.decision_regions(grown(THIRDS), X, [*THIRDS[:298], None, "other"])
    clouds = {cloud.get_label(): cloud for cloud in ax.collections if cloud.get_label() in THIRDS}
    labels = grown(THIRDS).class_labels
    assert texts(ax) == [*labels, "undecided"]
    for number, label in enumerate(labels):
        assert_array_equal(clouds[label].get_offsets(), X[:298][THIRDS[:298] == label])
        assert_allclose(clouds[label].get_facecolor()[0, :3], to_rgb(plot.COLOURS[number]))
    assert len({cloud.get_paths()[0].vertices.tobytes() for cloud in clouds.values()}) == 3


@pytest.mark.parametrize("n_classes", [2, 3])
def test_lines_run_where_the_likeliest_class_changes(n_classes: int) -> None:
    labels = THIRDS if n_classes == 3 else THIRDS == "left"
    forest = grown(labels)
    ax = plot.decision_regions(forest, X, labels, resolution=60)
    lines = [line for line in ax.collections if line not in ax.get_legend_handles_labels()[0]]
    assert len(lines) == (1 if n_classes == 2 else 3)
    left, right, bottom, top = ax.images[0].get_extent()
    steps = np.array([right - left, top - bottom]) / 59
    places = np.vstack([path.vertices for line in lines for path in line.get_paths()])
    around = [forest.predict(places + steps * (i, j)) for i in (-1, 0, 1) for j in (-1, 0, 1)]
    assert all(len(set(predicted)) > 1 for predicted in zip(*around, strict=True))
    assert np.abs(places[:, 0] - 1 / 3).min() < 0.05


def test_axes_bear_the_names_of_the_features() -> None:
    ax = plot.decision_regions(grown(THIRDS, ("age", "dose")), X, THIRDS)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("age", "dose")


def test_drawing_leaves_forest_and_samples_alone() -> None:
    forest, x = grown(THIRDS), X.copy()
    before = forest.dumps()
    plot.decision_regions(forest, x, THIRDS)
    assert forest.dumps() == before
    assert_array_equal(x, X)


def test_regions_of_other_than_two_features_or_too_many_classes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"two features, X has shape \(300, 1\)"):
        plot.decision_regions(grown(THIRDS), X[:, :1], THIRDS)
    many = np.arange(300) % 8
    with pytest.raises(ValueError, match="8 classes are more than the 7 colours"):
        plot.decision_regions(grown(many), X, many)


@pytest.mark.parametrize("forest", [amf.AMFClassifier(5, seed=1), amf.AMFRegressor(5, seed=1)], ids=type)
def test_the_depth_is_drawn_from_left_to_right(forest: amf.AMFClassifier | amf.AMFRegressor) -> None:
    forest.partial_fit(X[:, :1], np.round(X[:, 0]))
    ax = plot.weighted_depth(forest, X[:, 0])
    [line] = ax.lines
    places = np.sort(X[:, 0])
    assert_array_equal(line.get_xdata(), places)
    assert_array_equal(line.get_ydata(), forest.weighted_depth(places[:, None]))
    assert "depth" in ax.get_ylabel()
    assert ax.get_ylim()[0] == 0.0
    assert ax.get_legend() is None


def test_depths_of_several_forests_share_their_axes() -> None:
    shallow = amf.AMFClassifier(5, seed=1).partial_fit(X[:20, :1], THIRDS[:20])
    deep = amf.AMFClassifier(5, seed=1, split_pure=True).partial_fit(X[:, :1], THIRDS)
    ax = plot.weighted_depth(shallow, X[:, 0], label="shallow")
    assert plot.weighted_depth(deep, X[:, 0], label="deep", ax=ax) is ax
    assert texts(ax) == ["shallow", "deep"]
    assert [line.get_color() for line in ax.lines] == [*plot.COLOURS[:2]]
    assert ax.get_ylim()[1] >= ax.lines[1].get_ydata().max() > ax.lines[0].get_ydata().max()
    with pytest.raises(ValueError, match="along one feature"):
        plot.weighted_depth(deep, X)


def test_a_curve_is_the_mean_of_the_losses_so_far() -> None:
    ax = plot.log_loss({"steady": [2.0, 4.0, 0.0], "gaps": [np.nan, 1.0, np.nan, 2.0]})
    steady, gaps = ax.lines
    assert_allclose(steady.get_xdata(), [1, 2, 3])
    assert_allclose(steady.get_ydata(), [2.0, 3.0, 2.0])
    assert_allclose(gaps.get_ydata(), [np.nan, 1.0, 1.0, 1.5])
    assert texts(ax) == ["steady: 2.000", "gaps: 1.500"]
    assert "nats" in ax.get_ylabel()
    assert not ax.collections


def test_seeds_of_a_run_are_a_line_with_a_band() -> None:
    ax = plot.log_loss({"run": [[1.0, 3.0], [2.0, 2.0], [6.0, 4.0]]})
    assert_allclose(ax.lines[0].get_ydata(), [3.0, 3.0])
    [band] = ax.collections
    corners = band.get_paths()[0].vertices
    for sample, low, high in ((1, 1.0, 6.0), (2, 2.0, 5.0)):
        heights = corners[corners[:, 0] == sample, 1]
        assert (heights.min(), heights.max()) == (low, high)


@pytest.mark.parametrize("losses", [[], [[]], [[[1.0]]]])
def test_losses_of_another_shape_are_refused(losses: list) -> None:
    with pytest.raises(ValueError, match="losses are"):
        plot.log_loss({"run": losses})


def test_more_runs_than_colours_are_refused() -> None:
    with pytest.raises(ValueError, match="8 runs"):
        plot.log_loss({str(k): [1.0] for k in range(8)})


def test_pictures_are_small_files() -> None:
    for draw, n in pictures.PICTURES.values():
        assert len(pictures.png(draw(n // 10))) < 60_000
    for path in (Path(__file__).parents[2] / "deploy/pictures").glob("*.png"):
        assert path.stat().st_size < 130_000, path.name


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert doctest.testmod(plot) == (0, 18)
    assert {path.name for path in tmp_path.iterdir()} == {"regions.png", "depth.png", "log_loss.png"}
