"""
What `torch.compile` is told about the updates of this package.

The bias corrections are numbers: two powers of a beta for a whole tensor. Left alone, the compiler would compute them
inside its loop, for every value anew, and the step would take twice as long. So what has no dimension is computed
before the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.inductor_prims import fma
from torch.overrides import TorchFunctionMode


class Hoist(CustomGraphPass):
    """Make the compiler finish what is one number before it starts with what is many."""

    def __call__(self, graph: torch.fx.Graph) -> None:
        """Put a fence behind every number that a tensor is computed from."""
        for node in list(graph.nodes):
            if node.op == "call_function" and dimensions(node) == 0:
                users = [user for user in node.users if (dimensions(user) or 0) > 0]
                if users:
                    # A view of memory needs memory: the compiler writes the number down.
                    with graph.inserting_after(node):
                        fence = graph.call_function(torch.ops.aten.as_strided.default, (node, [], []))
                        fence.meta["val"] = node.meta["val"]
                    for user in users:
                        user.replace_input_with(node, fence)

    def uuid(self) -> Any:
        """Name this pass in the compiler's cache; another number for another pass."""
        return b"labml_opt.hoist.2"


class ToTheBit(TorchFunctionMode):
    """
    Make the compiler round as torch's own loops do.

    torch multiplies and adds with one rounding where the processor can, the compiler with two; and where torch
    multiplies before it divides, the compiler divides first. The functions concerned are written out below. Everything
    else that optimizers are made of is rounded alike, except the root: where torch has MKL it takes the root with it,
    and in one of 170 values MKL's is the neighbour of the nearest number, which is the compiler's.
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace what is in `AS_TORCH_ROUNDS`, and call everything else."""
        kwargs = kwargs or {}
        if function in AS_TORCH_ROUNDS and args[0].dim():
            return AS_TORCH_ROUNDS[function](*args, **kwargs)
        if function in IN_PLACE and args[0].dim():
            return args[0].copy_(IN_PLACE[function](*args, **kwargs))
        return function(*args, **kwargs)


def multiply_add(one: Tensor, other: Tensor, third: Tensor) -> Tensor:
    """Return `one * other + third`, rounded once where the processor can."""
    result: Tensor = fma(one, other, third)
    return result


def lerp(start: Tensor, end: Tensor, weight: float) -> Tensor:
    """Return `start.lerp(end, weight)`; from a weight of one half on torch starts at the other end."""
    if abs(weight) < 0.5:
        return multiply_add(torch.full_like(start, weight), end - start, start)
    # torch takes the 1 from the weight as the tensors' format has it: rounded to 24 bits before, not after.
    if start.dtype is torch.float32:
        large = weight * (2**29 + 1)
        weight = large - (large - weight)
    return multiply_add(torch.full_like(start, weight - 1), end - start, end)


def addcmul(tensor: Tensor, one: Tensor, other: Tensor, *, value: float = 1) -> Tensor:
    """Return `tensor.addcmul(one, other, value=value)`."""
    return multiply_add(one * value, other, tensor)


def addcdiv(tensor: Tensor, one: Tensor, other: Tensor, *, value: float = 1) -> Tensor:
    """Return `tensor.addcdiv(one, other, value=value)`."""
    return torch.add(tensor, one * value / other)


def add(tensor: Tensor, other: Any, *, alpha: float = 1) -> Tensor:
    """Return `tensor.add(other, alpha=alpha)`."""
    if alpha == 1:
        return torch.add(tensor, other)
    many = other if isinstance(other, Tensor) else torch.full_like(tensor, other)
    return multiply_add(many, torch.full_like(tensor, alpha), tensor)


def sub(tensor: Tensor, other: Any, *, alpha: float = 1) -> Tensor:
    """Return `tensor.sub(other, alpha=alpha)`."""
    return torch.sub(tensor, other) if alpha == 1 else add(tensor, other, alpha=-alpha)


AS_TORCH_ROUNDS: dict[Any, Callable[..., Tensor]] = {
    torch.Tensor.lerp: lerp,
    torch.Tensor.addcmul: addcmul,
    torch.Tensor.addcdiv: addcdiv,
    torch.Tensor.add: add,
    torch.Tensor.sub: sub,
}
IN_PLACE: dict[Any, Callable[..., Tensor]] = {
    torch.Tensor.lerp_: lerp,
    torch.Tensor.addcmul_: addcmul,
    torch.Tensor.addcdiv_: addcdiv,
    torch.Tensor.add_: add,
    torch.Tensor.sub_: sub,
}


def dimensions(node: torch.fx.Node) -> int | None:
    """Return the number of dimensions of what a node computes, or `None` if that is no tensor."""
    value = node.meta.get("val")
    return value.dim() if isinstance(value, Tensor) else None


# `emulate_precision_casts` keeps a rounding to 16 bits that is undone at once. The look for weights changed from
# outside consists of one: without it every weight would look changed.
HOW: dict[str, Any] = {"post_grad_custom_post_pass": Hoist(), "emulate_precision_casts": True}
