"""Bytes that training a parameter takes beyond the parameter and its gradient, counted on the tensors that are there.

Not on the optimizer's state alone: a buffer that it keeps elsewhere counts as well. So all tensors that Python knows
are looked at, before and after, and each piece of memory is counted once.
"""

from __future__ import annotations

import gc

import torch

from benchmarks.contestants import Iterating, values_of


def held() -> int:
    """Return the bytes that all tensors of this process hold on the CPU."""
    gc.collect()
    pieces = {}
    tensors = [thing for thing in gc.get_objects() if type(thing) in (torch.Tensor, torch.nn.Parameter)]
    for thing in tensors:
        if thing.device.type == "cpu" and thing.layout is torch.strided:  # a sparse one has no memory of its own
            storage = thing.untyped_storage()
            pieces[storage.data_ptr()] = storage.nbytes()
    return sum(pieces.values())


def bytes_per_value(key: str, values: int, tensors: int, unscale: bool) -> dict[str, float]:
    """Return the bytes a value takes after a step, and between `unscale_` and the next step."""
    values_of(values)  # what is copied from is made before the counting begins
    before = held()
    iterating = Iterating(key, values, tensors, unscale=unscale, clip=False)
    own = sum(tensor.nbytes for tensor in (*iterating.params, *iterating.grads))
    for _ in range(2):
        iterating.prepare()
        iterating.run()
    at_rest = held() - before - own
    iterating.prepare()
    if unscale:
        iterating.scaler.scale(iterating.loss)
        iterating.scaler.unscale_(iterating.optimizer)
        # The gradients in 16 bits are still in our list; in a training loop nobody would hold them.
        halves = sum(grad.nbytes for grad in iterating.grads if grad.dtype != torch.float32)
        gone = halves if iterating.params[0].grad is not iterating.grads[0] else 0
        between = held() - before - own - gone
    else:
        between = at_rest
    return {"at_rest": at_rest / values, "after_unscale": between / values}
