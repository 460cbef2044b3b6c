"""Linear equations with a positive definite matrix, by Cholesky's factor of it.

The upper triangle is worked on row by row, so that several numbers of a row are computed at a time.
"""

from __future__ import annotations

import math

from amf.calibration.linear_models import sum_of_products
from amf.jit.decorators import index, inlined

_LEAST_PIVOT = 1e-9


@inlined
def factorise(upper):
    """Replace the upper triangle of a matrix by its factor U, U'U being the matrix. No pivot is less than
    _LEAST_PIVOT."""
    n = index(upper.shape[0])
    for m in range(n):
        above = upper[m]
        pivot = math.sqrt(max(above[m], _LEAST_PIVOT))
        above[m] = pivot
        for k in range(m + index(1), n):
            above[k] /= pivot
        for j in range(m + index(1), n):
            row, factor = upper[j], above[j]
            for k in range(j, n):
                row[k] -= factor * above[k]


@inlined
def solve(upper, solution):
    """Replace a right-hand side by the solution. upper: as `factorise` leaves it."""
    n = index(upper.shape[0])
    for m in range(n):
        above, value = upper[m], solution[m] / upper[m, m]
        solution[m] = value
        for j in range(m + index(1), n):
            solution[j] -= above[j] * value
    for done in range(n):
        last = n - index(1) - done
        behind = last + index(1)
        known = sum_of_products(upper[last], behind, solution, behind, done)
        solution[last] = (solution[last] - known) / upper[last, last]
