"""What linear models have in common that are solved for (ridge.py, logistic.py): when, and whether they have room.

They are solved for after each of the first labels, later after every sixteenth part of them, at the latest after 64.
"""

from __future__ import annotations

import math

from amf.calibration.linear_models import OF_MEMORY
from amf.jit.decorators import inlined

_SHARE_BETWEEN, _MOST_BETWEEN = 1.0 / 16.0, 64.0
"""Labels from one solution to the next: so much of those that there were, and so many at most."""
MOST_LABELS = 2.0**53
LATEST_DUE = MOST_LABELS + _MOST_BETWEEN


def n_affordable(n_numbers: int, has_splines: bool, max_bytes: int) -> int:
    """The numbers of a model, none where they would take too much of the `max_bytes` of a forest, or where its features
    have no splines (`linear_models.has_splines`): it needs what linear models know of them."""
    return n_numbers if has_splines and 8 * OF_MEMORY * n_numbers <= max_bytes else 0


@inlined
def next_due(n_labels):
    """The number of labels after which a model is solved for next."""
    return n_labels + min(max(math.floor(_SHARE_BETWEEN * n_labels), 1.0), _MOST_BETWEEN)
