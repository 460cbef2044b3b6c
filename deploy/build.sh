#!/bin/sh
# What the image consists of: a Python environment with the worker, and its kernels compiled.
#
#     NUMBA_CPU_NAME=generic deploy/build.sh FOLDER
#
# The folder need not be written to any more afterwards, and belongs to no user.
set -eu
folder=$1
checkout=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
: "${NUMBA_CPU_NAME:?names the CPU that the kernels are compiled for}"

python3 -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$checkout[registry]"
# They lie beside the sources of the package. Whoever asks for another CPU, or has other sources, compiles them again.
"$folder/bin/python" -c 'import amf; print("%d kernels compiled" % amf.compile_kernels(threads=True).compiled)'
# What runs installs nothing.
"$folder/bin/python" -m pip uninstall --quiet --yes setuptools pip
