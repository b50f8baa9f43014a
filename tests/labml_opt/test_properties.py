"""What holds for every shape, dtype, layout and setting."""

import copy
import functools
import io
import math

import formulas
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from optimizer_infos import INFOS
from stepping import SophiaOfEveryStep, SophiaOfEveryStepFP16
from torch import nn

from labml_opt import (
    AdaBelief,
    AdamFP16,
    AdamWarmup,
    AdamWarmupCosineDecay,
    AMSGrad,
    GradScalerFP16,
    MasterWeights,
    Noam,
    RAdam,
    Sophia,
    WeightDecay,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*master")

often = settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
for_each = settings(often, max_examples=12)

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
# Sophia divides by a curvature that somebody has to ask for; this one asks at every step.
IN_ITS_PLACE = {"Sophia": SophiaOfEveryStep, "SophiaFP16": SophiaOfEveryStepFP16}
CLASSES = [IN_ITS_PLACE.get(info.name, info.optim_cls) for info in INFOS]
every_class = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)

shapes = st.lists(st.integers(0, 4), min_size=0, max_size=4).map(tuple)
seeds = st.integers(0, 2**16)


@st.composite
def layouts(draw: st.DrawFn) -> "Layout":
    """A shape, an order of its dimensions in memory, and gaps between its values."""
    shape = draw(shapes)
    return Layout(shape, draw(st.permutations(range(len(shape)))), draw(st.integers(1, 2)))


class Layout:
    def __init__(self, shape: tuple[int, ...], order: list[int], gap: int) -> None:
        self.shape, self.order, self.gap = shape, order, gap

    def __repr__(self) -> str:
        return f"Layout({self.shape}, {self.order}, {self.gap})"

    def fill(self, values: torch.Tensor) -> torch.Tensor:
        """The values, laid out in memory this way."""
        strides, step = [0] * len(self.shape), self.gap
        for dimension in self.order:
            strides[dimension] = step
            step *= max(1, self.shape[dimension])
        return torch.empty_strided(self.shape, strides, dtype=values.dtype).copy_(values)


def values(shape: tuple[int, ...], seed: int, dtype: torch.dtype) -> torch.Tensor:
    """Numbers between 2**-4 and 2**4 with both signs."""
    generator = torch.Generator().manual_seed(seed)
    exponents = torch.rand(shape, generator=generator, dtype=torch.float64) * 8 - 4
    signs = torch.randint(0, 2, shape, generator=generator) * 2 - 1
    return (2.0**exponents * signs).to(dtype)


decays = st.builds(
    WeightDecay, weight_decay=st.sampled_from([0.0, 0.01, 0.5]), weight_decouple=st.booleans(), absolute=st.booleans()
)
group_settings = st.fixed_dictionaries(
    {
        "lr": st.sampled_from([0.0, 1e-3, 0.25]),
        "betas": st.tuples(st.sampled_from([0.0, 0.5, 0.9]), st.sampled_from([0.0, 0.9, 0.999])),
        "eps": st.sampled_from([1e-16, 1e-8, 0.1]),
        "weight_decay": decays,
        "optimized_update": st.booleans(),
        "maximize": st.booleans(),
        "capturable": st.booleans(),
    }
)


def fitting(cls: type, chosen: dict, schedule: dict) -> dict:
    """What of the settings `cls` has, without those at which its formula is no stable computation."""
    chosen = dict(chosen)
    if issubclass(cls, AdamWarmup):
        has = {Noam: ("warmup", "d_model"), AdamWarmupCosineDecay: ("warmup", "total_steps")}
        names = next((has[base] for base in has if issubclass(cls, base)), ("warmup",))
        chosen |= {name: schedule[name] for name in names}
    if issubclass(cls, (AdaBelief, Sophia)):
        del chosen["optimized_update"]
    if issubclass(cls, AdaBelief):
        # Without a memory nothing surprises it, and the step is a number divided by next to nothing.
        chosen |= {
            "betas": (max(0.5, chosen["betas"][0]), max(0.9, chosen["betas"][1])),
            "rectify": schedule["rectify"],
        }
    if issubclass(cls, Sophia):
        chosen["rho"] = schedule["rho"]
    return chosen


schedules = st.fixed_dictionaries(
    {
        "warmup": st.sampled_from([0, 3]),
        "total_steps": st.sampled_from([5, 100]),
        "d_model": st.sampled_from([1, 64]),
        "rectify": st.booleans(),
        "rho": st.sampled_from([0.04, 30.0]),
    }
)


