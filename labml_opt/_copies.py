"""
Copying many small tensors into one piece of memory, and back.

A call of torch costs half a microsecond before it copies anything; 500 gradients with 200 values each are copied in
less time than it takes to say so 500 times. So a step says it once, with a list of addresses, to a loop in C that goes
through the list. The compiler that makes the kernels makes it, too.

Where there is none, or on a GPU, torch copies.
"""

from __future__ import annotations

import array
import ctypes
import functools
from typing import Any

import torch
from torch import Tensor

SOURCE = """
#include <cstdint>
#include <cstring>

extern "C" void gather(char* flat, char* const* tensors, const int64_t* sizes, int64_t count) {
    for (int64_t i = 0; i < count; flat += sizes[i], i++) memcpy(flat, tensors[i], sizes[i]);
}

extern "C" void scatter(const char* flat, char* const* tensors, const int64_t* sizes, int64_t count) {
    for (int64_t i = 0; i < count; flat += sizes[i], i++) memcpy(tensors[i], flat, sizes[i]);
}
"""


@functools.cache
def loops() -> Any:
    """Return the two loops, or `None` where they can't be compiled."""
    try:
        from torch._inductor.codecache import CppCodeCache

        library = CppCodeCache.load(SOURCE)
        for loop in (library.gather, library.scatter):
            loop.argtypes, loop.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64), None
        return library
    except Exception:
        return None


def addresses(tensors: list[Tensor]) -> array.array[int]:
    """Return where the values of the tensors begin."""
    return array.array("q", [tensor.data_ptr() for tensor in tensors])


class Row:
    """Tensors whose values have places side by side in one piece of memory."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self.sizes = [tensor.numel() for tensor in tensors]
        self.bytes: dict[int, array.array[int]] = {}
        # A gradient with one value may be a view that says "the negative of this memory", which torch understands.
        self.single = [number for number, size in enumerate(self.sizes) if size == 1]

    def places(self, tensors: list[Tensor]) -> array.array[int] | None:
        """Return the addresses of tensors of these sizes, or `None` if their values don't simply lie there in order."""
        if False in {tensor.is_contiguous() for tensor in tensors}:
            return None
        if any(tensors[number].is_neg() for number in self.single):
            return None
        return addresses(tensors)

    def gather(self, flat: Tensor, tensors: list[Tensor], views: list[Tensor], places: Any, first: int) -> None:
        """
        Copy tensors into `flat`, one behind the other.

        * `views` are their parts of it, in their shapes
        * `places` are their addresses, as `places` above returns them
        * `first` is the number of the first of them in this row
        """
        if places is not None and flat.device.type == "cpu" and loops():
            self._run(loops().gather, flat, places, first)
        else:
            torch._foreach_copy_(views, tensors)

    def scatter(self, flat: Tensor, tensors: list[Tensor], views: list[Tensor], places: Any, first: int) -> None:
        """Copy `flat` out into the tensors; the arguments are those of `gather`."""
        if places is not None and flat.device.type == "cpu" and loops():
            self._run(loops().scatter, flat, places, first)
            torch.autograd.graph.increment_version(tensors)
        else:
            torch._foreach_copy_(tensors, views)

    def _run(self, loop: Any, flat: Tensor, places: array.array[int], first: int) -> None:
        width = flat.element_size()
        if width not in self.bytes:
            self.bytes[width] = array.array("q", [size * width for size in self.sizes])
        sizes = self.bytes[width]
        loop(flat.data_ptr(), places.buffer_info()[0], sizes.buffer_info()[0] + first * sizes.itemsize, len(places))
