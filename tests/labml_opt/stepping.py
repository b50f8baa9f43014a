"""How the tests drive an optimizer: parameters, recorded gradients, one step after the other."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn

from labml_opt import (
    AdaBelief,
    Adam,
    AdamFP16,
    AdamWarmup,
    AdamWarmupCosineDecay,
    AdamWarmupCosineDecayFP16,
    AMSGrad,
    MasterWeights,
    Noam,
    RAdam,
    Sophia,
)

PAPER_FORM = {"optimized_update": False, "eps": 1e-8}
"""With these two settings Adam is torch's Adam."""


class AMSGradFP16(MasterWeights, AMSGrad):
    """What a reader writes to give an optimizer master weights."""


class NoamFP16(MasterWeights, Noam):
    """The same for Noam."""


class RAdamFP16(MasterWeights, RAdam):
    """The same for RAdam."""


class AdaBeliefFP16(MasterWeights, AdaBelief):
    """The same for AdaBelief."""


class SophiaOfEveryStep(Sophia):
    """Sophia that takes each step's own gradient for its curvature, so that a plain step has one to divide by."""

    def step_param(self, state, group, grad, param):
        """Take a tenth of the square into the curvature."""
        state["hessian"].mul_(0.9).addcmul_(grad, grad, value=0.1)
        super().step_param(state, group, grad, param)


class SophiaOfEveryStepFP16(MasterWeights, SophiaOfEveryStep):
    """The same with master weights."""


GENTLE = {"betas": (0.9, 0.99), "rho": 30.0}
"""With these two settings few coordinates are clipped, and two runs that differ in rounding stay together."""

EVERY_OPTIMIZER: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "Adam": Adam,
    "AMSGrad": AMSGrad,
    "AdamWarmup": lambda params, **settings: AdamWarmup(params, **{"warmup": 4, **settings}),
    "AdamWarmupCosineDecay": lambda params, **settings: AdamWarmupCosineDecay(
        params, **{"warmup": 4, "total_steps": 20, **settings}
    ),
    "Noam": lambda params, **settings: Noam(params, **{"warmup": 4, "d_model": 0.25, **settings}),
    "RAdam": RAdam,
    "AdaBelief": AdaBelief,
    "Sophia": lambda params, **settings: SophiaOfEveryStep(params, **{**GENTLE, **settings}),
    "AdamFP16": AdamFP16,
    "AMSGradFP16": AMSGradFP16,
    "NoamFP16": lambda params, **settings: NoamFP16(params, **{"warmup": 4, "d_model": 0.25, **settings}),
    "RAdamFP16": RAdamFP16,
    "AdaBeliefFP16": AdaBeliefFP16,
    "SophiaFP16": lambda params, **settings: SophiaOfEveryStepFP16(params, **{**GENTLE, **settings}),
    "AdamWarmupCosineDecayFP16": lambda params, **settings: AdamWarmupCosineDecayFP16(
        params, **{"warmup": 4, "total_steps": 20, **settings}
    ),
}
"""Every class of the package (and some of a reader's), ready to be called with parameters and settings."""

WITH_MASTERS = (
    "AdamFP16",
    "AMSGradFP16",
    "NoamFP16",
    "RAdamFP16",
    "AdaBeliefFP16",
    "SophiaFP16",
    "AdamWarmupCosineDecayFP16",
)
HALVES = (torch.float16, torch.bfloat16)


def parameter(values: object, dtype: torch.dtype = torch.float64) -> nn.Parameter:
    """Make a parameter out of plain numbers."""
    return nn.Parameter(torch.tensor(values, dtype=dtype))


def random_gradients(steps: int, *shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Gradients whose size differs from step to step, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.logspace(-2, 1, 7)
    return [
        (torch.randn(*shape, generator=generator, dtype=torch.float64) * sizes[k % 7]).to(dtype) for k in range(steps)
    ]


def random_parameter(*shape: int, seed: int = 100, dtype: torch.dtype = torch.float64) -> nn.Parameter:
    """A parameter of normal numbers, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return nn.Parameter(torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype))


def feed(optimizer: torch.optim.Optimizer, param: nn.Parameter, gradients: Iterable[object]) -> list[Tensor]:
    """Step once for each gradient and return the values the parameter takes."""
    values = []
    for gradient in gradients:
        param.grad = torch.as_tensor(gradient, dtype=param.dtype).expand(param.shape).clone()
        optimizer.step()
        values.append(param.detach().clone())
    return values


def numbers(values: Sequence[Tensor]) -> list[float]:
    """The values of a one-element parameter as plain numbers."""
    return [value.item() for value in values]


def half_loss(param: nn.Parameter, slopes: Sequence[float]) -> Tensor:
    """A loss computed in float32 whose gradient with respect to the parameter is `slopes`."""
    return (param.float() * torch.tensor(slopes)).sum()
