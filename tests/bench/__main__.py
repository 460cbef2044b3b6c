"""All benchmarks, one after the other: `python -m tests.bench`, or some: `python -m tests.bench kernels`."""

from __future__ import annotations

import sys

from tests.bench import kernels, worker

BENCHMARKS = {
    "kernels": kernels.main,
    "worker": worker.main,
}


def main() -> None:
    wanted = sys.argv[1:] or [*BENCHMARKS]
    if unknown := [name for name in wanted if name not in BENCHMARKS]:
        sys.exit(f"no benchmark {unknown[0]!r}; there are: {', '.join(BENCHMARKS)}")
    for name in wanted:
        BENCHMARKS[name]()


if __name__ == "__main__":
    main()
