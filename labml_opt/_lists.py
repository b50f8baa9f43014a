"""What a step asks of lists of tensors, in one question (`_native`); without a compiler, Python asks one by one."""

from __future__ import annotations

import array
import operator
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from labml_opt._native import loops


def addresses(tensors: list[Tensor]) -> array.array[int]:
    """Return where the values of the tensors begin."""
    if loops() is None:
        return array.array("q", [tensor.data_ptr() for tensor in tensors])
    places = array.array("q", bytes(8 * len(tensors)))
    loops().addresses(tensors, places.buffer_info()[0])
    return places


def same(collections: Sequence[Any], held: list[Any]) -> bool:
    """Return whether what these dictionaries and lists hold, one behind the other, are the very objects of `held`."""
    if loops() is None:
        now = [value for one in collections for value in (one.values() if isinstance(one, dict) else one)]
        return len(now) == len(held) and all(map(operator.is_, now, held))
    return bool(loops().same(collections, held))


class Likeness:
    """What tensors are: their class, dtype, device, shape, strides and kind of memory."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        self.count = len(tensors)
        self.guards: Any
        try:
            from torch._C._dynamo.guards import TensorGuards

            self.guards = TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
        except Exception:
            self.guards = None

    def has(self, tensors: list[Any]) -> bool:
        """Return whether other tensors are alike, one by one; `False` means that one has to look."""
        return self.guards is not None and len(tensors) == self.count and self.guards.check(*tensors)
