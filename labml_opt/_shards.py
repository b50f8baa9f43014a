"""
Tensors of which each process holds a part.

`torch.distributed.fsdp.fully_shard` replaces parameters by `DTensor`s: to the program a tensor of the whole shape, in
memory the shard of this process. Arithmetic on them needs no word here. The three functions below are for the few
places that have to know, and they ask for the attribute, not for the class: a torch built without `distributed` has no
such class.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor


def own_shard(tensor: Tensor) -> Tensor:
    """Return what this process holds of `tensor`, in the same memory; for an ordinary tensor all of it."""
    return tensor.to_local() if is_distributed(tensor) else tensor  # type: ignore[attr-defined]


def everywhere(result: Tensor) -> Tensor:
    """Return a value computed from all shards, the same in every process; it waits for the others."""
    return result.full_tensor() if is_distributed(result) else result  # type: ignore[attr-defined]


def is_distributed(value: Any) -> bool:
    """Return whether each process holds a part of `value`, rather than the whole."""
    return hasattr(value, "to_local")
