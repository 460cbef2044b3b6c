"""Events without end for compose.yaml: the payments of `amf-worker demo`, published as `amf-worker produce` does.

python payments.py CONFIG.yaml --models 24 --rate 500
"""

from __future__ import annotations

import argparse
import os

from worker.cli.produce import produce
from worker.config import load
from worker.demo.events import Payments

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("config", help="the configuration of the worker that reads them")
parser.add_argument("--models", type=int, default=24, help="how many keys they have")
parser.add_argument("--rate", type=float, default=500.0, help="events a second")

if __name__ == "__main__":
    asked = parser.parse_args()
    produce(Payments(asked.models), load(asked.config, os.environ), asked.config, rate=asked.rate)
