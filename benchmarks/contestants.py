"""What is timed: our optimizers, torch's and those of other packages, on the same weights and gradients.

Each has a key, `ours-fast/float16` for one, which says who it is and in which dtype the parameters are. Those that need
a package which isn't here say so in a sentence and are left out.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import math
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from typing import Any

import torch
from torch import Tensor

import labml_opt
from benchmarks.ancestor import AncestorAdamFP16

FP32, FP16, BF16 = "float32", "float16", "bfloat16"
DTYPES = {FP32: torch.float32, FP16: torch.float16, BF16: torch.bfloat16}

FAST: dict[str, Any] = {"fast": True}

STREAM = "stream/float32"
REFERENCE = "torch-fused/float32"
FLOOR_BYTES, STREAM_BYTES = 28, 12
"""What Adam has to move for a value, and what `a.add_(b)` moves: reading a and b, writing a."""

Params = list[Tensor]


class MissingError(Exception):
    """A contestant can't take part, for the reason given."""


@dataclass(frozen=True)
class Contestant:
    """Who takes part: how its optimizer is made, of which packages, for which dtypes."""

    who: str
    name: str
    build: Callable[..., Any]
    dtypes: tuple[str, ...]
    package: str = "torch"
    masters: bool = False
    """Whether it keeps FP32 weights, or all of their bits, for parameters of 16 bits."""


def _torch(**how: Any) -> Callable[[Params], Any]:
    return lambda params: torch.optim.Adam(params, lr=1e-3, **how)


def _ours(name: str, **options: Any) -> Callable[..., Any]:
    return lambda params, **more: getattr(labml_opt, name)(params, lr=1e-3, **options, **more)


def _optimi(params: Params) -> Any:
    import optimi

    return optimi.Adam(params, lr=1e-3)


def _pytorch_optimizer(params: Params) -> Any:
    import pytorch_optimizer

    return pytorch_optimizer.StableAdamW(params, lr=1e-3, weight_decay=0.0)


def _torchao(params: Params) -> Any:
    import torchao.optim

    # It compiles once for each shape of a parameter and would give up after a few; a benchmark has more shapes.
    torch._dynamo.config.recompile_limit = 10_000
    return torchao.optim._AdamW(params, lr=1e-3, weight_decay=0.0)


def _schedulefree(params: Params) -> Any:
    import schedulefree

    optimizer = schedulefree.AdamWScheduleFree(params, lr=1e-3)
    optimizer.train()
    return optimizer


ALL, HALVES = (FP32, FP16, BF16), (FP16, BF16)
CONTESTANTS = {
    f"{contestant.who}/{dtype}": contestant
    for contestant in (
        Contestant("torch-loop", "torch.optim.Adam(foreach=False)", _torch(foreach=False, fused=False), ALL),
        Contestant("torch-foreach", "torch.optim.Adam(foreach=True)", _torch(foreach=True), ALL),
        Contestant("torch-fused", "torch.optim.Adam(fused=True)", _torch(fused=True), ALL),
        Contestant("optimi", "optimi.Adam", _optimi, ALL, "optimi"),
        Contestant("pytorch-optimizer", "pytorch_optimizer.StableAdamW", _pytorch_optimizer, ALL, "pytorch_optimizer"),
        Contestant("torchao", "torchao.optim._AdamW", _torchao, ALL, "torchao"),
        Contestant("schedulefree", "schedulefree.AdamWScheduleFree", _schedulefree, ALL, "schedulefree"),
        Contestant("ancestor", "labml_nn AdamFP16", AncestorAdamFP16, (FP16,), masters=True),
        Contestant("ours", "Adam", _ours("Adam"), (FP32,)),
        Contestant("ours-fast", "Adam(fast=True)", _ours("Adam", **FAST), (FP32,)),
        Contestant("ours", "AdamFP16", _ours("AdamFP16"), HALVES, masters=True),
        Contestant("ours-fast", "AdamFP16(fast=True)", _ours("AdamFP16", **FAST), HALVES, masters=True),
        Contestant(
            "ours-unchecked",
            "AdamFP16(fast=True, check_weights=False)",
            _ours("AdamFP16", **FAST, check_weights=False),
            HALVES,
            masters=True,
        ),
        Contestant(
            "ours-split",
            "AdamFP16(fast=True, split_master=True)",
            _ours("AdamFP16", **FAST, split_master=True),
            (BF16,),
            masters=True,
        ),
    )
    for dtype in contestant.dtypes
}


