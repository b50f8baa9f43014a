"""
A kernel over many pieces of memory, in one call.

The compiler hands out a function of Python that takes tensors. Behind it is a function of C++ that takes addresses and
a size, and does nothing but loop. Called directly, from a loop in C++ (`_native`), it goes from one parameter to the
next in the time of a few values: weights and gradients stay where they are, and nothing is copied.

The pieces are shared out among the threads here. A kernel's own threads would have to begin and end with each piece.
"""

from __future__ import annotations

import array
import ctypes
import functools
import itertools
import types
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from labml_opt._native import MOST, loops

# Fewer values than this are done by one thread before a second has begun.
WORTH_THREADS = 2**15

NUMBER, ROW, APART = range(3)
# What an argument is, where it is, and how many bytes a value has.
Place = tuple[int, int, int]


def place_of(tensor: Tensor | None) -> Place:
    """
    Return where a tensor is.

    * Without dimensions it is a number, which all pieces take as it is before the first one
    * Else it holds values that lie side by side, and each piece takes its part
    """
    if tensor is None:
        return NUMBER, 0, 0
    return ROW if tensor.dim() else NUMBER, tensor.data_ptr(), tensor.element_size()


def apart(addresses: array.array[int], width: int) -> Place:
    """Return the place of tensors that lie anywhere, one for each piece, with `width` bytes a value."""
    return APART, addresses.buffer_info()[0], width


class Pieces:
    """
    The function behind a kernel, and where its arguments come from.

    * `function` takes addresses and a size
    * `order` says for each address which of the kernel's arguments it is
    * `scratch` are numbers that the kernel computes for itself, counted on from the arguments
    """

    def __init__(self, function: Any, order: list[int], scratch: list[Tensor]) -> None:
        self.function, self.order, self.scratch = function, order, scratch
        self.address = ctypes.cast(function, ctypes.c_void_p)
        self.places = list(map(place_of, scratch))

    def over(self, places: list[Place], begins: array.array[int], part: slice, held: Any = None) -> Callable[[], None]:
        """
        Return the call that takes the step for some pieces.

        * `places` are those of the kernel's arguments
        * `begins` says where in the rows each piece begins, and where the last one ends
        * `part` are the pieces, and what lies apart has addresses for no others
        * `held` has to stay in memory until then
        """
        known = places + self.places
        table = array.array("q", itertools.chain.from_iterable(known[number] for number in self.order))
        return functools.partial(self._run, table, begins, part, held)

    def _run(self, table: array.array[int], begins: array.array[int], part: slice, held: Any) -> None:
        loops().over_pieces(
            self.address,
            len(self.order),
            table.buffer_info()[0],
            begins.buffer_info()[0] + part.start * begins.itemsize,
            part.stop - part.start,
            torch.get_num_threads() if begins[part.stop] - begins[part.start] >= WORTH_THREADS else 1,
        )


def pieces_of(compiled: Any, arguments: list[Any]) -> Pieces | None:
    """
    Return what is behind a compiled function, or `None` if it is something else than one loop over its arguments.

    * `compiled` is what the compiler handed out
    * `arguments` are some to call it with; `None` stands for one that the kernel doesn't have
    """
    scope = getattr(compiled, "__globals__", {})
    behind = {
        name: value
        for name, value in scope.items()
        if isinstance(value, types.BuiltinFunctionType) and value.__name__ == "kernel"
    }
    if loops() is None or len(behind) != 1:
        return None
    # It is called with something in the place of the loop that notes what the loop would have been called with.
    noted: list[Any] = []
    with mock.patch.dict(scope, {name: lambda *given: noted.append(given) for name in behind}):
        compiled([argument for argument in arguments if argument is not None])
    length = max(argument.numel() for argument in arguments if argument is not None)
    tensors = noted[0][:-1] if noted else ()
    if len(noted) != 1 or noted[0][-1] != length or len(tensors) > MOST:
        return None
    if not all(isinstance(tensor, Tensor) for tensor in tensors):
        return None
    known = [argument is not None and likeness(argument) for argument in arguments]
    order: list[int] = []
    scratch: list[Tensor] = []
    for tensor in tensors:
        if likeness(tensor) not in known:
            # Memory in between is memory for one number, or else it would have to grow with the pieces.
            if tensor.numel() != 1:
                return None
            known.append(likeness(tensor))
            scratch.append(tensor.reshape(()))
        order.append(known.index(likeness(tensor)))
    (function,) = behind.values()
    return Pieces(ctypes.CDLL(function.__self__.__file__).kernel, order, scratch)  # type: ignore[attr-defined]


def likeness(tensor: Tensor) -> tuple[int, int, int]:
    """Return what makes a tensor the same piece of memory as another."""
    return tensor.data_ptr(), tensor.numel(), tensor.element_size()
