"""The benchmarks: `python -m tests.bench` runs all but the long ones, `python -m tests.bench NAME ...` those named.

    start        an empty process to its first forecast
    classifiers  the table: ours beside onelearn, river and MOA on the shared sets (AMF_DATA), 10 trees
    regressors   ours beside river's on the sets that come with river and scikit-learn
    small        many small forests, calls for a single event
    bytes        saving and loading
    worker       one worker end to end beside a bare pass-through loop
    growth       long: one tree up to ten million samples
    endless      long: twenty million events through 64 MB

Targets stand beside the figures. The peers are installed into .cache on first use; one that cannot run here is left
out, with the reason.
"""

from __future__ import annotations

import sys

from tests import conftest  # noqa: F401  # the kernels of this very source: it chooses numba's cache, so it comes first
from tests.bench import classifiers, endless, growth, regressors, serialization, small, start, worker

USUAL = {
    "start": start.main,
    "classifiers": classifiers.main,
    "regressors": regressors.main,
    "small": small.main,
    "bytes": serialization.main,
    "worker": worker.main,
}
LONG = {"growth": growth.main, "endless": endless.main}


def main() -> None:
    benchmarks = {**USUAL, **LONG}
    wanted = sys.argv[1:] or [*USUAL]
    if unknown := [name for name in wanted if name not in benchmarks]:
        sys.exit(f"no benchmark {unknown[0]!r}; there are: {', '.join(benchmarks)}")
    for name in wanted:
        benchmarks[name]()


if __name__ == "__main__":
    main()
