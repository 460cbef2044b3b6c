"""Linear equations with a positive definite matrix, by Cholesky's factor of it."""

from __future__ import annotations

import math

from amf.jit.decorators import index, inlined

_LEAST_PIVOT = 1e-9


@inlined
def factorise(lower):
    """Replace the lower triangle of a matrix by that of its factor. No pivot is less than _LEAST_PIVOT."""
    for j in range(index(lower.shape[0])):
        for k in range(j + index(1)):
            entry = lower[j, k]
            for m in range(k):
                entry -= lower[j, m] * lower[k, m]
            lower[j, k] = math.sqrt(max(entry, _LEAST_PIVOT)) if k == j else entry / lower[k, k]


@inlined
def solve(lower, solution):
    """Replace a right-hand side by the solution. lower: as `factorise` leaves it."""
    n = index(lower.shape[0])
    for j in range(n):
        for m in range(j):
            solution[j] -= lower[j, m] * solution[m]
        solution[j] /= lower[j, j]
    for done in range(n):
        last = n - index(1) - done
        for m in range(last + index(1), n):
            solution[last] -= lower[m, last] * solution[m]
        solution[last] /= lower[last, last]
