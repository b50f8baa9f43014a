"""The fast path against the readable one, for every optimizer of the package: the same steps, side by side."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

import labml_opt
from benchmarks.contestants import DTYPES, FAST, FP32

SIZES = ((600, 500), (1000,), (7,), (1,))
"""One parameter that is large enough for a block of its own, and small ones that share one."""
STEPS = 100
EVERY = 10
"""Sophia looks at the curvature every so many steps."""
SCHEDULE = {"warmup": 10, "total_steps": 200, "d_model": 64}
SETTINGS = (
    {"weight_decay": 0.01},
    {"weight_decay": labml_opt.WeightDecay(0.01, weight_decouple=False), "optimized_update": False},
)
"""Between them both decays, and both orders of operations."""
HALVES = ("float16", "bfloat16")


def classes() -> dict[str, tuple[type, str]]:
    """Return every optimizer of the package in FP32, and each with master weights in both halves.

    Where the package has no class with master weights it is made here, as a reader would make it.
    """
    found: dict[str, tuple[type, str]] = {}
    for name in labml_opt.__all__:
        thing: Any = getattr(labml_opt, name)
        if not (isinstance(thing, type) and issubclass(thing, labml_opt.GenericAdaptiveOptimizer)):
            continue
        if thing is labml_opt.GenericAdaptiveOptimizer or issubclass(thing, labml_opt.MasterWeights):
            continue
        found[f"{name}/{FP32}"] = (thing, FP32)
        with_masters = f"{name}FP16"
        made = getattr(labml_opt, with_masters, None) or type(with_masters, (labml_opt.MasterWeights, thing), {})
        found |= {f"{with_masters}/{dtype}": (made, dtype) for dtype in HALVES}
    return found


def differences(name: str, steps: int = STEPS) -> dict[str, float]:
    """Train twice from the same weights with the same gradients, and say how far the results are apart.

    What is FP32 is the whole state and, if they are, the weights.

    * `state`: the largest difference in FP32, relative to the number itself or to the mean size of its tensor,
      whichever is larger. A weight that passes 0 is much smaller than what it was made of, and so than the roundings
      in it
    * `unequal`: how many values in FP32 differ at all, of `numbers`
    * `params`: how many parameters of 16 bits differ at all, of `values`
    """
    class_, dtype = classes()[name]
    apart, found = [0.0], {"unequal": 0.0, "numbers": 0.0, "params": 0.0, "values": 0.0}
    for settings in SETTINGS:
        (params, state), (fast_params, fast_state) = (
            _train(class_, dtype, steps, {**SCHEDULE, **settings}, options) for options in ({}, FAST)
        )
        if dtype == FP32:
            state, fast_state = [*state, *params], [*fast_state, *fast_params]
        else:
            found["params"] += _unequal(params, fast_params)
        apart += [_relative(a, b) for a, b in zip(state, fast_state, strict=True)]
        found["unequal"] += _unequal(state, fast_state)
        found["numbers"] += sum(tensor.numel() for tensor in state)
        found["values"] += sum(param.numel() for param in params)
    return {"state": max(apart), **found}


def _unequal(some: list[Tensor], others: list[Tensor]) -> int:
    return sum(int((a != b).sum()) for a, b in zip(some, others, strict=True))


def _relative(a: Tensor, b: Tensor) -> float:
    a, b = a.double(), b.double()
    size = torch.maximum(a.abs(), a.abs().mean()).clamp_min(torch.finfo(torch.float64).tiny)
    return float(((a - b).abs() / size).max())


def _train(
    class_: Any, dtype: str, steps: int, settings: dict[str, Any], options: dict[str, Any]
) -> tuple[list[Tensor], list[Tensor]]:
    generator = torch.Generator().manual_seed(0)
    params = [torch.randn(size, generator=generator).mul(0.1).to(DTYPES[dtype]).requires_grad_() for size in SIZES]
    known = inspect.signature(class_).parameters
    settings = {name: value for name, value in settings.items() if name in known}
    optimizer = class_(params, lr=1e-3, **settings, **options)
    for step in range(steps):
        grads = [torch.randn(param.shape, generator=generator).mul(0.01) for param in params]
        # The curvature is looked at in FP32, whatever the parameters are.
        if hasattr(optimizer, "update_hessian") and step % EVERY == 0:
            for param, grad in zip(params, grads, strict=True):
                param.grad, param.grad_dtype = None, None
                param.grad = grad
            optimizer.update_hessian(100)
        for param, grad in zip(params, grads, strict=True):
            param.grad = grad.to(param.dtype)
        optimizer.step()
    state = [
        value.detach().clone()
        for param in params
        for _, value in sorted(optimizer.state[param].items())
        if isinstance(value, Tensor) and value.is_floating_point()
    ]
    return [param.detach().clone() for param in params], state
