"""
What a loop over memory needs on a CPU, and the compiler leaves out.

Adam reads five streams and writes four. Three things keep the loop that the compiler makes of it from running at the
speed of memory, and they are mended here while it writes its C++:

* A processor fetches ahead by itself, but not far enough for so many streams. Told in advance what will be read, it
  takes a fifth less time.
* The loop goes in steps of as many values as there are FP32 numbers in a register. A register holds twice as many with
  16 bits, so each is loaded and stored by half, under a mask, and a load waits for such a store right before it. In
  steps twice as long there are no halves, and no mask.
* Where whole numbers of 16 bits occur, or a number is looked at bit by bit, it takes the values one at a time. Masters
  in two halves consist of that.

These are inner parts of the compiler, not meant to be changed from outside. With a version of torch that has others,
and with a C++ compiler that doesn't know how to do it, nothing is mended: the loop is slower, and as right as before.
"""

from __future__ import annotations

import contextlib
from typing import Any
from unittest import mock

import torch
from torch._inductor.codegen import cpp

from labml_opt._native import AHEAD, LINE

compiler: Any = cpp


def mended() -> contextlib.ExitStack:
    """Have loops that are compiled in this context read ahead, in whole registers, whole numbers of 16 bits, too."""
    changes = contextlib.ExitStack()
    numbers = getattr(compiler, "VECTORIZABLE_DTYPES", None)
    if numbers is not None:
        changes.enter_context(mock.patch.object(compiler, "VECTORIZABLE_DTYPES", [*numbers, torch.int16]))
    for owner, name, mend in (
        ("CppVecKernel", "_get_vec_load_line", ahead),
        ("TilingSelect", "select_tiling", in_whole_registers),
        ("CppVecOverrides", "to_dtype", whole_numbers),
        ("CppVecOverrides", "to_dtype_bitcast", bit_by_bit),
        ("CppKernel", "cache_dtype_convert", without_memory),
    ):
        method = getattr(getattr(compiler, owner, None), name, None)
        if method is not None:
            changes.enter_context(mock.patch.object(getattr(compiler, owner), name, mend(method)))
    return changes


def ahead(load: Any) -> Any:
    """Return the method that writes a load, with a prefetch in front of it."""

    def load_ahead(self: Any, var: str, index: Any, dtype: torch.dtype, *rest: Any) -> str:
        line: str = load(self, var, index, dtype, *rest)
        place = f"{var} + {compiler.cexpr_index(index)}" if index != 0 else var
        for start in range(0, self.tiling_factor * dtype.itemsize, LINE):
            # In C a comma evaluates both sides and has the value of the second.
            fetch = f"__builtin_prefetch(reinterpret_cast<const char*>({place} + {AHEAD}) + {start})"
            line = f"({fetch}, {line})"
        return line

    return load_ahead


def in_whole_registers(select: Any) -> Any:
    """Return the method that chooses the step of a loop, now for the narrowest format that it meets."""

    def select_tiling(self: Any, bodies: Any, sizes: Any) -> Any:
        met = compiler._get_dtype_from_loopbodies(compiler._get_loop_body(bodies))
        halves = [dtype for dtype in (torch.float16, torch.bfloat16) if dtype in met]
        if not halves:
            return select(self, bodies, sizes)
        with mock.patch.object(compiler, "get_loop_body_lowp_fp", return_value=(halves[0], True)):
            return select(self, bodies, sizes)

    return select_tiling


def whole_numbers(convert: Any) -> Any:
    """Return the method that writes a conversion, now between whole numbers of 16 and of 32 bits as well."""

    def to_dtype(x: Any, dtype: torch.dtype, src_dtype: Any = None, use_compute_types: bool = True) -> Any:
        if torch.int16 not in (dtype, x.dtype):
            # By their places: torch 2.10 calls the last one otherwise here than where it calls it.
            return convert(x, dtype, src_dtype, use_compute_types)
        source, target = compiler.DTYPE_TO_CPP[x.dtype], compiler.DTYPE_TO_CPP[dtype]
        code = (
            f"[&]{{ auto from = {x}; {vector_of(dtype)} to; "
            f"typedef {source} Source __attribute__((vector_size(sizeof(from)))); "
            f"typedef {target} Target __attribute__((vector_size(sizeof(to)))); "
            "Source source; std::memcpy(&source, &from, sizeof(source)); "
            "Target target = __builtin_convertvector(source, Target); "
            "std::memcpy(&to, &target, sizeof(to)); return to; }()"
        )
        kernel = compiler.V.kernel
        variable = kernel.cse.generate(kernel.compute, code, dtype=dtype)
        variable.update_on_args("to_dtype", (x, dtype), {"src_dtype": x.dtype})
        return variable

    return staticmethod(to_dtype)


def bit_by_bit(cast: Any) -> Any:
    """Return the method that writes what `view` does to the bits of a number, now for a register of them."""

    def to_dtype_bitcast(x: Any, dtype: torch.dtype, src_dtype: torch.dtype) -> str:
        return f"[&]{{ auto from = {x}; {vector_of(dtype)} to; std::memcpy(&to, &from, sizeof(to)); return to; }}()"

    return staticmethod(to_dtype_bitcast)


def without_memory(remember: Any) -> Any:
    """Return the method by which the compiler remembers what a number was before it was rounded; torch 2.10 uses it."""
    return lambda *arguments: None


def vector_of(dtype: torch.dtype) -> str:
    """Return the C++ type of as many values as the loop takes in a step."""
    name: str = compiler.V.kernel._get_vec_type(dtype)
    return name
