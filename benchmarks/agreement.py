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
SCHEDULE = {"warmup": 10, "total_steps": 200, "d_model": 64, "weight_decay": 0.01}


def classes() -> dict[str, tuple[type, str]]:
    """Return every optimizer of the package with the dtype it is tried in, and those with masters in both halves."""
    found: dict[str, tuple[type, str]] = {}
    for name in labml_opt.__all__:
        thing: Any = getattr(labml_opt, name)
        if not (isinstance(thing, type) and issubclass(thing, labml_opt.GenericAdaptiveOptimizer)):
            continue
        if thing in (labml_opt.GenericAdaptiveOptimizer, labml_opt.MasterWeights):
            continue
        halves = issubclass(thing, labml_opt.MasterWeights)
        for dtype in ("float16", "bfloat16") if halves else (FP32,):
            found[f"{name}/{dtype}"] = (thing, dtype)
    return found


def differences(name: str, steps: int = STEPS) -> dict[str, float]:
    """Train twice from the same weights with the same gradients, and say how far the results are apart.

    * `state`: the largest difference in the FP32 state and FP32 weights, each relative to the number itself or to the
      mean size of its tensor, whichever is larger
    * `params`: how many parameters of 16 bits differ at all, of `values`
    """
    class_, dtype = classes()[name]
    runs = [_train(class_, dtype, steps, options) for options in ({}, FAST)]
    (params, state), (fast_params, fast_state) = runs
    if dtype == FP32:
        state, fast_state = [*state, *params], [*fast_state, *fast_params]
    apart = max(_relative(a, b) for a, b in zip(state, fast_state, strict=True))
    halves = 0 if dtype == FP32 else sum(int((a != b).sum()) for a, b in zip(params, fast_params, strict=True))
    return {"state": apart, "params": float(halves), "values": float(sum(param.numel() for param in params))}


def _relative(a: Tensor, b: Tensor) -> float:
    a, b = a.double(), b.double()
    size = torch.maximum(a.abs(), a.abs().mean()).clamp_min(torch.finfo(torch.float64).tiny)
    return float(((a - b).abs() / size).max())


def _train(class_: Any, dtype: str, steps: int, options: dict[str, Any]) -> tuple[list[Tensor], list[Tensor]]:
    generator = torch.Generator().manual_seed(0)
    params = [torch.randn(size, generator=generator).mul(0.1).to(DTYPES[dtype]).requires_grad_() for size in SIZES]
    known = {name for base in class_.__mro__ for name in inspect.signature(base.__init__).parameters}
    settings = {name: value for name, value in SCHEDULE.items() if name in known}
    optimizer = class_(params, lr=1e-3, **settings, **options)
    for step in range(steps):
        for param in params:
            param.grad = torch.randn(param.shape, generator=generator).mul(0.01).to(param.dtype)
        if hasattr(optimizer, "update_hessian") and step % EVERY == 0:
            optimizer.update_hessian(100)
        optimizer.step()
    state = [
        value.detach().clone()
        for param in params
        for _, value in sorted(optimizer.state[param].items())
        if isinstance(value, Tensor) and value.is_floating_point()
    ]
    return [param.detach().clone() for param in params], state
