"""A forest as kernels see it: one row of 64-bit words, of which many together are a table of forests.

The first words are addresses of arrays (arena.py, scaling.py, the calibrations), then come numbers, whole ones and
float64. Python makes a row anew whenever an array moves, and keeps the arrays alive; of the numbers kernels change one,
LARGEST. Addresses never get into the bytes of a forest.
"""

from __future__ import annotations

from amf._kernel import index

HEADS, BOXES, USED, RANDOM, CALIBRATION = (index(word) for word in range(5))
ORIGIN, LOWEST, HIGHEST, WEIGHTS, SUBSAMPLE, COUNTERS = (index(word) for word in range(5, 11))
N_TREES, HEAD_WORDS, BOX_WORDS, CAPACITY, LIMIT, LARGEST = (index(word) for word in range(11, 17))
"""Trees; words of a head and of a box; rows reserved and allowed for a tree; rows in use in the largest tree."""
N_FEATURES, ADAPTIVE, N_OUTPUTS, N_CALIBRATION, MODE = (index(word) for word in range(17, 22))
"""Features; whether they are weighed; numbers in a forecast and in the state of the calibration; see modes.py."""
PURITY, PAUSE, FULL_PAUSE, RULES = (index(word) for word in range(22, 26))
"""float64: when leaves and nodes do not split (walk.py), and five numbers of which the system makes its rules."""
N_RULES = 5
N_WORDS = int(RULES) + N_RULES
