"""
Whether the fast path computes what the loop computes, to the last bit.

One thing differs: the root. Where torch has MKL it takes it with MKL, whose result isn't always the nearest number, and
the compiler takes the nearest. So each optimizer is asked twice: with the nearest root in the loop, too, every bit has
to be the same, and with the loop as it is the difference has a bound. Both questions share the compiled steps, because
compiling is what takes the time.
"""

import contextlib
import functools

import pytest
import torch
from stepping import EVERY_OPTIMIZER, WITH_MASTERS
from torch import nn
from torch.overrides import TorchFunctionMode

from labml_opt import GenericAdaptiveOptimizer, WeightDecay, _fast, _hoist
from labml_opt._counts import as_count

STEPS = 100
SHAPES = [(7,), (3, 5), (33,), (2**16 + 13,)]
COUPLED = WeightDecay(0.05, weight_decouple=False)

CASES = {
    "Adam": {"weight_decay": 0.05},
    "AdamWarmup": {"weight_decay": 0.05},
    "AdamWarmupCosineDecay": {"weight_decay": 0.05},
    "Noam": {"weight_decay": 0.05},
    "AMSGrad": {"weight_decay": COUPLED, "optimized_update": False, "betas": (0.4, 0.9)},
    "RAdam": {"weight_decay": 0.05, "lr": torch.tensor(1e-3)},
    "AdaBelief": {"weight_decay": COUPLED},
    "Sophia": {"weight_decay": 0.05},
    "AdamFP16": {"weight_decay": 0.05, "optimized_update": False},
    "AdamWarmupCosineDecayFP16": {"weight_decay": COUPLED},
}
"""Every optimizer of the package; between them both decays, both orders, and a rate that is a tensor."""
FORMATS = {"AdamFP16": torch.float16, "AdamWarmupCosineDecayFP16": torch.bfloat16}


@pytest.fixture(autouse=True)
def large(monkeypatch):
    """Large parameters are smaller here than they have to be elsewhere, and quickly stepped."""
    monkeypatch.setattr(_fast, "LARGE", 2**16)


class NearestRoot(TorchFunctionMode):
    """Take every root in float64, and round it."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        """Replace `sqrt`, and call everything else."""
        if function is torch.Tensor.sqrt:
            return torch.sqrt(args[0].double()).to(args[0].dtype)
        return function(*args, **(kwargs or {}))


@functools.cache
def gradients():
    generator = torch.Generator().manual_seed(1)
    return [[torch.randn(shape, generator=generator) * 0.1 ** (k % 3) for shape in SHAPES] for k in range(15)]


@functools.cache
def trained(name, fast, nearest_root=False):
    """Return what a hundred steps make of state and weights; the first step is the loop's, whichever path is taken."""
    generator = torch.Generator().manual_seed(0)
    dtype = FORMATS.get(name, torch.float32)
    params = [nn.Parameter((torch.randn(shape, generator=generator) * 0.1).to(dtype)) for shape in SHAPES]
    optimizer = EVERY_OPTIMIZER[name](params, fast=fast, **CASES[name])
    for step in range(STEPS):
        for param, grad in zip(params, gradients()[step % 15], strict=True):
            param.grad = grad.to(dtype)
        with NearestRoot() if nearest_root and step else contextlib.nullcontext():
            optimizer.step()
    plans = optimizer.__dict__.get("_plans", {}).values()
    assert fast == bool(plans)
    # Each class's kernel goes over the parameters where they are.
    assert all(kernel.pieces for plan in plans for kernel in plan.kernels.values())
    assert not any(plan.scratch for plan in plans)
    state = {(k, key): value for k, param in enumerate(params) for key, value in optimizer.state[param].items()}
    return state | {(k, "weights"): param.detach() for k, param in enumerate(params)}


def test_all_optimizers_are_asked():
    assert {name.removesuffix("FP16") for name in EVERY_OPTIMIZER} == {name.removesuffix("FP16") for name in CASES}
    assert set(FORMATS) == set(CASES) & set(WITH_MASTERS)


@pytest.mark.parametrize("name", CASES)
def test_but_for_the_root_a_hundred_steps_are_the_loops_to_the_last_bit(name):
    fast, loop = trained(name, True), trained(name, False, nearest_root=True)
    assert fast.keys() == loop.keys()
    for key, value in fast.items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(loop[key])), key


@pytest.mark.parametrize("name", CASES)
def test_after_a_hundred_steps_fp32_is_within_2e_6_of_the_loop_and_16_bits_within_one_spacing(name):
    fast, loop = trained(name, True), trained(name, False)
    for key, value in fast.items():
        mine, theirs = torch.as_tensor(value).double(), torch.as_tensor(loop[key]).double()
        apart, size = (mine - theirs).abs(), torch.maximum(theirs.abs(), theirs.abs().mean())
        if key[1] == "weights" and name in FORMATS:
            assert (apart > 0).sum() <= value.numel() / 10_000, key
            assert (apart <= torch.finfo(value.dtype).eps * size).all(), key
        else:
            assert (apart <= 2e-6 * size).all(), key


