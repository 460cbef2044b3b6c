"""The same bits on other processors: one that cannot fuse a product and a sum, and aarch64, which QEMU emulates.

And without machine code of the kernels, on this processor.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from numba import config

import amf
from tests.availability import Unavailable, give_up
from tests.processors.emulated import CACHE, Emulated, aarch64
from tests.processors.streams import FORESTS

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "processors"
N_SAMPLES = 20_000
EMULATED = os.environ.get("AMF_EMULATED", "amf-classifier").split()
"""Families whose kernels are compiled and run on aarch64: a minute for each of them."""
KERNELS = CACHE / "kernels"
N_INTERPRETED = 40
"""Samples for the interpreted kernels of all families, under emulation."""
INTERPRETED = {"NUMBA_DISABLE_JIT": "1", "PYTHONWARNINGS": "ignore"}
"""Interpreted kernels warn where numbers wrap."""

Digests = dict[str, dict[str, str]]


def run(
    command: list[str], *arguments: str, program: str = "streams.py", packages: Path | None = None, **environment: str
) -> str:
    """What the program prints when this Python runs it, with these packages before its own. Progress goes to stderr."""
    seen = os.pathsep.join(str(folder) for folder in (ROOT, packages) if folder)
    done = subprocess.run(
        [*command, str(PROGRAMS / program), *arguments],
        env={**os.environ, "PYTHONPATH": seen, **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def by_name(printed: str) -> Digests:
    """The digests of each forest in what the program prints."""
    return {line.pop("name"): line for line in map(json.loads, printed.splitlines())}


def differences(got: Digests, expected: Digests) -> list[str]:
    """Which digests of which forests are not as expected."""
    assert list(got) == list(expected)
    assert len(got) >= 5
    return [f"{name}: {what}" for name in got for what in got[name] if got[name][what] != expected[name][what]]


def compile_here(emulated: Emulated, data: str, families: list[str], used: Path) -> None:
    """Compile the kernels that learn the streams, for the processor that is emulated."""
    here, (kind, name, features) = [sys.executable], emulated.processor()
    run(here, "note", str(used), data, *families, program="compiled.py")
    there = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features, "NUMBA_CACHE_DIR": str(KERNELS)}
    run(here, "compile", str(used), kind, program="compiled.py", **there)


UNFUSED = "glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2"
"""With this the GNU C library computes as on a processor that has no fused operations."""


def test_forests_owe_no_bit_to_the_c_library(tmp_path):
    data, here = str(tmp_path / "streams.npz"), [sys.executable]
    run(here, "write", data, "2000")
    expected = by_name(run(here, "learn", data))
    assert len(expected) == sum(map(len, FORESTS.values()))
    assert differences(by_name(run(here, "learn", data, GLIBC_TUNABLES=UNFUSED)), expected) == []


@pytest.mark.skipif(config.DISABLE_JIT, reason="NUMBA_DISABLE_JIT is set: nothing is compiled")
@pytest.mark.full
def test_interpreted_forests_have_the_same_bits(tmp_path):
    data, here = str(tmp_path / "streams.npz"), [sys.executable]
    run(here, "write", data, "200")
    expected = by_name(run(here, "learn", data))
    assert differences(by_name(run(here, "learn", data, **INTERPRETED)), expected) == []


def test_all_families_learn_a_stream():
    assert {new().family for forests in FORESTS.values() for new in forests} == {*amf.SYSTEMS}


@pytest.mark.skipif(config.DISABLE_JIT, reason="NUMBA_DISABLE_JIT is set: nothing is compiled")
@pytest.mark.full
@pytest.mark.parametrize(
    ("families", "n_samples", "environment"),
    [
        pytest.param(EMULATED, N_SAMPLES, {"NUMBA_CACHE_DIR": str(KERNELS)}, id="compiled"),
        pytest.param([], N_INTERPRETED, INTERPRETED, id="interpreted"),
    ],
)
def test_forests_on_aarch64_have_the_same_bits(families, n_samples, environment, tmp_path, capfd):
    """As compiled for this processor. Those for aarch64 are compiled here, but for a small one: it would take minutes
    under emulation. That is done of few families, AMF_EMULATED names others with blanks between them, and all families
    are interpreted, which asks of numpy and of the C library there what compiled kernels would.
    """
    with capfd.disabled():
        print("\n", file=sys.stderr)
        try:
            emulated = aarch64()
        except Unavailable as error:
            give_up(f"bits on aarch64 are NOT tested here: {error}")
        data, here = str(tmp_path / "streams.npz"), [sys.executable]
        run(here, "write", data, str(n_samples))
        print("here:", file=sys.stderr)
        expected = by_name(run(here, "learn", data, *families))
        if families and sys.version_info[:2] == emulated.python:  # else its kernels are others, and compiled there
            compile_here(emulated, data, families, tmp_path / "used")
        print("on aarch64, emulated:", file=sys.stderr)
        printed = run(emulated.command, "learn", data, *families, packages=emulated.packages, **environment)
    assert differences(by_name(printed), expected) == []
