r"""
# An optimizer chosen by name

A training script that can run with any optimizer has to build one out of a name and a dozen settings.
`OptimizerConfigs` does that with [labml](https://github.com/labmlai/labml)'s configurations, which also write
down what was chosen.

**Use it when** your experiments are labml experiments, or the optimizer is to be chosen on the command line, as
in [the experiment with digits](experiments/digits.md).

**Don't when** one optimizer is enough: import its class and call it.

## How to use it

labml is a package of its own, `pip install labml`, and this module is the only one that needs it. So it isn't
imported with the rest:

```python
from labml_opt.configs import OptimizerConfigs

conf = OptimizerConfigs()
conf.parameters = model.parameters()
conf.optimizer = "RAdamFP16"
conf.learning_rate = 3e-4
conf.weight_decay = 0.1
optimizer = conf.optimizer
```

Reading `conf.optimizer` builds it; after that its settings can't be changed any more. As a part of a larger
configuration, settings are reached with a dot:

```python
from labml import experiment
from labml.configs import BaseConfigs, option

class Configs(BaseConfigs):
    model: torch.nn.Module
    optimizer: torch.optim.Optimizer

@option(Configs.optimizer)
def _optimizer(c: Configs):
    conf = OptimizerConfigs()
    conf.parameters = c.model.parameters()
    return conf

c = Configs()
c.model = model
experiment.create(name="by name")
experiment.configs(c, {"optimizer.optimizer": "Noam", "optimizer.d_model": 512})
optimizer = c.optimizer
```

## The names

| name | what it builds |
|---|---|
| `SGD` | `torch.optim.SGD`, the default |
| `Adam` | [Adam](adam.md), or [AMSGrad](amsgrad.md) if `amsgrad` is set |
| `AMSGrad`, `AdamWarmup`, `Noam`, `AdamWarmupCosineDecay`, `RAdam`, `AdaBelief`, `Sophia` | the class of that name |
| `AdamW` | `AdamWarmup`, as in labml_nn: the W stands for the warm-up |
| each of them but `SGD` with `FP16` behind it | the same [with FP32 masters](adam_fp16.md#MasterWeights) |

`Adam` with a `weight_decay` is what others call AdamW, because decay is decoupled by default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch

# Python's own message would name a module. This one names the command that helps.
try:
    from labml.configs import BaseConfigs, calculate, meta_config
except ModuleNotFoundError as error:
    raise ImportError("labml_opt.configs needs labml, which isn't installed: pip install labml") from error

from labml_opt.ada_belief import AdaBelief
from labml_opt.adam import Adam
from labml_opt.adam_fp16 import AdamFP16, AdamWarmupCosineDecayFP16, MasterWeights
from labml_opt.adam_warmup import AdamWarmup
from labml_opt.adam_warmup_cosine_decay import AdamWarmupCosineDecay
from labml_opt.amsgrad import AMSGrad
from labml_opt.noam import Noam
from labml_opt.optimizer import GenericAdaptiveOptimizer, WeightDecay
from labml_opt.radam import RAdam
from labml_opt.sophia import Sophia


class OptimizerConfigs(BaseConfigs):  # type: ignore[misc]
    r"""
    **The settings**, named as in labml_nn. An optimizer takes those that it knows and leaves the others alone.

    Where the value is `None` each optimizer has its own, the default of its class. One value for all would be
    wrong for some: $\epsilon = 10^{-8}$ is what Adam's paper says, and [AdaBelief](ada_belief.md), where it
    stands under a root, would no longer see surprises under $10^{-4}$.
    """

    # The optimizer, by name, and once it has been read, the optimizer itself.
    optimizer: torch.optim.Optimizer

    # What it trains: parameters, or groups of them. It has to be set; there is no default for it.
    parameters: Iterable[Any]

    # $\alpha$. The default is one for SGD. Most of the others want a few thousandths or less, Noam 1.
    learning_rate: float = 0.01

    # $(\beta_1, \beta_2)$ and $\epsilon$.
    betas: tuple[float, float] | None = None
    eps: float | None = None

    # $\lambda$, and where it acts: on the weights or through the gradient, as a share of the rate or by itself.
    # The three make one `WeightDecay`, unless one is set directly. SGD knows decay through the gradient only.
    weight_decay: float = 0.0
    weight_decouple: bool = True
    weight_decay_absolute: bool = False
    weight_decay_obj: WeightDecay

    # The momentum of SGD.
    momentum: float = 0.5

    # The order of operations in [Adam's update](adam.md#Adam.adam_update), and the maximum of AMSGrad.
    optimized_adam_update: bool = True
    amsgrad: bool | None = None

    # Steps of the warm-up, and of the whole training where the rate ends with a cosine.
    warmup: int = 2_000
    total_steps: int = int(1e10)

    # The width of the model. Noam can't do without it and nobody can guess it, so it has to be set for Noam.
    d_model: int | None = None

    # RAdam's and AdaBelief's first steps, and whether AdaBelief is rectified at all.
    degenerate_to_sgd: bool = True
    rectify: bool = True

    # Sophia's share of the curvature.
    rho: float | None = None

    def __init__(self) -> None:
        # Where another configuration holds this one, it is the optimizer that it gets to see.
        super().__init__(_primary="optimizer")

    def __getattribute__(self, item: str) -> Any:
        # A name that labml doesn't know it takes for the value itself, and a training loop would be handed the
        # text `"Adma"` for an optimizer.
        value = super().__getattribute__(item)
        if item == "optimizer" and isinstance(value, str):
            raise ValueError(f"there is no optimizer {value!r}; the names are {', '.join(BUILDERS)}")
        return value


# The parameters are no setting that an experiment would have to write down.
meta_config(OptimizerConfigs.parameters)


# Masters for those that have no half-precision form with a name yet. That takes no line of code, only a class.
class AMSGradFP16(MasterWeights, AMSGrad):
    """[AMSGrad](amsgrad.md) for FP16 and BF16 parameters."""


class AdamWarmupFP16(MasterWeights, AdamWarmup):
    """[Adam with warm-up](adam_warmup.md) for FP16 and BF16 parameters."""


class NoamFP16(MasterWeights, Noam):
    """[Noam](noam.md) for FP16 and BF16 parameters."""


class RAdamFP16(MasterWeights, RAdam):
    """[RAdam](radam.md) for FP16 and BF16 parameters."""


class AdaBeliefFP16(MasterWeights, AdaBelief):
    """[AdaBelief](ada_belief.md) for FP16 and BF16 parameters."""


class SophiaFP16(MasterWeights, Sophia):
    """[Sophia](sophia.md) for FP16 and BF16 parameters."""


# Every optimizer of the package beside its half-precision form. A form is called like its class, with `FP16`
# behind it.
HALF_PRECISION: dict[type[GenericAdaptiveOptimizer], type[GenericAdaptiveOptimizer]] = {
    Adam: AdamFP16,
    AMSGrad: AMSGradFP16,
    AdamWarmup: AdamWarmupFP16,
    Noam: NoamFP16,
    AdamWarmupCosineDecay: AdamWarmupCosineDecayFP16,
    RAdam: RAdamFP16,
    AdaBelief: AdaBeliefFP16,
    Sophia: SophiaFP16,
}

# What a class calls its argument, and the setting that it comes from.
ARGUMENTS = {
    "lr": "learning_rate",
    "betas": "betas",
    "eps": "eps",
    "weight_decay": "weight_decay_obj",
    "optimized_update": "optimized_adam_update",
    "amsgrad": "amsgrad",
    "warmup": "warmup",
    "total_steps": "total_steps",
    "d_model": "d_model",
    "degenerated_to_sgd": "degenerate_to_sgd",
    "degenerate_to_sgd": "degenerate_to_sgd",
    "rectify": "rectify",
    "rho": "rho",
}


# Adam itself has no maximum to turn on. With `amsgrad` set, its name means AMSGrad.
WITH_MAXIMUM: dict[type[GenericAdaptiveOptimizer], type[GenericAdaptiveOptimizer]] = {
    Adam: AMSGrad,
    AdamFP16: AMSGradFP16,
}


def build(c: OptimizerConfigs, cls: type[GenericAdaptiveOptimizer]) -> GenericAdaptiveOptimizer:
    """
    Build an optimizer out of the settings that its class takes.

    * `c` holds the settings
    * `cls` is the class

    Raises `ValueError` for Noam without `d_model`, and what the class raises for a setting out of its range.
    """
    if c.amsgrad:
        cls = WITH_MAXIMUM.get(cls, cls)

    # Each argument goes by name, and the signature of the class says which ones there are. A list of arguments
    # for each class would have to be kept up to date by hand, and nobody misses one that was forgotten: the
    # optimizer trains on with its default.
    taken = inspect.signature(cls).parameters
    arguments = {name: getattr(c, setting) for name, setting in ARGUMENTS.items() if name in taken}
    if "d_model" in taken and c.d_model is None:
        raise ValueError(f"{cls.__name__} needs the width of the model: set d_model of OptimizerConfigs")
    return cls(c.parameters, **{name: value for name, value in arguments.items() if value is not None})


def sgd(c: OptimizerConfigs) -> torch.optim.SGD:
    """Build SGD, with the momentum that is its own and the decay as a part of the gradient."""
    decay = c.weight_decay_obj.weight_decay
    return torch.optim.SGD(c.parameters, lr=c.learning_rate, momentum=c.momentum, weight_decay=decay)


def builder(cls: type[GenericAdaptiveOptimizer]) -> Callable[[OptimizerConfigs], GenericAdaptiveOptimizer]:
    """Return the function that labml calls when the name of `cls` was chosen."""

    def build_it(c: OptimizerConfigs) -> GenericAdaptiveOptimizer:
        return build(c, cls)

    return build_it


# labml takes the first name for the default.
BUILDERS: dict[str, Callable[[OptimizerConfigs], torch.optim.Optimizer]] = {
    "SGD": sgd,
    **{full.__name__: builder(full) for full in HALF_PRECISION},
    "AdamW": builder(AdamWarmup),
    **{half.__name__: builder(half) for half in HALF_PRECISION.values()},
    "AdamWFP16": builder(AdamWarmupFP16),
}
for name, function in BUILDERS.items():
    calculate(OptimizerConfigs.optimizer, name, function)


def weight_decay(c: OptimizerConfigs) -> WeightDecay:
    """Make one `WeightDecay` of the three settings that describe it."""
    return WeightDecay(c.weight_decay, weight_decouple=c.weight_decouple, absolute=c.weight_decay_absolute)


calculate(OptimizerConfigs.weight_decay_obj, "L2", weight_decay)
