"""
The optimizers as PyTorch's own tests describe one: an `OptimizerInfo` for each class, with inputs and error inputs.

An input is a set of keyword arguments that have to work. An error input is one that has to be refused, in these words.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from stepping import AdaBeliefFP16, AMSGradFP16, NoamFP16, RAdamFP16
from torch.nn import Parameter
from torch.optim.lr_scheduler import ExponentialLR, LinearLR, ReduceLROnPlateau, StepLR
from torchs_database import (
    ErrorOptimizerInput,
    OptimizerErrorEnum,
    OptimizerInfo,
    OptimizerInput,
    get_error_inputs_for_all_optims,
)

from labml_opt import (
    AdaBelief,
    Adam,
    AdamFP16,
    AdamWarmup,
    AdamWarmupCosineDecay,
    AdamWarmupCosineDecayFP16,
    AMSGrad,
    GenericAdaptiveOptimizer,
    MasterWeights,
    Noam,
    RAdam,
    Sophia,
    WeightDecay,
)

Settings = dict[str, Any]


class AdamWarmupFP16(MasterWeights, AdamWarmup):
    """What a reader writes to give the warm-up master weights."""


class SophiaFP16(MasterWeights, Sophia):
    """The same for Sophia."""


def tensors(*values: float) -> tuple[torch.Tensor, ...]:
    """Each number as a tensor of its own."""
    return tuple(torch.tensor(value) for value in values)


def settings_of_all() -> dict[str, Settings]:
    """What every class takes; tensors are made anew each time."""
    return {
        "default": {},
        "another rate, absolute decay": {"lr": 0.01, "weight_decay": WeightDecay(1e-4, absolute=True)},
        "coupled decay": {"weight_decay": WeightDecay(0.1, weight_decouple=False)},
        "maximize, decay": {"maximize": True, "weight_decay": 0.1},
        "rate in a tensor": {"lr": torch.tensor(0.001)},
        "capturable, decay": {"capturable": True, "weight_decay": 0.1},
        "capturable, maximize, rate and betas in tensors": {
            "capturable": True,
            "maximize": True,
            "lr": torch.tensor(0.001),
            "betas": tensors(0.9, 0.99),
            "unscale_in_step": True,
        },
    }


def paper_form() -> dict[str, Settings]:
    """The other order of operations."""
    return {"the paper's order": {"optimized_update": False, "eps": 1e-8}}


def maximum() -> dict[str, Settings]:
    """The maximum of AMSGrad, on where it is off by default."""
    return {"amsgrad, decay": {"amsgrad": True, "weight_decay": 0.1}}


def warm_up() -> dict[str, Settings]:
    """A short warm-up."""
    return {"warm-up": {"warmup": 3}, "capturable warm-up": {"warmup": 3, "capturable": True}}


Maker = Callable[[], dict[str, Settings]]
EXTRA: dict[type[GenericAdaptiveOptimizer], tuple[Maker, ...]] = {
    Adam: (paper_form,),
    AMSGrad: (paper_form, lambda: {"without the maximum": {"amsgrad": False}}),
    AdamWarmup: (maximum, warm_up),
    Noam: (warm_up, lambda: {"narrow model": {"d_model": 4, "warmup": 2}}),
    AdamWarmupCosineDecay: (maximum, warm_up, lambda: {"cosine": {"warmup": 2, "total_steps": 5}}),
    RAdam: (paper_form, maximum, lambda: {"rests": {"degenerated_to_sgd": False, "betas": (0.9, 0.9)}}),
    AdaBelief: (maximum, lambda: {"without rectification": {"rectify": False}}),
    Sophia: (lambda: {"large share": {"rho": 0.5}},),
}
"""What a class takes beside that."""

OUT_OF_RANGE: dict[str, tuple[Any, ...]] = {
    "lr": (-1.0, float("inf"), float("nan")),
    "betas": ((1.0, 0.9), (0.9, -0.1), (0.9, float("nan"))),
    "eps": (-1.0, float("nan")),
    "weight_decay": (-0.1, float("nan")),
    "warmup": (-1, float("inf")),
    "total_steps": (0, float("nan")),
    "d_model": (0, -1, float("inf")),
    "rho": (0.0, -0.1, float("inf")),
}
NO_NUMBER: dict[str, Any] = {
    "lr": "0.1",
    "betas": 0.9,
    "eps": None,
    "weight_decay": "0.1",
    "warmup": "3",
    "total_steps": None,
    "d_model": [512],
    "rho": "0.04",
}
WORDS = {"lr": "lr must be", "betas": "betas", "weight_decay": "weight_decay must be"}
"""With which words an argument is refused; most often with its name."""


def base_of(cls: type) -> type[GenericAdaptiveOptimizer]:
    """The class of the package whose rule `cls` follows."""
    return next(base for base in cls.__mro__ if base in EXTRA)


def inputs_of(cls: type[GenericAdaptiveOptimizer]) -> Callable[..., list[OptimizerInput]]:
    """What PyTorch calls an `optim_inputs_func`."""

    def inputs(device: Any, dtype: torch.dtype | None = None) -> list[OptimizerInput]:
        makers = (settings_of_all, *EXTRA[base_of(cls)])
        return [
            OptimizerInput(params=None, kwargs=kwargs, desc=desc) for make in makers for desc, kwargs in make().items()
        ]

    return inputs


def refused(desc: str, error: type[Exception], words: str, params: Any = None, **kwargs: Any) -> ErrorOptimizerInput:
    """An input that the constructor has to refuse."""
    params = [Parameter(torch.ones(1, 1))] if params is None else params
    return ErrorOptimizerInput(OptimizerInput(params, kwargs, desc), error_type=error, error_regex=words)


def refused_by_step(desc: str, error: type[Exception], words: str, params: Any, **kwargs: Any) -> ErrorOptimizerInput:
    """An input that the first step has to refuse."""
    return ErrorOptimizerInput(
        OptimizerInput(params, kwargs, desc),
        error_on=OptimizerErrorEnum.STEP_ERROR,
        error_type=error,
        error_regex=words,
    )


def with_gradient(param: Parameter, gradient: torch.Tensor) -> Parameter:
    """The parameter, with that gradient."""
    param.grad = gradient
    return param


def errors_of(cls: type[GenericAdaptiveOptimizer]) -> Callable[..., list[ErrorOptimizerInput]]:
    """What PyTorch calls an `optim_error_inputs_func`: its own list for all optimizers, and ours."""

    def errors(device: Any, dtype: torch.dtype) -> list[ErrorOptimizerInput]:
        takes = cls([Parameter(torch.ones(1))]).defaults.keys()
        param = Parameter(torch.ones(2, 3, dtype=dtype))
        meta = Parameter(torch.ones(2, device="meta", dtype=dtype))
        found = [e for e in get_error_inputs_for_all_optims("cpu", dtype) if "1-element" not in e.error_regex]
        found += [
            refused("a rate of two values", ValueError, "lr as a tensor must hold one value", lr=torch.ones(2)),
            refused("no parameter", ValueError, "empty parameter list", params=[]),
            refused("no tensor", TypeError, "optimizer can only optimize Tensors", params=[1.0]),
            refused("no leaf", ValueError, "can't optimize a non-leaf Tensor", params=[param * 2]),
            refused(
                "whole numbers", TypeError, "parameter 0 of the group is torch.int64", params=[torch.ones(1).long()]
            ),
            refused("one beta", TypeError, r"betas must be two numbers", betas=(0.9,)),
            refused_by_step(
                "sparse gradient",
                RuntimeError,
                "parameter 0 of group 0, shape .2, 3., has a sparse gradient",
                [with_gradient(copy.deepcopy(param), torch.ones(2, 3, dtype=dtype).to_sparse())],
            ),
            refused_by_step(
                "no values",
                RuntimeError,
                "parameter 1 of group 0, shape .2,., is on the meta device",
                [param, with_gradient(meta, torch.ones(2, device="meta", dtype=dtype))],
            ),
            refused_by_step("two devices", ValueError, "on cpu and meta", [param, meta], capturable=True),
        ]
        for option in ("foreach", "fused", "differentiable"):
            found.append(refused(option, TypeError, option, **{option: True}))
        for name in OUT_OF_RANGE:
            if name in takes:
                words = WORDS.get(name, name)
                found += [refused(f"{name}={x}", ValueError, words, **{name: x}) for x in OUT_OF_RANGE[name]]
                found.append(refused(f"{name} is no number", TypeError, words, **{name: NO_NUMBER[name]}))
        return found

    return errors


def info_of(cls: type[GenericAdaptiveOptimizer]) -> OptimizerInfo:
    """The entry of one class."""
    return OptimizerInfo(
        cls,
        optim_inputs_func=inputs_of(cls),
        optim_error_inputs_func=errors_of(cls),
        scheduler_inputs=(
            [lambda opt: ExponentialLR(opt, gamma=0.9)],
            [lambda opt: LinearLR(opt, start_factor=0.4, total_iters=4), lambda opt: ReduceLROnPlateau(opt)],
            [lambda opt: StepLR(opt, gamma=0.9, step_size=3)],
        ),
        # There is one way to carry a step out. `capturable` works on a CPU, too, so it stands among the inputs.
        supported_impls=(),
        not_og_supported_flags=("maximize", "capturable", "unscale_in_step"),
        has_capturable_arg=True,
    )


INFOS = [
    info_of(cls)
    for cls in (
        Adam,
        AMSGrad,
        AdamWarmup,
        Noam,
        AdamWarmupCosineDecay,
        RAdam,
        AdaBelief,
        Sophia,
        AdamFP16,
        AMSGradFP16,
        AdamWarmupFP16,
        NoamFP16,
        AdamWarmupCosineDecayFP16,
        RAdamFP16,
        AdaBeliefFP16,
        SophiaFP16,
    )
]
"""Each class of the package, and each with master weights."""


def has_masters(info: OptimizerInfo) -> bool:
    """Whether the class trains half-precision weights."""
    return issubclass(info.optim_cls, MasterWeights)


def dtype_of(info: OptimizerInfo) -> torch.dtype:
    """What the class is made for: FP16 with master weights, FP32 without."""
    return torch.float16 if has_masters(info) else torch.float32


def settings_of(info: OptimizerInfo) -> Iterator[Settings]:
    """The keyword arguments of each input."""
    for given in info.optim_inputs_func(device="cpu"):
        yield given.kwargs
