import ast
import copy
import gc
import inspect
import math
import pickle
import textwrap
import warnings
import weakref

import pytest
import torch
from stepping import (
    EVERY_OPTIMIZER,
    HALVES,
    PAPER_FORM,
    WITH_MASTERS,
    RAdamFP16,
    half_loss,
    parameter,
    random_parameter,
)
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from labml_opt import Adam, AdamFP16, AdamWarmupCosineDecayFP16, GradScalerFP16

INF = math.inf


def half(*values: float) -> nn.Parameter:
    return parameter(list(values) or [1.0], torch.float16)


def give(param: nn.Parameter, *slopes: float, scaler: torch.amp.GradScaler) -> None:
    """Backward of a scaled loss with these slopes."""
    scaler.scale(half_loss(param, slopes)).backward()


def master(optimizer: torch.optim.Optimizer) -> torch.Tensor:
    (only,) = optimizer.master_params()
    return only


def network(dtype: torch.dtype = torch.float16) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to(dtype)


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(16, 4, generator=generator)
    return inputs, inputs.sum(1, keepdim=True).sin()


def loss_of(model: nn.Module, step: int) -> torch.Tensor:
    inputs, target = batch(step)
    return (model(inputs.to(model[0].weight.dtype)).float() - target).pow(2).mean()


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Everything a run has made: parameters and state."""
    kept = [p.detach().clone() for p in model.parameters()]
    for param in model.parameters():
        kept += [v.clone() for _, v in sorted(optimizer.state[param].items()) if isinstance(v, torch.Tensor)]
    return kept


# Clipping


@pytest.mark.parametrize("in_step", [False, True])
def test_clipping_after_unscale_measures_and_clips_what_the_optimizer_reads(in_step):
    param = half(1.0, 1.0, 1.0, 1.0)
    optimizer, scaler = AdamFP16([param], lr=1e-2, unscale_in_step=in_step), GradScalerFP16("cpu", init_scale=1024.0)
    give(param, 3.0, 4.0, 0.0, 0.0, scaler=scaler)
    scaler.unscale_(optimizer)
    norm = clip_grad_norm_([param], 1.0)
    scaler.step(optimizer)
    scaler.update()
    assert norm.item() == 5.0
    assert optimizer.state[param]["exp_avg"].tolist() == pytest.approx([0.06, 0.08, 0.0, 0.0], rel=1e-5)


def test_clipping_by_value_clips_what_the_optimizer_reads():
    param = half(1.0, 1.0)
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=1024.0)
    give(param, 3.0, -0.25, scaler=scaler)
    scaler.unscale_(optimizer)
    clip_grad_value_([param], 1.0)
    scaler.step(optimizer)
    assert optimizer.state[param]["exp_avg"].tolist() == pytest.approx([0.1, -0.025], rel=1e-6)


@pytest.mark.parametrize("clip", [False, True])
def test_gradients_below_the_range_of_float16_arrive(clip):
    param = half(1.0)
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=65536.0)
    give(param, 1e-9, scaler=scaler)
    if clip:
        scaler.unscale_(optimizer)
        clip_grad_norm_([param], 1.0)
    scaler.step(optimizer)
    assert optimizer.state[param]["exp_avg"].item() == pytest.approx(1.0e-10, rel=1e-3)


# A run with the scaler against a run without


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("in_step", [False, True])
@pytest.mark.parametrize("name", WITH_MASTERS)
def test_a_scaled_run_is_bit_equal_to_the_run_without_scaling(name, in_step, dtype):
    slopes = (2.0 ** torch.linspace(-6, 1, 40) * torch.linspace(-1, 1, 40).sign()).tolist()
    runs = []
    for enabled in (False, True):
        param = random_parameter(40, dtype=dtype)
        optimizer = EVERY_OPTIMIZER[name]([param], unscale_in_step=in_step, weight_decay=0.1)
        scaler = GradScalerFP16("cpu", init_scale=2.0**7, growth_interval=3, enabled=enabled)
        for step in range(12):
            optimizer.zero_grad()
            for part in range(2):
                give(param, *[slope * (1 + step + part) / 16 for slope in slopes], scaler=scaler)
            scaler.step(optimizer)
            scaler.update()
        runs.append([param.detach(), *(v for v in optimizer.state[param].values() if isinstance(v, torch.Tensor))])
    assert scaler.get_scale() == 2.0**11
    assert all(torch.equal(plain, scaled) for plain, scaled in zip(*runs, strict=True))


def by_hand(clip: float | None, accumulate: int, steps: int = 12) -> tuple[nn.Module, list[torch.Tensor]]:
    """Float32 masters around a half model, torch's own Adam on them: the textbook's way, nothing of ours."""
    model = network()
    masters = [nn.Parameter(p.detach().float()) for p in model.parameters()]
    optimizer = torch.optim.AdamW(masters, lr=1e-3, weight_decay=0.1)
    for step in range(steps):
        model.zero_grad()
        for part in range(accumulate):
            (256.0 * loss_of(model, 10 * step + part) / accumulate).backward()
        for param, full in zip(model.parameters(), masters, strict=True):
            full.grad = param.grad.float() / 256.0
        if clip:
            clip_grad_norm_(masters, clip)
        optimizer.step()
        with torch.no_grad():
            for param, full in zip(model.parameters(), masters, strict=True):
                param.copy_(full)
    return model, [full.detach() for full in masters]


@pytest.mark.parametrize("in_step", [False, True])
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("clip", [None, 0.5])
def test_a_scaled_run_equals_torchs_adam_on_float32_masters(clip, accumulate, in_step):
    reference, masters = by_hand(clip, accumulate)
    model = network()
    optimizer = AdamFP16(model.parameters(), weight_decay=0.1, unscale_in_step=in_step, **PAPER_FORM)
    scaler = GradScalerFP16("cpu", init_scale=256.0)
    for step in range(12):
        optimizer.zero_grad()
        for part in range(accumulate):
            scaler.scale(loss_of(model, 10 * step + part) / accumulate).backward()
        if clip:
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), clip)
        scaler.step(optimizer)
        scaler.update()
    for ours, theirs in zip(optimizer.master_params(), masters, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), reference.parameters(), strict=True))


def test_stopping_in_the_middle_with_a_reloaded_scaler_is_bit_equal():
    def steps(model, optimizer, scaler, which):
        for step in which:
            optimizer.zero_grad()
            scaler.scale(loss_of(model, step)).backward()
            scaler.step(optimizer)
            scaler.update()

    whole, model = network(), network()
    one = AdamFP16(whole.parameters())
    steps(whole, one, GradScalerFP16("cpu", init_scale=256.0, growth_interval=4), range(10))

    first, before = AdamFP16(model.parameters()), GradScalerFP16("cpu", init_scale=256.0, growth_interval=4)
    steps(model, first, before, range(6))
    resumed = network()
    resumed.load_state_dict(model.state_dict())
    second, after = AdamFP16(resumed.parameters()), GradScalerFP16("cpu")
    second.load_state_dict(first.state_dict())
    after.load_state_dict(before.state_dict())
    steps(resumed, second, after, range(6, 10))
    assert after.get_scale() == 1024.0
    assert all(torch.equal(a, b) for a, b in zip(state_of(whole, one), state_of(resumed, second), strict=True))


def test_scaler_checkpoints_and_torchs_are_interchangeable():
    ours, torchs = GradScalerFP16("cpu", init_scale=32.0), torch.amp.GradScaler("cpu", init_scale=8.0)
    saved = ours.state_dict()
    torchs.load_state_dict(saved)
    assert torchs.get_scale() == 32.0
    ours.load_state_dict(torch.amp.GradScaler("cpu", init_scale=8.0).state_dict())
    assert ours.get_scale() == 8.0


# Overflow


@pytest.mark.parametrize("in_step", [False, True])
@pytest.mark.parametrize("bad", [INF, -INF, math.nan])
def test_an_overflow_changes_nothing_but_the_scale(bad, in_step):
    param = half(1.0, 2.0)
    optimizer, scaler = AdamFP16([param], lr=0.1, unscale_in_step=in_step), GradScalerFP16("cpu", init_scale=4.0)
    give(param, 1.0, 1.0, scaler=scaler)
    scaler.step(optimizer)
    scaler.update()
    before = copy.deepcopy(optimizer.state_dict())
    value = param.detach().clone()
    optimizer.zero_grad()
    give(param, 1.0, bad, scaler=scaler)
    scaler.step(optimizer)
    scaler.update()
    after = optimizer.state_dict()
    assert scaler.get_scale() == 2.0
    assert torch.equal(param, value)
    assert after["param_groups"] == before["param_groups"]
    assert all(
        torch.equal(torch.as_tensor(v), torch.as_tensor(before["state"][0][k])) for k, v in after["state"][0].items()
    )


@pytest.mark.parametrize("make", [lambda p: AdamFP16(p), lambda p: AdamWarmupCosineDecayFP16(p, lr=0.1, warmup=10)])
def test_the_default_scale_overflows_a_half_loss_and_then_nothing_but_the_scale_changes(make):
    param = half(1.0)
    optimizer, scaler = make([param]), GradScalerFP16("cpu")
    scaler.scale((param * 0.001).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert param.item() == 1.0
    assert optimizer.state[param].get("step", 0) == 0
    assert scaler.get_scale() == 32768


@pytest.mark.parametrize("in_step", [False, True])
def test_the_iteration_after_an_overflow_succeeds_with_the_first_rate_of_the_warm_up(in_step):
    param = half(1.0)
    optimizer, scaler = (
        AdamWarmupCosineDecayFP16([param], lr=0.1, warmup=10, unscale_in_step=in_step),
        GradScalerFP16("cpu"),
    )
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale((param * 0.001).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert optimizer.get_last_lr() == [0.1 * (1 / 10)]
    assert master(optimizer).item() == pytest.approx(0.99, rel=1e-5)


def test_a_skipped_step_returns_none_and_a_taken_one_too():
    param = half(1.0)
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=4.0)
    for slope, taken in ((INF, 0), (1.0, 1)):
        give(param, slope, scaler=scaler)
        assert scaler.step(optimizer) is None
        assert optimizer.param_groups[0]["t"] == taken
        scaler.update()


def test_trainers_see_a_skipped_step_because_step_is_not_called():
    param, calls = half(1.0), []
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=4.0)
    optimizer.register_step_post_hook(lambda *_: calls.append(True))
    give(param, INF, scaler=scaler)
    scaler.step(optimizer)
    assert not calls


def test_an_infinity_that_appears_between_unscale_and_step_reaches_the_weights_as_in_torch():
    param = half(1.0)
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=4.0)
    give(param, 1.0, scaler=scaler)
    scaler.unscale_(optimizer)
    param.grad.fill_(INF)
    scaler.step(optimizer)
    assert not torch.isfinite(param).all()


def test_growth_follows_torchs():
    ours, torchs = (
        GradScalerFP16("cpu", init_scale=8.0, growth_interval=3),
        torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3),
    )
    scales = {}
    for scaler, dtype, make in ((ours, torch.float16, AdamFP16), (torchs, torch.float32, torch.optim.Adam)):
        param = parameter([1.0], dtype)
        optimizer = make([param])
        for k in range(10):
            optimizer.zero_grad()
            give(param, INF if k == 7 else 1.0, scaler=scaler)
            scaler.step(optimizer)
            scaler.update()
            scales.setdefault(type(scaler).__name__, []).append(scaler.get_scale())
    assert scales["GradScalerFP16"] == scales["GradScaler"]


@pytest.mark.parametrize("in_step", [False, True])
def test_steps_keep_their_size_while_the_scale_grows_each_time(in_step):
    # RAdam without memory is gradient descent in its first steps: a step is the rate times the gradient.
    param = parameter([8.0], torch.float16)
    optimizer = RAdamFP16([param], lr=1.0, betas=(0.0, 0.999), unscale_in_step=in_step)
    scaler = GradScalerFP16("cpu", init_scale=4.0, growth_interval=1)
    values, scales = [], []
    for _ in range(3):
        optimizer.zero_grad()
        scaler.scale(param.float().sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        values.append(param.item()), scales.append(scaler.get_scale())
    assert values == [7.0, 6.0, 5.0]
    assert scales == [8.0, 16.0, 32.0]


def test_a_state_of_the_scaler_loaded_before_the_first_loss_is_all_there():
    before = GradScalerFP16("cpu", init_scale=32.0, growth_factor=4.0, backoff_factor=0.25, growth_interval=3)
    param = parameter([1.0], torch.float16)
    optimizer = AdamFP16([param])
    for _ in range(2):
        give(param, 1.0, scaler=before)
        before.step(optimizer)
        before.update()
    saved = before.state_dict()
    assert saved["_growth_tracker"] == 2
    after = GradScalerFP16("cpu")
    after.load_state_dict(saved)
    assert after.state_dict() == saved
    give(param, 1.0, scaler=after)
    after.step(optimizer)
    after.update()
    assert after.get_scale() == 128.0


@pytest.mark.parametrize("waits", [True, False])
def test_a_scheduler_of_torch_that_waits_for_a_step_that_was_taken_is_not_warned_of(waits):
    param = half()
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=8.0)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for slope in (INF, 1.0):
            give(param, slope, scaler=scaler)
            before = scaler.get_scale()
            scaler.step(optimizer)
            scaler.update()
            if scaler.get_scale() >= before or not waits:
                schedule.step()
            optimizer.zero_grad()
    of_the_order = [w for w in said if "before `optimizer.step()`" in str(w.message)]
    assert len(of_the_order) == (0 if waits else 1)
    assert schedule.last_epoch == (1 if waits else 2)


# The floor of the scale


def overflow(scaler: GradScalerFP16, optimizer: torch.optim.Optimizer, param: nn.Parameter, times: int) -> None:
    for _ in range(times):
        scaler.scale(param.float().sum())
        param.grad = torch.full_like(param, INF)
        scaler.step(optimizer)
        scaler.update()


def test_400_overflows_in_a_row_do_not_end_the_run():
    param = half(1.0)
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu")
    with pytest.warns(UserWarning, match="scale"):
        overflow(scaler, optimizer, param, 400)
    param.grad = torch.full_like(param, 0.5)
    scaler.step(optimizer)
    scaler.update()
    assert param.item() < 1.0


def test_the_scale_never_falls_below_its_floor():
    param = half(1.0)
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=64.0, min_scale=16.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(130):
            overflow(scaler, optimizer, param, 1)
            assert scaler.get_scale() >= 16.0


def test_the_floor_is_1_unless_it_is_chosen():
    param = half(1.0)
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=4.0)
    with pytest.warns(UserWarning, match="scale"):
        overflow(scaler, optimizer, param, 210)
    assert scaler.get_scale() == 1.0


def test_the_floor_warns_within_100_updates_of_being_reached():
    param = half(1.0)
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=4.0)
    with pytest.warns(UserWarning, match="scale"):
        overflow(scaler, optimizer, param, 100)


def test_a_scale_that_starts_at_its_floor_warns_too_when_every_gradient_overflows():
    param = half(1.0)
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=16.0, min_scale=16.0)
    with pytest.warns(UserWarning, match="scale"):
        overflow(scaler, optimizer, param, 210)


def test_overflows_at_the_floor_that_have_ended_are_not_told_again():
    param = half(1.0)
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=2.0)
    with pytest.warns(UserWarning, match="scale"):
        overflow(scaler, optimizer, param, 100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(110):
            param.grad = torch.ones_like(param)
            scaler.scale(param.float().sum())
            scaler.step(optimizer)
            scaler.update()


def test_a_healthy_run_at_the_floor_does_not_warn(recwarn):
    param = half(1.0)
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=2.0)
    overflow(scaler, optimizer, param, 1)
    assert scaler.get_scale() == 1.0
    for _ in range(210):
        param.grad = torch.ones_like(param)
        scaler.scale(param.float().sum())
        scaler.step(optimizer)
        scaler.update()
    assert not recwarn.list


def test_a_run_that_never_meets_the_floor_does_not_warn(recwarn):
    param = half(1.0)
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=2.0**10)
    for k in range(210):
        param.grad = torch.full_like(param, INF if k % 50 == 0 else 1.0)
        scaler.scale(param.float().sum())
        scaler.step(optimizer)
        scaler.update()
    assert not recwarn.list


def test_the_floor_does_not_hinder_growth():
    param = half(1.0)
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=16.0, min_scale=16.0, growth_interval=2)
    for _ in range(4):
        scaler.scale(param.float().sum())
        param.grad = torch.ones_like(param)
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 64.0


def test_a_scale_set_by_hand_is_taken():
    param = half(1.0)
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=16.0)
    give(param, 1.0, scaler=scaler)
    scaler.step(optimizer)
    scaler.update(512.0)
    assert scaler.get_scale() == 512.0


def test_a_scale_of_a_whole_number_set_by_hand_is_taken():
    param = half(1.0)
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=16.0)
    give(param, 1.0, scaler=scaler)
    scaler.step(optimizer)
    scaler.update(512)
    assert scaler.get_scale() == 512.0


def test_a_scale_set_by_hand_may_be_a_tensor():
    param = half(1.0)
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=16.0)
    give(param, 1.0, scaler=scaler)
    scaler.step(optimizer)
    scaler.update(torch.tensor(512.0))
    assert scaler.get_scale() == 512.0


@pytest.mark.parametrize("scale", [0.5, 0, math.nan])
def test_a_scale_set_by_hand_below_the_floor_is_refused_by_its_name(scale):
    scaler = GradScalerFP16("cpu", init_scale=16.0)
    scaler.scale(torch.ones(()))
    with pytest.raises(ValueError, match="new_scale"):
        scaler.update(scale)


def test_after_update_the_scaler_holds_on_to_no_optimizer():
    param = half(1.0)
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=16.0)
    give(param, 1.0, scaler=scaler)
    scaler.step(optimizer)
    scaler.update()
    gone = weakref.ref(optimizer)
    del optimizer
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("floor", [0.0, -1.0, math.nan, INF])
def test_a_floor_that_cannot_be_is_refused_by_its_name(floor):
    with pytest.raises(ValueError, match="min_scale"):
        GradScalerFP16("cpu", min_scale=floor)


def test_an_initial_scale_below_the_floor_is_refused_by_its_name():
    with pytest.raises(ValueError, match="init_scale"):
        GradScalerFP16("cpu", init_scale=1.0, min_scale=2.0)


# Gradients and their dtype


@pytest.mark.parametrize("overflows", [False, True])
def test_after_step_the_gradient_is_gone_and_the_next_one_has_the_parameters_dtype(overflows):
    param = half(1.0)
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=4.0)
    give(param, INF if overflows else 1.0, scaler=scaler)
    scaler.step(optimizer)
    assert param.grad is None
    (param * 2).sum().backward()
    assert param.grad.dtype is torch.float16


def test_after_unscale_the_gradient_is_float32_and_unscaled():
    param = half(1.0)
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=1024.0)
    give(param, 2e-9, scaler=scaler)
    scaler.unscale_(optimizer)
    assert param.grad.dtype is torch.float32
    assert param.grad.item() == pytest.approx(2e-9, rel=0.02)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_batch_dropped_between_unscale_and_update_leaves_no_trace(set_to_none):
    dropped, never_seen = half(1.0, 2.0), half(1.0, 2.0)
    states = []
    for param, drop in ((dropped, True), (never_seen, False)):
        optimizer, scaler = AdamFP16([param], lr=0.1), GradScalerFP16("cpu", init_scale=16.0)
        for k in range(3):
            optimizer.zero_grad()
            if drop and k == 1:
                give(param, 5.0, 5.0, scaler=scaler)
                scaler.unscale_(optimizer)
                optimizer.zero_grad(set_to_none=set_to_none)
                scaler.update()
                assert param.grad is None or param.grad.dtype is torch.float16
                optimizer.zero_grad()
            give(param, 1.0, -0.5, scaler=scaler)
            scaler.step(optimizer)
            scaler.update()
        states.append(optimizer.state[param])
    assert torch.equal(dropped, never_seen)
    assert torch.equal(states[0]["exp_avg"], states[1]["exp_avg"])


def test_zero_grad_between_unscale_and_step_makes_a_step_without_gradients():
    param = half(1.0)
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=4.0)
    give(param, 1.0, scaler=scaler)
    scaler.unscale_(optimizer)
    optimizer.zero_grad()
    scaler.step(optimizer)
    scaler.update()
    assert param.item() == 1.0
    (param * 2).sum().backward()
    assert param.grad.dtype is torch.float16


def test_the_next_backward_after_a_dropped_batch_gives_float16_gradients():
    param = half(1.0)
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=4.0)
    give(param, 1.0, scaler=scaler)
    scaler.unscale_(optimizer)
    scaler.update()
    give(param, 1.0, scaler=scaler)
    assert param.grad.dtype is torch.float16
    assert param.grad.item() == 4.0


def test_a_deepcopy_of_the_model_after_a_step_is_trained_like_the_original():
    param = half(1.0)
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=4.0)
    give(param, 1.0, scaler=scaler)
    scaler.step(optimizer)
    scaler.update()
    other = copy.deepcopy(param)
    (other.float() * 2.0).sum().backward()
    assert other.grad.dtype is torch.float16


def test_float32_parameters_keep_their_gradient_as_under_torch():
    full, tiny = parameter([1.0], torch.float32), half(1.0)
    optimizer, scaler = AdamFP16([full, tiny]), GradScalerFP16("cpu", init_scale=4.0)
    scaler.scale((full * 3.0).sum() + half_loss(tiny, [1.0])).backward()
    scaler.step(optimizer)
    scaler.update()
    assert full.grad.item() == 3.0
    assert tiny.grad is None


def test_a_model_with_float16_and_float32_parameters_is_clipped_as_one():
    full, tiny = parameter([1.0], torch.float32), half(1.0)
    optimizer, scaler = AdamFP16([full, tiny]), GradScalerFP16("cpu", init_scale=1024.0)
    scaler.scale((full * 3.0).sum() + half_loss(tiny, [4.0])).backward()
    scaler.unscale_(optimizer)
    assert clip_grad_norm_([full, tiny], 1.0).item() == 5.0
    scaler.step(optimizer)
    kept = [optimizer.state[p]["exp_avg"].item() for p in (full, tiny)]
    assert kept == pytest.approx([0.06, 0.08], rel=1e-5)


def test_bfloat16_gradients_are_unscaled_without_losing_range():
    param = parameter([1.0], torch.bfloat16)
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=1024.0)
    give(param, 1e-9, scaler=scaler)
    scaler.unscale_(optimizer)
    clip_grad_norm_([param], 1.0)
    scaler.step(optimizer)
    assert optimizer.state[param]["exp_avg"].item() == pytest.approx(1e-10, rel=5e-3)


def test_gradients_may_be_accumulated_after_a_parameter_went_without_one():
    used, unused = half(1.0), half(1.0)
    optimizer, scaler = AdamFP16([used, unused]), GradScalerFP16("cpu", init_scale=4.0)
    give(used, 1.0, scaler=scaler)
    scaler.step(optimizer)
    scaler.update()
    assert unused.item() == 1.0
    assert used.item() < 1.0


# Several optimizers


def test_an_overflow_in_one_optimizer_skips_only_that_one():
    first, second = half(1.0), half(1.0)
    a, b, scaler = AdamFP16([first]), AdamFP16([second]), GradScalerFP16("cpu", init_scale=4.0)
    give(first, 1.0, scaler=scaler)
    give(second, INF, scaler=scaler)
    scaler.step(a)
    scaler.step(b)
    scaler.update()
    assert first.item() < 1.0 == second.item()
    assert scaler.get_scale() == 2.0


def test_two_optimizers_under_one_scaler_train_as_each_alone():
    together, alone = [half(1.0), half(2.0)], [half(1.0), half(2.0)]
    scaler = GradScalerFP16("cpu", init_scale=64.0)
    a, b = AdamFP16([together[0]]), AdamWarmupCosineDecayFP16([together[1]], warmup=3)
    for _ in range(5):
        a.zero_grad(), b.zero_grad()
        give(together[0], 1.0, scaler=scaler)
        give(together[1], -2.0, scaler=scaler)
        scaler.unscale_(a)
        clip_grad_norm_([together[0]], 0.5)
        scaler.step(b)
        scaler.step(a)
        scaler.update()
    c, d = AdamFP16([alone[0]]), AdamWarmupCosineDecayFP16([alone[1]], warmup=3)
    for _ in range(5):
        alone[0].grad_dtype = torch.float32
        alone[0].grad = torch.tensor([1.0])
        clip_grad_norm_([alone[0]], 0.5)
        alone[1].grad = torch.full_like(alone[1], -2.0)
        c.step(), d.step()
    assert torch.equal(master(a), master(c))
    assert torch.equal(master(b), master(d))


def test_ours_and_torchs_optimizer_may_share_a_scaler():
    ours, theirs = half(1.0), parameter([1.0], torch.float32)
    a, b, scaler = AdamFP16([ours], lr=0.25), torch.optim.SGD([theirs], lr=0.25), GradScalerFP16("cpu", init_scale=4.0)
    give(ours, 1.0, scaler=scaler)
    give(theirs, 1.0, scaler=scaler)
    scaler.step(a)
    scaler.step(b)
    scaler.update()
    assert (ours.item(), theirs.item()) == (0.75, 0.75)


# Torch's own optimizers, torch's own scaler


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_torchs_optimizers_on_half_parameters_keep_torchs_error_with_our_class_in_it(make):
    param = half(1.0)
    optimizer, scaler = make([param]), GradScalerFP16("cpu", init_scale=4.0)
    give(param, 1.0, scaler=scaler)
    with pytest.raises(
        ValueError,
        match=r"Attempting to unscale FP16 gradients\..*GradScalerFP16",
    ):
        scaler.step(optimizer)


def test_torchs_optimizers_find_their_gradients_as_they_were():
    param = half(1.0)
    optimizer, scaler = torch.optim.SGD([param]), GradScalerFP16("cpu", init_scale=4.0)
    give(param, 1.0, scaler=scaler)
    with pytest.raises(ValueError, match="FP16"):
        scaler.unscale_(optimizer)
    assert param.grad.dtype is param.grad_dtype is torch.float16
    assert param.grad.item() == 4.0


def test_the_stock_scaler_refuses_our_optimizer_as_it_refuses_torchs():
    param = half(1.0)
    optimizer, scaler = AdamFP16([param]), torch.amp.GradScaler("cpu", init_scale=4.0)
    give(param, 1.0, scaler=scaler)
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.step(optimizer)


@pytest.mark.parametrize("name", WITH_MASTERS)
def test_the_stock_scaler_trains_with_unscale_in_step(name):
    models = [network(), network()]
    kinds = [(torch.amp.GradScaler, True), (GradScalerFP16, False)]
    states = []
    for model, (scaler_class, in_step) in zip(models, kinds, strict=True):
        optimizer = EVERY_OPTIMIZER[name](model.parameters(), unscale_in_step=in_step)
        scaler = scaler_class("cpu", init_scale=2.0**10)
        for step in range(8):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, step)).backward()
            scaler.step(optimizer)
            scaler.update()
        states.append(state_of(model, optimizer))
    assert all(torch.equal(a, b) for a, b in zip(*states, strict=True))


def test_the_stock_scaler_skips_an_overflow_with_unscale_in_step():
    param = half(1.0)
    optimizer, scaler = AdamFP16([param], unscale_in_step=True), torch.amp.GradScaler("cpu", init_scale=4.0)
    give(param, INF, scaler=scaler)
    scaler.step(optimizer)
    scaler.update()
    assert param.item() == 1.0
    assert optimizer.param_groups[0]["t"] == 0
    assert scaler.get_scale() == 2.0


def test_one_group_with_unscale_in_step_is_enough_for_the_stock_scaler():
    first, second = half(1.0), half(1.0)
    groups = [{"params": [first], "unscale_in_step": True}, {"params": [second]}]
    optimizer, scaler = AdamFP16(groups), torch.amp.GradScaler("cpu", init_scale=4.0)
    give(first, 1.0, scaler=scaler)
    give(second, 1.0, scaler=scaler)
    scaler.step(optimizer)
    assert [optimizer.state[p]["exp_avg"].item() for p in (first, second)] == pytest.approx([0.1, 0.1], rel=1e-6)


def test_unscale_in_step_is_off_by_default():
    assert not AdamFP16([half(1.0)])._step_supports_amp_scaling
    assert AdamFP16([half(1.0)], unscale_in_step=True)._step_supports_amp_scaling


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_unscale_in_step_survives_a_copy(copied):
    assert copied(AdamFP16([half(1.0)], unscale_in_step=True))._step_supports_amp_scaling


@pytest.mark.filterwarnings("ignore:.*master")
@pytest.mark.parametrize("in_step", [False, True])
def test_adam_without_masters_is_trained_by_the_scaler_too(in_step):
    param = half(1.0)
    optimizer, scaler = Adam([param], lr=0.25, unscale_in_step=in_step), GradScalerFP16("cpu", init_scale=65536.0)
    give(param, 1e-9, scaler=scaler)
    scaler.step(optimizer)
    assert param.item() == 0.75


def test_float32_models_are_trained_as_under_torchs_scaler():
    values = []
    for scaler_class in (GradScalerFP16, torch.amp.GradScaler):
        model = network(torch.float32)
        optimizer, scaler = torch.optim.Adam(model.parameters()), scaler_class("cpu", init_scale=256.0)
        for step in range(5):
            optimizer.zero_grad()
            scaler.scale(loss_of(model, step)).backward()
            scaler.step(optimizer)
            scaler.update()
        values.append([p.detach() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*values, strict=True))


# The order of calls


def test_unscale_twice_raises_torchs_error_before_anything_is_converted():
    param, late = half(1.0), half(1.0)
    optimizer, scaler = AdamFP16([param, late]), GradScalerFP16("cpu", init_scale=4.0)
    give(param, 1.0, scaler=scaler)
    scaler.unscale_(optimizer)
    give(late, 1.0, scaler=scaler)
    with pytest.raises(
        RuntimeError, match=r"unscale_\(\) has already been called on this optimizer since the last update\(\)"
    ):
        scaler.unscale_(optimizer)
    assert late.grad.dtype is late.grad_dtype is torch.float16
    assert param.grad.item() == 1.0


def test_unscale_after_step_raises_torchs_error_before_anything_is_converted():
    param = half(1.0)
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=4.0)
    give(param, 1.0, scaler=scaler)
    scaler.step(optimizer)
    give(param, 1.0, scaler=scaler)
    with pytest.raises(RuntimeError, match=r"unscale_\(\) is being called after step\(\)"):
        scaler.unscale_(optimizer)
    assert param.grad.dtype is torch.float16


@pytest.mark.parametrize("in_step", [False, True])
def test_step_twice_raises_torchs_error(in_step):
    param = half(1.0)
    optimizer, scaler = AdamFP16([param], unscale_in_step=in_step), GradScalerFP16("cpu", init_scale=4.0)
    give(param, 1.0, scaler=scaler)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"step\(\) has already been called since the last update\(\)"):
        scaler.step(optimizer)


def test_update_without_anything_raises_torchs_error():
    scaler = GradScalerFP16("cpu")
    scaler.scale(torch.ones(1))
    with pytest.raises(AssertionError, match="No inf checks were recorded prior to update"):
        scaler.update()


def test_unscale_before_scale_raises_torchs_error():
    param = half(1.0)
    param.grad = torch.ones_like(param)
    with pytest.raises(AssertionError, match=r"scaler\.scale"):
        GradScalerFP16("cpu").unscale_(AdamFP16([param]))


def test_step_before_scale_raises_torchs_error():
    param = half(1.0)
    param.grad = torch.ones_like(param)
    with pytest.raises(AssertionError, match=r"scaler\.scale"):
        GradScalerFP16("cpu").step(AdamFP16([param]))


@pytest.mark.parametrize("call", ["step", "unscale_ and step"])
@pytest.mark.parametrize("in_step", [False, True])
def test_no_gradients_at_all_is_said_in_a_sentence(in_step, call):
    optimizer, scaler = AdamFP16([half(1.0)], unscale_in_step=in_step), GradScalerFP16("cpu")
    scaler.scale(torch.ones(1))
    if call != "step":
        scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match=r"no parameter of this AdamFP16 has a gradient: call scaler\.scale"):
        scaler.step(optimizer)


def test_a_second_step_without_new_gradients_is_still_torchs_error():
    param = half(1.0)
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=4.0)
    give(param, 1.0, scaler=scaler)
    scaler.step(optimizer)
    assert param.grad is None
    with pytest.raises(RuntimeError, match="already been called"):
        scaler.step(optimizer)


@pytest.mark.parametrize("how", ["positional", "keyword"])
@pytest.mark.parametrize("in_step", [False, True])
def test_a_closure_is_refused_and_the_weight_stays(how, in_step):
    param = half(1.0)
    optimizer, scaler = AdamFP16([param], lr=1e-2, unscale_in_step=in_step), GradScalerFP16("cpu", init_scale=8.0)
    give(param, 1.0, scaler=scaler)

    def closure():
        optimizer.zero_grad()
        loss = half_loss(param, [-100.0])
        scaler.scale(loss).backward()
        return loss

    with pytest.raises(RuntimeError, match=r"[Cc]losure"):
        scaler.step(optimizer, closure) if how == "positional" else scaler.step(optimizer, closure=closure)
    assert param.item() == 1.0


def test_no_closure_in_the_position_of_one_is_fine():
    param = half(1.0)
    optimizer, scaler = AdamFP16([param], lr=0.25), GradScalerFP16("cpu", init_scale=8.0)
    give(param, 1.0, scaler=scaler)
    scaler.step(optimizer, None)
    assert param.item() == 0.75


def test_no_closure_by_its_keyword_is_fine():
    param = half(1.0)
    optimizer, scaler = AdamFP16([param], lr=0.25), GradScalerFP16("cpu", init_scale=8.0)
    give(param, 1.0, scaler=scaler)
    scaler.step(optimizer, closure=None)
    assert param.item() == 0.75


def test_a_disabled_scaler_passes_everything_through():
    param = half(1.0)
    optimizer, scaler = AdamFP16([param], lr=0.25), GradScalerFP16("cpu", enabled=False)

    def closure():
        optimizer.zero_grad()
        loss = scaler.scale(half_loss(param, [1.0]))
        loss.backward()
        return loss

    scaler.unscale_(optimizer)
    assert scaler.step(optimizer, closure).item() == 1.0
    scaler.update()
    assert param.item() == 0.75
    assert (scaler.get_scale(), scaler.state_dict()) == (1.0, {})


# What a step finds on the optimizer


@pytest.mark.parametrize("found", [1.0, 1, True, torch.tensor(1.0)])
def test_found_inf_may_be_a_plain_number(found):
    param = half(1.0)
    optimizer = AdamFP16([param], unscale_in_step=True)
    param.grad = torch.ones_like(param)
    optimizer.grad_scale, optimizer.found_inf = None, found
    optimizer.step()
    assert param.item() == 1.0
    assert optimizer.param_groups[0]["t"] == 0


@pytest.mark.parametrize("found", [0.0, 0, None, torch.tensor(0.0)])
def test_a_step_is_taken_where_found_inf_is_zero_or_not_there(found):
    param = half(1.0)
    optimizer = AdamFP16([param], lr=0.25, unscale_in_step=True)
    param.grad = torch.ones_like(param)
    optimizer.grad_scale, optimizer.found_inf = None, found
    optimizer.step()
    assert param.item() == 0.75


@pytest.mark.parametrize("scale", [1024.0, torch.tensor(1024.0)])
def test_grad_scale_is_divided_out_in_float32(scale):
    param = half(1.0)
    optimizer = AdamFP16([param], unscale_in_step=True)
    param.grad = torch.full_like(param, 6.1e-5)
    exact = param.grad.item() / 1024
    optimizer.grad_scale, optimizer.found_inf = scale, 0.0
    optimizer.step()
    assert optimizer.state[param]["exp_avg"].item() == pytest.approx(0.1 * exact, rel=1e-6)


@pytest.mark.parametrize("scaler_class", [GradScalerFP16, torch.amp.GradScaler])
@pytest.mark.parametrize("fails", ["step_param", "sparse"])
def test_a_step_that_raises_leaves_no_scale_behind(fails, scaler_class):
    class Failing(AdamFP16):
        def step_param(self, state, group, grad, param):
            raise ArithmeticError("on purpose")

    embedding = nn.Embedding(4, 2, sparse=fails == "sparse").to(torch.float32)
    optimizer = (AdamFP16 if fails == "sparse" else Failing)(embedding.parameters(), unscale_in_step=True)
    scaler = scaler_class("cpu", init_scale=4.0)
    scaler.scale(embedding(torch.tensor([1])).sum()).backward()
    with pytest.raises((ArithmeticError, RuntimeError)):
        scaler.step(optimizer)
    assert not hasattr(optimizer, "grad_scale")
    assert not hasattr(optimizer, "found_inf")


def test_a_step_that_raises_does_not_leave_grad_dtype_changed_after_update():
    class Failing(AdamFP16):
        def step_param(self, state, group, grad, param):
            raise ArithmeticError("on purpose")

    param = half(1.0)
    optimizer, scaler = Failing([param]), GradScalerFP16("cpu", init_scale=4.0)
    give(param, 1.0, scaler=scaler)
    with pytest.raises(ArithmeticError):
        scaler.step(optimizer)
    scaler.update()
    (param * 2).sum().backward()
    assert param.grad.dtype is torch.float16


def test_a_sparse_half_gradient_is_refused_with_a_sentence():
    embedding = nn.Embedding(4, 2, sparse=True).half()
    optimizer, scaler = AdamFP16(embedding.parameters()), GradScalerFP16("cpu", init_scale=4.0)
    scaler.scale(embedding(torch.tensor([1])).float().sum()).backward()
    with pytest.raises(RuntimeError, match="sparse"):
        scaler.step(optimizer)


# The class


def test_it_is_torchs_scaler():
    assert isinstance(GradScalerFP16("cpu"), torch.amp.GradScaler)


def test_training_with_it_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaler, param = GradScalerFP16("cpu", init_scale=4.0), half(1.0)
        optimizer = AdamFP16([param])
        scaler.scale(param.float().sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert param.item() < 1.0


@pytest.mark.parametrize("scale", [1024.0, 1024])
def test_a_number_first_is_the_initial_scale(scale):
    assert GradScalerFP16(scale).get_scale() == 1024.0


def test_the_initial_scale_given_twice_is_refused_with_a_sentence():
    with pytest.raises(TypeError, match=r"1024\.0 is a number and so the init_scale, but init_scale=8\.0 is given"):
        GradScalerFP16(1024.0, init_scale=8.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the default device is CUDA where there is one")
def test_without_a_gpu_it_scales_on_the_cpu_and_says_nothing(recwarn):
    scaler = GradScalerFP16()
    assert scaler.is_enabled()
    assert scaler.scale(torch.ones(())).item() == 2.0**16
    assert not recwarn.list


def test_the_private_names_of_torch_that_it_reads_are_the_listed_ones():
    """Checked on torch 2.13: look at `torch/amp/grad_scaler.py` again when this fails on a newer one."""
    of_torch = set(vars(torch.amp.GradScaler("cpu"))) | set(vars(torch.amp.GradScaler))
    tree = ast.parse(textwrap.dedent(inspect.getsource(GradScalerFP16)))
    read = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr.startswith("_")}
    assert {name for name in read if name in of_torch and not name.startswith("__")} == {"_per_optimizer_states"}


def test_torch_keeps_the_progress_of_an_optimizer_where_it_is_read():
    """Checked on torch 2.13: look at `torch/amp/grad_scaler.py` again when this fails on a newer one."""
    param = parameter([1.0], torch.float32)
    optimizer, scaler = torch.optim.SGD([param]), torch.amp.GradScaler("cpu")
    scaler.scale(param.sum()).backward()
    progress = scaler._per_optimizer_states[id(optimizer)]
    assert (progress["stage"].name, dict(progress["found_inf_per_device"])) == ("READY", {})
    scaler.unscale_(optimizer)
    progress = scaler._per_optimizer_states[id(optimizer)]
    assert (progress["stage"].name, len(progress["found_inf_per_device"])) == ("UNSCALED", 1)
    scaler.step(optimizer)
    assert scaler._per_optimizer_states[id(optimizer)]["stage"].name == "STEPPED"


def test_its_defaults_are_torchs():
    ours, torchs = GradScalerFP16("cpu"), torch.amp.GradScaler("cpu")
    assert ours.state_dict() == torchs.state_dict()


def test_several_outputs_are_scaled_at_once():
    scaled = GradScalerFP16("cpu", init_scale=4.0).scale([torch.ones(()), torch.ones(())])
    assert [s.item() for s in scaled] == [4.0, 4.0]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_of_the_scaler_goes_on_where_the_original_was(copied):
    param = half(1.0)
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=64.0, min_scale=32.0)
    overflow(scaler, optimizer, param, 1)
    other = copied(scaler)
    assert other.get_scale() == 32.0
    with pytest.warns(UserWarning, match="scale"):
        overflow(other, optimizer, param, 210)
    assert other.get_scale() == 32.0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_model_turned_to_another_dtype_after_training_gets_gradients_of_that_dtype(dtype):
    model = nn.Linear(4, 1).half()
    optimizer, scaler = AdamFP16(model.parameters()), GradScalerFP16("cpu", init_scale=4.0)
    scaler.scale(model(torch.ones(2, 4).half()).float().sum()).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    model.to(dtype)
    (model(torch.ones(2, 4, dtype=dtype)).float().sum() * 1e-9).backward()
    assert model.weight.grad.dtype is dtype
    assert (model.weight.grad != 0).all()


def test_a_grad_dtype_that_the_user_has_set_stays():
    param = half(1.0)
    param.grad_dtype = torch.float32
    optimizer, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=4.0)
    for _ in range(2):
        scaler.scale(param.float().sum()).backward()
        assert param.grad.dtype is torch.float32
        scaler.step(optimizer)
        scaler.update()
        assert param.grad_dtype is torch.float32
        optimizer.zero_grad()


def test_a_hook_that_raises_leaves_no_scale_for_the_next_step():
    param = half(1.0)
    optimizer, scaler = AdamFP16([param], unscale_in_step=True), GradScalerFP16("cpu", init_scale=4.0)

    def fail(*_):
        raise ArithmeticError("on purpose")

    hook = optimizer.register_step_pre_hook(fail)
    give(param, 1.0, scaler=scaler)
    with pytest.raises(ArithmeticError):
        scaler.step(optimizer)
    hook.remove()
    assert not hasattr(optimizer, "grad_scale")
    assert not hasattr(optimizer, "found_inf")


@pytest.mark.parametrize("new_scale", [0.5, 0, INF])
def test_a_scale_set_by_hand_under_the_floor_or_infinite_is_refused(new_scale):
    scaler = GradScalerFP16("cpu", init_scale=4.0)
    scaler.scale(torch.ones(()))
    with pytest.raises(ValueError, match="new_scale"):
        scaler.update(new_scale)


def test_a_scale_set_by_hand_may_be_a_whole_number():
    scaler = GradScalerFP16("cpu", init_scale=4.0)
    scaler.scale(torch.ones(()))
    scaler.update(32)
    assert scaler.get_scale() == 32


def test_a_scaler_that_is_off_takes_any_new_scale_and_does_nothing():
    GradScalerFP16("cpu", enabled=False).update(0.5)
