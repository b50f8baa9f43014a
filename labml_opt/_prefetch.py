"""
What a loop over memory needs on a CPU, and the compiler leaves out.

Adam reads five streams and writes four. Two things keep the loop that the compiler makes of it from running at the
speed of memory, and both are mended here while it writes its C++:

* A processor fetches ahead by itself, but not far enough for so many streams. Told in advance what will be read, it
  takes a fifth less time.
* The loop goes in steps of as many values as there are FP32 numbers in a register. A register holds twice as many with
  16 bits, so each is loaded and stored by half, under a mask, and a load waits for such a store right before it. In
  steps twice as long there are no halves, and no mask.

These are inner parts of the compiler, not meant to be changed from outside. With a version of torch that has others,
and with a C++ compiler that knows no prefetch, nothing is mended: the loop is slower, and as right as before.
"""

from __future__ import annotations

import contextlib
from typing import Any
from unittest import mock

import torch
from torch._inductor.codegen import cpp

# How many values ahead: far enough for memory to answer, near enough to be still there. 256 to 1,024 are alike.
AHEAD = 512
LINE = 64

compiler: Any = cpp


def in_time() -> contextlib.ExitStack:
    """Have loops that are compiled in this context read ahead, in whole registers."""
    mended = contextlib.ExitStack()
    for owner, name, mend in (
        ("CppVecKernel", "_get_vec_load_line", ahead),
        ("TilingSelect", "select_tiling", in_whole_registers),
    ):
        method = getattr(getattr(compiler, owner, None), name, None)
        if method is not None:
            mended.enter_context(mock.patch.object(getattr(compiler, owner), name, mend(method)))
    return mended


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
