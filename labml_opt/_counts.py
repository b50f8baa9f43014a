"""
Numbers that may live on the device.

With `capturable=False` a step count is a Python number. With `capturable=True` it is a tensor on the parameters'
device, and what is computed from it, a bias correction or a rate, must not be read back to the host. The functions
here take both, so that a formula is written once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


def as_count(value: Any, capturable: bool, device: torch.device | None) -> Any:
    """Return the step count `value` as a Python number, or as an FP32 tensor on `device` if it is `capturable`."""
    if not capturable:
        return int(value)
    if isinstance(value, Tensor):
        return value.to(dtype=torch.float32, device=device)
    return torch.full((), float(value), dtype=torch.float32, device=device)


def in_float64(value: Any) -> Any:
    """
    Return a number that can be raised to powers without loss.

    A Python number is 64 bits wide already. A count on the device is FP32, where `1 - 0.999**t` is wrong in the fifth
    digit, so it is widened wherever the device has float64. Apple's GPUs are the ones that haven't.
    """
    if isinstance(value, Tensor) and value.device.type != "mps":
        return value.double()
    return value


def at_most(value: Any, bound: Any) -> Any:
    """Return the smaller of the two, for numbers or a tensor and what bounds it."""
    return value.clamp(max=bound) if isinstance(value, Tensor) else min(value, bound)


def at_least(value: Any, bound: float) -> Any:
    """Return the larger of the two, for a number or a tensor."""
    return value.clamp(min=bound) if isinstance(value, Tensor) else max(value, bound)


def where(condition: Any, then: Any, otherwise: Any) -> Any:
    """Return one of the two: chosen by the host if the condition is a bool, on the device if it is a tensor."""
    if isinstance(condition, Tensor):
        return torch.where(condition, then, otherwise)
    return then if condition else otherwise


def cosine(value: Any) -> Any:
    """Return the cosine, for a number or a tensor."""
    return value.cos() if isinstance(value, Tensor) else math.cos(value)


def addcdiv_(tensor: Tensor, numerator: Tensor, denominator: Tensor, *, value: Any) -> Tensor:
    """
    Add `value * numerator / denominator` to `tensor`, in place: `tensor.addcdiv_`, which takes numbers alone.

    * `value` is a number, or a tensor with one value and no dimension; both round alike

    Returns `tensor`.
    """
    if isinstance(value, Tensor):
        return tensor.addcdiv_(numerator * value, denominator)
    return tensor.addcdiv_(numerator, denominator, value=value)


@contextmanager
def unchanged_where(skip: Any, tensors: Sequence[Tensor]) -> Iterator[None]:
    """
    Undo, without asking the host, what happens to `tensors` in this block if `skip` is not 0.

    * `skip` is `None` (nothing is undone, nothing is copied), a number, or a tensor with one value
    """
    if skip is None:
        yield
        return
    before = [tensor.clone() for tensor in tensors]
    yield
    for tensor, old in zip(tensors, before, strict=True):
        tensor.copy_(torch.where(torch.as_tensor(skip, device=tensor.device) != 0, old, tensor))
