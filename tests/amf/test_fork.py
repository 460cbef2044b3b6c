"""A process that is forked after its parent used threads can use them, too, and waits for none of its parent's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, signal, sys
import numpy as np
import amf

x, y = np.random.default_rng(0).random((50, 3)), [0, 1] * 25
forest = amf.AMFClassifier(4, n_threads=2).partial_fit(x, y)
child = os.fork()
if child == 0:
    signal.alarm(30)
    forest.partial_fit(x, y)
    os._exit(0 if forest.dumps() == amf.AMFClassifier(4).partial_fit(x, y).partial_fit(x, y).dumps() else 3)
_, status = os.waitpid(child, 0)
forest.partial_fit(x, y)  # the parent still has its own
sys.exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
"""


WHILE_A_THREAD_COMPILES = """
import os, signal, sys, threading, time
import numpy as np
from numba.core.compiler_lock import global_compiler_lock
import amf

def compile():
    with global_compiler_lock:
        compiling.set()
        time.sleep(1.0)

compiling = threading.Event()
thread = threading.Thread(target=compile)
thread.start()
compiling.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)
    amf.AMFClassifier(2).partial_fit([[0.0], [1.0]], [0, 1])
    os._exit(0)
_, status = os.waitpid(child, 0)
thread.join()
amf.AMFClassifier(2).partial_fit([[0.0], [1.0]], [0, 1])
sys.exit(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
"""


WHILE_A_THREAD_LINKS = """
import os, signal, sys, threading, time
import numpy as np
from numba.core.codegen import JITCodeLibrary
from amf.jit.decorators import kernel
from amf.jit.linking import address_of_kernel

ask = JITCodeLibrary.get_pointer_to_function
linking, steps = threading.Event(), []

def ask_slowly(self, name):
    if threading.current_thread() is not threading.main_thread():
        linking.set()
        time.sleep(1.0)
        steps.append("linked")
    return ask(self, name)

JITCodeLibrary.get_pointer_to_function = ask_slowly
doubled = kernel(lambda x: None)
doubled.compile("(f8[::1],)")
thread = threading.Thread(target=address_of_kernel, args=(doubled, np.ones(1)))
thread.start()
linking.wait()
child = os.fork()
if child == 0:
    os._exit(0 if steps else 3)
_, status = os.waitpid(child, 0)
thread.join()
sys.exit(os.WEXITSTATUS(status))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked here")
@pytest.mark.parametrize(
    "script", [SCRIPT, WHILE_A_THREAD_COMPILES, WHILE_A_THREAD_LINKS], ids=["threads", "compiler", "linker"]
)
def test_a_forked_process_learns(script):
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0
