"""How kernels and their parts are compiled, in less than half of the time that numba takes by default.

numba takes each function for one that Python may call: it optimises it, with all that it calls, makes machine code of
it and two wrappers. Of a part none of that is ever used, since kernels link its code and optimise it anew: so parts are
compiled to code that their kernels optimise, and nothing else.

While a kernel is compiled, the garbage collector pauses: what the compiler builds lives until its end, and looking
through it again and again took an eighth of the time.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator
from functools import cache
from typing import Any

from numba import _dynfunc, njit  # type: ignore[attr-defined]
from numba.core import compiler as _compiler
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering

_njit: Any = njit
lock: Any = global_compiler_lock
if hasattr(os, "register_at_fork"):
    # A child has no thread that would go on with a kernel that is being compiled, and without this would wait for it.
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
_Library: Any = JITCodeLibrary
_Pass: Any = NativeLowering
compiler: Any = _compiler
_Pipelines: Any = compiler.Compiler


class _Part(_Library):
    """The code of a function and of all that it calls, for others to link."""

    def finalize(self) -> None:
        """Link, and no more."""
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(_Pass):
    """NativeLowering without what only Python would use."""

    _name = "amf_part_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = state.flags.no_cpython_wrapper = state.flags.no_cfunc_wrapper = True
        super().run_pass(state)
        entry = _entry_of(state["cr"].fndesc)
        state.targetctx.insert_user_function(entry, state["cr"].fndesc, [state.library])
        state["cr"] = state["cr"]._replace(cfunc=entry)
        return True


class PartCompiler(_Pipelines):
    """numba's compiler for a function that only kernels call; from Python it raises TypeError."""

    def define_pipelines(self) -> Any:
        """numba's own pipelines, with another last step."""
        pipelines = super().define_pipelines()
        for pipeline in pipelines:
            pipeline.passes = [(_PartLowering if step is _Pass else step, name) for step, name in pipeline.passes]
        return pipelines


class KernelCompiler(_Pipelines):
    """numba's compiler for a function that Python calls."""

    def compile_extra(self, func: Any) -> Any:
        """Compile it, with all of its parts that no other kernel has brought along."""
        _refusal()  # a whole function, which has to be there before parts are
        with _without_collection(), _nested_as_parts():
            return super().compile_extra(func)


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Pause the garbage collector, unless it is off already. numba compiles one kernel at a time, behind a lock."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextlib.contextmanager
def _nested_as_parts() -> Iterator[None]:
    """Take what numba compiles meanwhile for its own functions, such as np.empty, for parts of the kernel as well."""
    compile_extra: Any = compiler.compile_extra

    def compile_part(*args: Any, pipeline_class: Any = _Pipelines, **options: Any) -> Any:
        nested = PartCompiler if pipeline_class is _Pipelines else pipeline_class
        return compile_extra(*args, pipeline_class=nested, **options)

    compiler.compile_extra = compile_part
    try:
        yield
    finally:
        compiler.compile_extra = compile_extra


@cache
def _refusal() -> Any:
    """What stands where numba keeps a pointer for Python."""

    def refuse() -> None:
        raise TypeError

    # What Python then says begins with its name.
    refuse.__qualname__ = "A part of kernels can be called by kernels alone: it"
    (compiled,) = _njit(())(refuse).overloads.values()
    return compiled


def _entry_of(function: Any) -> Any:
    """The object by which numba knows a compiled function: each needs one of its own."""
    refusal = _refusal()
    pointer = refusal.library.get_pointer_to_function(refusal.fndesc.llvm_cpython_wrapper_name)
    name = function.qualname.split(".")[-1]
    return _dynfunc.make_function(
        function.lookup_module(), name, "", pointer, refusal.environment, (refusal.library,)
    )  # fmt: skip
