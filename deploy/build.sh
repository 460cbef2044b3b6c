#!/bin/sh
# What the image consists of: a Python environment with the worker, and its kernels compiled.
#
#     NUMBA_CPU_NAME=generic deploy/build.sh FOLDER
#
# The folder need not be written to any more afterwards, and belongs to no user. ALGORITHMS names those whose kernels are
# compiled, with blanks between them; without it all are.
set -eu
folder=$1
checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
: "${NUMBA_CPU_NAME:?names the CPU that the kernels are compiled for}"

python3 -m venv "$folder"
# Of libraries the versions that were tested, and no other files than those: a build of today is that of next year.
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
    --requirement "$checkout/deploy/requirements.txt"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "$checkout"
"$folder/bin/python" -m pip check --quiet --disable-pip-version-check
# They lie beside the sources of the package. Whoever asks for another CPU, or has other sources, compiles them again.
# With -P it is the package that was installed, and not that of a checkout in which this is called.
# shellcheck disable=SC2086 # one word for each algorithm
"$folder/bin/python" -P - ${ALGORITHMS:-} <<'END'
import sys

import amf

if unknown := set(sys.argv[1:]) - amf.SYSTEMS.keys():
    sys.exit(f"ALGORITHMS names {', '.join(sorted(unknown))}; there are {', '.join(amf.SYSTEMS)}")
kernels = amf.compile_kernels([amf.SYSTEMS[name] for name in sys.argv[1:] or amf.SYSTEMS], threads=True)
print(f"{kernels.compiled} kernels compiled")
END
# What runs installs nothing.
"$folder/bin/python" -m pip uninstall --quiet --yes setuptools pip
