"""The experiments of the papers: `python -m tests.experiments NAME ...`.

Each prints tables and writes a picture to this folder, whose README.md has both and says what they show. Data sets are
those of AMF_DATA.
"""

from __future__ import annotations

import argparse
from importlib import import_module

EXPERIMENTS = (
    "figure8-amf",
    "figure9-amf",
    "figure10-amf",
    "figure11-amf",
    "figure12-amf",
    "figure1-rates",
    "figure3-bsp",
    "figure4-bsp",
    "figure5-bsp",
    "complexity",
)
"""In the order of the papers and their figures."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.experiments")
    parser.add_argument("names", nargs="+", metavar="NAME", choices=EXPERIMENTS, help=", ".join(EXPERIMENTS))
    for name in parser.parse_args().names:
        import_module(f"tests.experiments.{name.replace('-', '_')}").main()


if __name__ == "__main__":
    main()