def test_the_arithmetic_that_optimizers_are_made_of_is_torchs_to_the_last_bit_zeros_infinities_and_nan_included():
    calculations = {
        "lerp": lambda own, grad, param, rate: own.lerp(grad, 0.1),
        "lerp_": lambda own, grad, param, rate: own.lerp_(grad, 0.7),
        "addcmul": lambda own, grad, param, rate: own.addcmul(grad, param, value=-0.3),
        "addcmul_": lambda own, grad, param, rate: own.mul_(0.9).addcmul_(grad, grad, value=0.3),
        "addcdiv": lambda own, grad, param, rate: own.addcdiv(grad, param, value=0.3),
        "addcdiv_": lambda own, grad, param, rate: own.addcdiv_(grad, param, value=-0.3),
        "addcdiv_ with a rate": lambda own, grad, param, rate: own.addcdiv_(grad * -rate, param),
        "add": lambda own, grad, param, rate: own.add(grad, alpha=0.3) + grad + 0.3,
        "add_": lambda own, grad, param, rate: own.add_(grad, alpha=-0.3).add_(0.1, alpha=0.3),
        "sub": lambda own, grad, param, rate: own.sub(grad, alpha=0.3) - grad * 0.7,
        "sub_": lambda own, grad, param, rate: own.sub_(grad, alpha=-0.3).sub_(0.1, alpha=0.3).sub_(grad),
        "div": lambda own, grad, param, rate: grad / 0.3 + 0.3 / param,
        "mul_": lambda own, grad, param, rate: own.mul_(1 - rate * 0.3),
        "clamp_": lambda own, grad, param, rate: (grad / param).clamp_(-1, 1).mul_(rate),
        "maximum": lambda own, grad, param, rate: torch.maximum(own, grad),
        "rsqrt": lambda own, grad, param, rate: grad.abs().rsqrt() * param.reciprocal(),
        "square": lambda own, grad, param, rate: grad.square() + param**3,
    }

    class Everything(GenericAdaptiveOptimizer):
        """Not an optimizer; each calculation has a state of its own."""

        def init_state(self, state, group, param):
            state["step"] = as_count(0, group["capturable"], param.device)
            state.update({name: param.detach() / 3 for name in calculations})

        def step_param(self, state, group, grad, param):
            state["step"] += 1
            for name, calculate in calculations.items():
                state[name].copy_(calculate(state[name], grad, param, group["lr"]))

    edges = torch.tensor([0.0, -0.0, 1.0, torch.inf, -torch.inf, torch.nan, 1e-45, -1e-40, 2e-38, 3e38, -3e38])
    pairs = torch.cartesian_prod(edges, edges)
    generator = torch.Generator().manual_seed(0)
    start, *grads = (
        torch.randn(2**13, generator=generator) * 10.0 ** torch.randint(-6, 7, (2**13,), generator=generator)
        for _ in range(4)
    )
    results = []
    for fast in (True, False):
        params = [nn.Parameter(start.clone()), nn.Parameter(pairs[:, 0].clone())]
        optimizer = Everything(params, {}, 1e-3, fast=fast)
        for grad in grads:
            params[0].grad, params[1].grad = grad, pairs[:, 1].clone()
            optimizer.step()
        assert fast == bool(optimizer.__dict__.get("_plans"))
        results.append([{**optimizer.state[param]} for param in params])
    for fast_state, loop_state in zip(*results, strict=True):
        for name in calculations:
            mine, theirs = fast_state[name], loop_state[name]
            same = (mine == theirs) & (mine.signbit() == theirs.signbit()) | mine.isnan() & theirs.isnan()
            assert same.all(), (name, mine[~same], theirs[~same])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_outside_the_compiler_the_functions_are_torchs_too(dtype):
    one, other, third = (torch.randn(64, generator=torch.Generator().manual_seed(k), dtype=dtype) for k in (1, 2, 3))
    functions = [
        *((torch.Tensor.lerp, torch.Tensor.lerp_, (other, weight), {}) for weight in (0.1, 0.9)),
        (torch.Tensor.addcmul, torch.Tensor.addcmul_, (other, third), {"value": 0.3}),
        (torch.Tensor.addcdiv, torch.Tensor.addcdiv_, (other, third), {"value": 0.3}),
        *((torch.Tensor.add, torch.Tensor.add_, (other,), {"alpha": alpha}) for alpha in (1, 0.3)),
        *((torch.Tensor.sub, torch.Tensor.sub_, (other,), {"alpha": alpha}) for alpha in (1, 0.3)),
        (torch.Tensor.add, torch.Tensor.add_, (2,), {"alpha": 0.3}),
    ]
    assert {function for pair in functions for function in pair[:2]} == {*_hoist.AS_TORCH_ROUNDS, *_hoist.IN_PLACE}
    for function, in_place, arguments, options in functions:
        right = function(one, *arguments, **options)
        with _hoist.ToTheBit():
            torch.testing.assert_close(function(one, *arguments, **options), right)
            changed = one.clone()
            assert in_place(changed, *arguments, **options) is changed
        torch.testing.assert_close(changed, right)