def why_missing(key: str) -> str:
    """Say why a contestant can't take part here, or nothing if it can."""
    if key == STREAM:
        return ""
    contestant = CONTESTANTS[key]
    if importlib.util.find_spec(contestant.package) is None:
        return f"{contestant.name}: the package {contestant.package} is not installed"
    return ""


def quiet(package: str) -> None:
    """Import a package without the log that it writes; what it needs of a GPU is none of our business."""
    with warnings.catch_warnings(), redirect_stderr(StringIO()):
        warnings.simplefilter("ignore")
        level = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            importlib.import_module(package)
        finally:
            logging.disable(level)


@lru_cache(maxsize=1)
def values_of(values: int) -> tuple[Tensor, Tensor]:
    """Return weights and gradients to copy from; of the size of those of a network, so that nothing is denormal."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.empty(values).uniform_(-0.1, 0.1, generator=generator)
    return weights, torch.empty(values).uniform_(-0.01, 0.01, generator=generator)


def parameters(values: int, tensors: int, dtype: str) -> tuple[Params, Params]:
    """Return so many values in so many parameters of one size, and gradients for them."""
    if values % tensors:
        raise ValueError(f"{values} values can't be spread evenly over {tensors} tensors")
    weights, grads = (
        [part.to(DTYPES[dtype], copy=True) for part in whole.chunk(tensors)] for whole in values_of(values)
    )
    return [weight.requires_grad_() for weight in weights], grads


class Stepping:
    """An optimizer that steps: nothing but `optimizer.step()`."""

    def __init__(self, key: str, values: int, tensors: int, **more: Any) -> None:
        if reason := why_missing(key):
            raise MissingError(reason)
        contestant = CONTESTANTS[key]
        quiet(contestant.package)
        self.params, self.grads = parameters(values, tensors, key.partition("/")[2])
        self.optimizer = contestant.build(self.params, **more)
        self.put_grads()

    def put_grads(self) -> None:
        """Give every parameter its gradient."""
        for param, grad in zip(self.params, self.grads, strict=True):
            param.grad = grad

    def prepare(self) -> None:
        """Nothing to do: the gradients stay."""

    def run(self) -> None:
        """Take a step."""
        self.optimizer.step()


class Iterating(Stepping):
    """What a training loop does after the backward pass: scale, unscale, clip, step, update.

    The scale is 1 and the norm that is clipped to infinite: the same passes over memory, and gradients that stay what
    they are from one iteration to the next.
    """

    def __init__(self, key: str, values: int, tensors: int, *, unscale: bool, clip: bool) -> None:
        ours = key.startswith("ours")
        super().__init__(key, values, tensors, **({"unscale_in_step": True} if ours and not unscale else {}))
        self.unscale, self.clip = unscale, clip
        scaler: Any = labml_opt.GradScalerFP16 if ours else torch.amp.GradScaler
        self.scaler = scaler("cpu", init_scale=1.0, growth_interval=10**9)
        self.loss = torch.ones(())

    def prepare(self) -> None:
        """Put the gradients back: `GradScalerFP16` takes those away that it has unscaled."""
        self.put_grads()

    def run(self) -> None:
        """Do all but the forward and the backward pass."""
        self.scaler.scale(self.loss)
        if self.unscale:
            self.scaler.unscale_(self.optimizer)
        if self.clip:
            torch.nn.utils.clip_grad_norm_(self.params, math.inf)
        self.scaler.step(self.optimizer)
        self.scaler.update()


class Streaming:
    """The machine's memory: `a.add_(b)` over as many FP32 values, which reads two numbers and writes one."""

    def __init__(self, values: int, tensors: int) -> None:
        self.a, self.b = parameters(values, tensors, FP32)
        for a in self.a:
            a.requires_grad_(False)

    def prepare(self) -> None:
        """Nothing to do."""

    def run(self) -> None:
        """Add."""
        for a, b in zip(self.a, self.b, strict=True):
            a.add_(b)


def make(side: dict[str, Any], values: int, tensors: int) -> Stepping | Streaming:
    """Make a side of a pair from its description: a key, and the passes of an iteration if it is one."""
    if side["key"] == STREAM:
        return Streaming(values, tensors)
    if "unscale" in side:
        return Iterating(side["key"], values, tensors, unscale=side["unscale"], clip=side["clip"])
    return Stepping(side["key"], values, tensors)