def by_formula(cls: type, start: np.ndarray, gradients: list[np.ndarray], chosen: dict) -> np.ndarray:
    """Where the weights are after the last step, by the rule of the paper."""
    decay, lr = chosen["weight_decay"], chosen["lr"]
    common = {
        "eps": chosen["eps"],
        "decay": decay.weight_decay,
        "decay_kind": "coupled" if not decay.weight_decouple else "absolute" if decay.absolute else "decoupled",
        "maximize": chosen["maximize"],
    }
    if issubclass(cls, AdaBelief):
        arguments = {"lr": lr, "betas": chosen["betas"], "rectify": chosen["rectify"], **common}
        return formulas.run_ada_belief(start, gradients, **arguments)[-1]
    if issubclass(cls, Sophia):
        looks = {t: (gradient, 1.0) for t, gradient in enumerate(gradients, start=1)}
        arguments = {"lr": lr, "betas": (chosen["betas"][0], 0.9), "rho": chosen["rho"], **common}
        return formulas.run_sophia(start, gradients, looks, **arguments)[-1]
    rate = lr
    if issubclass(cls, Noam):
        rate = functools.partial(noam_rate, lr, chosen["warmup"], chosen["d_model"])
    elif issubclass(cls, AdamWarmupCosineDecay):
        rate = functools.partial(cosine_rate, lr, chosen["warmup"], chosen["total_steps"])
    elif issubclass(cls, AdamWarmup):
        rate = functools.partial(warmup_rate, lr, chosen["warmup"])
    return formulas.run(
        start,
        gradients,
        lr=rate,
        betas=chosen["betas"],
        optimized=chosen["optimized_update"],
        rectified=issubclass(cls, RAdam),
        amsgrad=issubclass(cls, AMSGrad) and not issubclass(cls, (AdamWarmup, RAdam)),
        **common,
    )[-1].theta


def noam_rate(lr: float, warmup: int, d_model: int, t: int) -> float:
    return formulas.noam_rate(lr, t, warmup, d_model)


def cosine_rate(lr: float, warmup: int, total_steps: int, t: int) -> float:
    return formulas.cosine_rate(lr, t, warmup, total_steps)


def warmup_rate(lr: float, warmup: int, t: int) -> float:
    return formulas.warmup_rate(lr, t, warmup)


@every_class
@for_each
@given(
    layout=layouts(),
    dtype=st.sampled_from(DTYPES),
    chosen=group_settings,
    schedule=schedules,
    seed=seeds,
    in_group=st.booleans(),
)
def test_steps_equal_the_float64_formula(cls, layout, dtype, chosen, schedule, seed, in_group):
    chosen = fitting(cls, chosen, schedule)
    with_master = issubclass(cls, MasterWeights)
    rounded = dtype in (torch.float16, torch.bfloat16) and not with_master
    param = nn.Parameter(layout.fill(values(layout.shape, seed, dtype)))
    # Seven, because the sixth is the first that RAdam rectifies. What is rounded after each takes two.
    gradients = [values(layout.shape, seed + k, dtype) for k in range(1, 3 if rounded else 8)]
    start = param.detach().double().numpy().copy()
    optimizer = cls([{"params": [param], **chosen}]) if in_group else cls([param], **chosen)
    for gradient in gradients:
        param.grad = layout.fill(gradient)
        optimizer.step()
    expected = by_formula(cls, start, [g.double().numpy() for g in gradients], chosen)

    result = next(iter(optimizer.master_params())) if with_master else param.detach()
    # A half parameter without a master is rounded twice.
    spacing = {torch.float16: 2**-11, torch.bfloat16: 2**-8}[dtype] * 3 if rounded else 0.0
    tolerance = 1e-10 if dtype is torch.float64 and not chosen["capturable"] else 1e-5
    np.testing.assert_allclose(result.double().numpy(), expected, rtol=tolerance + spacing, atol=tolerance + spacing)
    if with_master:
        assert torch.equal(param.detach(), result.to(dtype))


@every_class
@for_each
@given(
    layout=layouts().filter(lambda layout: math.prod(layout.shape) > 0),
    dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32]),
    chosen=group_settings,
    schedule=schedules,
    seed=seeds,
    power=st.integers(-3, 9),
    in_step=st.booleans(),
    unscale_first=st.booleans(),
)
def test_a_scaled_step_equals_an_unscaled_one(
    cls, layout, dtype, chosen, schedule, seed, power, in_step, unscale_first
):
    results = []
    for scale in (None, 2.0**power):
        param = nn.Parameter(layout.fill(values(layout.shape, seed, dtype)))
        optimizer = cls([param], **fitting(cls, chosen, schedule), unscale_in_step=in_step)
        scaler = GradScalerFP16("cpu", init_scale=scale or 1.0, min_scale=2.0**-3, enabled=scale is not None)
        for k in (1, 2):
            optimizer.zero_grad()
            loss = (param.float() * values(layout.shape, seed + k, dtype).float()).sum()
            scaler.scale(loss).backward()
            if unscale_first:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        results.append([param.detach(), *(optimizer.master_params() if issubclass(cls, MasterWeights) else ())])
    assert all(torch.equal(plain, scaled) for plain, scaled in zip(*results, strict=True))


