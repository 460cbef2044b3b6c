"""A system's kernels, composed: each part of its trees is named once, for learning and for attributions alike."""

from __future__ import annotations

from functools import cache
from typing import Any

from amf.calibration.interface import Calibration
from amf.geometry.interface import BOXES, Geometry
from amf.kernels.attributions import make_attributions, make_way
from amf.kernels.cell_walk import make_cell_walk, make_cell_way
from amf.kernels.pipeline import Kernels, make_kernels
from amf.kernels.reviews import Adapting
from amf.kernels.survey import make_survey
from amf.kernels.walk import make_walk, share_by_prunings
from amf.statistics.interface import Statistics


@cache
def _make_parts(statistics: Statistics, share: Any, geometry: Geometry, aggregates: bool) -> tuple[Any, Any, Any]:
    """(the walk, the attributions, the survey) of such trees, compiled once for forests that adapt and that do not."""
    attribute = make_attributions(statistics, make_way(aggregates=aggregates), geometry)
    walk = make_walk(statistics, share, geometry, aggregates=aggregates)
    return walk, attribute, make_survey(statistics, aggregates=aggregates)


def tree_kernels(
    statistics: Statistics,
    calibration: Calibration,
    share: Any = share_by_prunings,
    *,
    aggregates: bool = True,
    geometry: Geometry = BOXES,
    adapting: Adapting | None = None,
) -> Kernels:
    """The kernels of a system whose trees are grown by walk.py ([AMF] Alg. 4-6).

    share: (mode, draw, rules, nodes, path, outer, numbers) -> (depth, weighted depth): how a forecast is shared out
    over the nodes that are shown, as `share_out` of modes.py. aggregates: whether a forecast is averaged over prunings;
    else it is that of the leaf, or what `share` makes of it. geometry: how trees divide space. adapting: of systems
    whose forests adapt (adaptation/), else None.
    """
    walk, attribute, survey = _make_parts(statistics, share, geometry, aggregates)
    return make_kernels(walk, statistics.rules_of, calibration, attribute, survey, adapting)


def cell_kernels(statistics: Statistics, calibration: Calibration, *, aggregates: bool = True) -> Kernels:
    """The kernels of a system whose trees are parts of a partition of [0, 1]^d (cell_walk.py, [AMF] Alg. 1-3).

    aggregates: whether a forecast is averaged over prunings; else it is that of the leaf.
    """
    walk, survey = make_cell_walk(statistics, aggregates=aggregates), make_survey(statistics, aggregates=aggregates)
    attribute = make_attributions(statistics, make_cell_way(statistics, aggregates=aggregates), BOXES)
    return make_kernels(walk, statistics.rules_of, calibration, attribute, survey)
