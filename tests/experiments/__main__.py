"""The experiments of the papers: `python -m tests.experiments NAME ...`.

    figure1-001   [001] Fig. 1: increasing and fixed lifetime beside Extra-Trees and a random forest, on letter
    figure4-002   [002] Fig. 4: BSP and both kinds of Mondrian forests on the Friedman function

Each prints a table and writes a picture to this folder. Data sets are those of AMF_DATA.
"""

from __future__ import annotations

import argparse

from tests.experiments import figure1_001, figure4_002

EXPERIMENTS = {"figure1-001": figure1_001.main, "figure4-002": figure4_002.main}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.experiments")
    parser.add_argument("names", nargs="+", metavar="NAME", choices=EXPERIMENTS, help=", ".join(EXPERIMENTS))
    for name in parser.parse_args().names:
        EXPERIMENTS[name]()


if __name__ == "__main__":
    main()