@every_class
@for_each
@given(
    all_shapes=st.lists(shapes, min_size=1, max_size=4),
    dtypes=st.lists(st.sampled_from(DTYPES), min_size=4, max_size=4),
    chosen=group_settings,
    schedule=schedules,
    order=st.permutations(range(4)),
    seed=seeds,
)
def test_the_order_of_parameters_does_not_matter(cls, all_shapes, dtypes, chosen, schedule, order, seed):
    starts = [values(shape, seed + k, dtypes[k]) for k, shape in enumerate(all_shapes)]
    results = []
    for sequence in (range(len(starts)), [k for k in order if k < len(starts)]):
        params = [nn.Parameter(start.clone()) for start in starts]
        optimizer = cls([params[k] for k in sequence], **fitting(cls, chosen, schedule))
        for step in (1, 2):
            for k, param in enumerate(params):
                param.grad = values(param.shape, seed + 10 * step + k, param.dtype)
            optimizer.step()
        results.append(params)
    assert all(torch.equal(x, y) for x, y in zip(*results, strict=True))


@every_class
@for_each
@given(
    layout=layouts(),
    dtype=st.sampled_from(DTYPES),
    chosen=group_settings,
    schedule=schedules,
    stop=st.integers(0, 7),
    seed=seeds,
)
def test_saving_at_any_step_and_resuming_equals_never_stopping(cls, layout, dtype, chosen, schedule, stop, seed):
    chosen = fitting(cls, chosen, schedule)
    gradients = [values(layout.shape, seed + k, dtype) for k in range(1, 8)]

    def train(param, optimizer, these):
        for gradient in these:
            param.grad = layout.fill(gradient)
            optimizer.step()

    whole = nn.Parameter(layout.fill(values(layout.shape, seed, dtype)))
    one = cls([whole], **chosen)
    train(whole, one, gradients)

    first = nn.Parameter(layout.fill(values(layout.shape, seed, dtype)))
    before = cls([first], **chosen)
    train(first, before, gradients[:stop])
    file = io.BytesIO()
    torch.save({"param": first.detach(), "optimizer": before.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    resumed = nn.Parameter(layout.fill(saved["param"]))
    after = cls([resumed])
    after.load_state_dict(saved["optimizer"])
    train(resumed, after, gradients[stop:])

    assert torch.equal(resumed, whole)
    if issubclass(cls, MasterWeights):
        assert torch.equal(next(iter(after.master_params())), next(iter(one.master_params())))


@often
@given(
    warmup=st.integers(0, 50),
    length=st.integers(1, 200),
    lr=st.floats(1e-6, 10),
    t=st.integers(1, 1000),
)
def test_every_rate_of_the_schedule_is_the_formulas(warmup, length, lr, t):
    param = nn.Parameter(torch.ones(1))
    optimizer = AdamWarmupCosineDecay([param], lr=lr, warmup=warmup, total_steps=warmup + length)
    rate = optimizer.get_lr({"step": t}, optimizer.param_groups[0])
    expected = formulas.cosine_rate(lr, t, warmup, warmup + length)
    assert rate == pytest.approx(expected, rel=1e-12)
    on_the_device = optimizer.get_lr({"step": torch.tensor(float(t))}, optimizer.param_groups[0])
    assert float(on_the_device) == pytest.approx(expected, rel=2e-5)


@often
@given(layout=layouts(), seed=seeds, share=st.floats(0, 1), capturable=st.booleans())
def test_changed_weights_are_taken_over_and_unchanged_masters_keep_their_bits(layout, seed, share, capturable):
    param = nn.Parameter(layout.fill(values(layout.shape, seed, torch.float16)))
    optimizer = AdamFP16([param], lr=1e-4, capturable=capturable)
    for k in (1, 2):
        param.grad = layout.fill(values(layout.shape, seed + k, torch.float16))
        optimizer.step()
    before = copy.deepcopy(next(iter(optimizer.master_params())))
    changed = torch.rand(layout.shape, generator=torch.Generator().manual_seed(seed)) < share
    with torch.no_grad():
        param.copy_(torch.where(changed, param * -2, param))
    optimizer.param_groups[0]["lr"] = 0.0
    optimizer.step()
    after = next(iter(optimizer.master_params()))
    assert torch.equal(after, torch.where(changed, param.detach().float(), before))
