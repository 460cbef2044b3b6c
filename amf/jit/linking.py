"""Kernels that kernels call by address, so that each is compiled once, and not anew into all that call it."""

from __future__ import annotations

from typing import Any

from numba import typeof, types
from numba.core import cgutils

from amf.jit.compilers import lock
from amf.jit.vectors import intrinsic, plain_form_of

_interpreted: dict[int, Any] = {}
"""Under NUMBA_DISABLE_JIT=1, where there is no machine code: functions by their ids, which stand for addresses."""


def address_of_kernel(kernel: Any, *examples: Any) -> int:
    """Where the machine code of a kernel begins, for arguments of the types of these; compiled if need be.

    It stays there as long as the kernel lives.
    """
    if not hasattr(kernel, "overloads"):
        _interpreted[id(kernel)] = kernel
        return id(kernel)
    signature = tuple(map(typeof, examples))
    kernel.compile(signature)
    compiled = kernel.overloads[signature]
    with lock:  # so that no process is forked meanwhile (compilers.py), whose copy of LLVM's own lock would stay taken
        address: int = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    return address


@intrinsic
def _call(typingctx, address, arguments):
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        types_of, values = signature.args[1].types, cgutils.unpack_tuple(builder, args[1])
        convention = context.call_conv
        function = convention.get_function_type(types.none, types_of)
        pointer = builder.inttoptr(args[0], function.as_pointer())
        status, _ = convention.call_function(builder, pointer, types.none, types_of, values)
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return context.get_dummy_value()

    return types.none(address, arguments), codegen


@plain_form_of(_call)
def call_kernel(address, arguments):
    """Call a kernel that returns nothing, for kernels. arguments: a tuple, of the types that it was compiled for."""
    _interpreted[int(address)](*arguments)
