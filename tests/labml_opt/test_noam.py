import math

import formulas
import numpy as np
import pytest
import torch
from stepping import HALVES, PAPER_FORM, NoamFP16, feed, numbers, parameter, random_gradients, random_parameter
from torch import nn

from labml_opt import Adam, Noam, WeightDecay


def rates(optimizer: Noam, param: torch.nn.Parameter, steps: int) -> list[float]:
    """The rate that each of the next steps uses."""
    used = []
    for _ in range(steps):
        feed(optimizer, param, [1.0])
        used.append(optimizer.get_last_lr()[0])
    return used


def test_the_papers_setting_gives_the_papers_rates():
    a = Noam([parameter([1.0])], lr=1.0, warmup=4000, d_model=512)
    curve = [a.get_lr({"step": t}, a.defaults) for t in (1, 4000, 16000)]
    assert curve == pytest.approx([1.746928e-7, 6.987712e-4, 3.493856e-4], rel=1e-6)


def test_without_a_warm_up_which_is_the_default_the_rate_falls_from_the_first_step():
    param = parameter([1.0])
    used = rates(Noam([param]), param, 9)
    assert used == pytest.approx([1e-3 * 512**-0.5 * t**-0.5 for t in range(1, 10)], rel=1e-14)


@pytest.mark.parametrize("warmup", [1, 7, 4000])
@pytest.mark.parametrize("d_model", [1, 512])
def test_the_rate_is_highest_at_the_end_of_the_warm_up(warmup, d_model):
    a = Noam([parameter([1.0])], lr=2.0, warmup=warmup, d_model=d_model)
    before, top, after = (a.get_lr({"step": warmup + k}, a.defaults) for k in (-0.5, 0, 1))
    assert before < top > after
    assert top == pytest.approx(2.0 / math.sqrt(d_model * warmup), rel=1e-14)


def test_the_rate_is_a_fifth_of_the_top_after_25_warm_ups():
    a = Noam([parameter([1.0])], warmup=40)
    assert a.get_lr({"step": 1000}, a.defaults) == pytest.approx(a.get_lr({"step": 40}, a.defaults) / 5, rel=1e-14)


def test_a_step_changes_the_answer_to_a_new_input_alike_at_any_width_and_that_to_its_own_by_the_root_of_it():
    """What the page says of $d^{-1/2}$, for the first step of a layer of each width."""
    generator = torch.Generator().manual_seed(0)
    new, own = [], []
    for d in (64, 1024):
        layer = nn.Linear(d, d, bias=False)
        x, slope, other = (torch.randn(rows, d, generator=generator) for rows in (1, 1, 2000))
        nn.init.zeros_(layer.weight)
        layer(x).backward(slope)
        Noam(layer.parameters(), lr=1.0, d_model=d).step()
        new.append(layer(other).std().item())
        own.append(layer(x).abs().mean().item())
    assert new == pytest.approx([1, 1], abs=0.1)
    assert own[1] / own[0] == pytest.approx(math.sqrt(1024 / 64), rel=0.1)


def test_the_parameter_moves_by_the_rate_of_the_step():
    param = parameter([0.0])
    values = numbers(feed(Noam([param], lr=1.0, warmup=3, d_model=16), param, [1.0] * 6))
    expected = [formulas.noam_rate(1.0, t, 3, 16) for t in range(1, 7)]
    assert (-np.diff([0.0, *values])).tolist() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("decouple", [True, False])
def test_100_steps_are_bit_equal_to_adam_under_lambda_lr_and_equal_to_torchs(decouple):
    ours, plain, theirs = (random_parameter(5) for _ in range(3))
    decay = WeightDecay(0.1, weight_decouple=decouple)
    a = Noam([ours], lr=3.0, warmup=30, d_model=64, weight_decay=decay, **PAPER_FORM)
    b = Adam([plain], lr=3.0, weight_decay=decay, **PAPER_FORM)
    c = (torch.optim.AdamW if decouple else torch.optim.Adam)([theirs], lr=3.0, weight_decay=0.1)
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(o, lambda n: 64**-0.5 * min((n + 1) ** -0.5, (n + 1) * 30**-1.5))
        for o in (b, c)
    ]
    for gradient in random_gradients(100, 5):
        mine, same, other = (feed(o, p, [gradient])[0] for o, p in ((a, ours), (b, plain), (c, theirs)))
        assert a.get_last_lr() == schedules[0].get_last_lr()
        assert torch.equal(mine, same)
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=0)
        for schedule in schedules:
            schedule.step()


def test_weight_decay_follows_the_rate():
    param = parameter([1.0])
    a = Noam([param], lr=1.0, warmup=4, d_model=16, weight_decay=0.5)
    assert numbers(feed(a, param, [0.0])) == pytest.approx([1 - 0.5 * formulas.noam_rate(1.0, 1, 4, 16)], rel=1e-14)


def test_get_lr_works_on_plain_dictionaries_and_leaves_the_optimizer_alone():
    param = parameter([1.0])
    a = Noam([param], lr=1.0, warmup=8)
    feed(a, param, [1.0])
    curve = [a.get_lr({"step": t}, {"lr": 0.2, "warmup": 3, "d_model": 64}) for t in (1, 3, 9)]
    assert curve == pytest.approx([formulas.noam_rate(0.2, t, 3, 64) for t in (1, 3, 9)], rel=1e-14)
    assert (a.param_groups[0]["t"], a.param_groups[0]["lr"]) == (1, 1.0)


def test_each_group_has_its_own_width_and_warm_up_and_a_late_layer_the_common_count():
    narrow, wide = parameter([1.0]), parameter([1.0])
    a = Noam([{"params": [narrow]}, {"params": [wide], "d_model": 400, "warmup": 0}], lr=1.0, warmup=5, d_model=100)
    feed(a, narrow, [1.0] * 3)
    wide.grad = torch.ones_like(wide)
    a.step()
    assert a.get_last_lr() == pytest.approx([0.1 * 4 * 5**-1.5, 0.05 * 0.5], rel=1e-14)
    assert wide.item() == pytest.approx(1 - 0.05 * 0.5, rel=1e-12)


def test_the_schedule_is_the_same_on_the_device():
    used = {}
    for capturable in (False, True):
        param = parameter([1.0], torch.float32)
        groups = [{"params": [param]}, {"params": [], "warmup": 0}]
        a = Noam(groups, lr=torch.tensor(0.3), warmup=5, capturable=capturable)
        used[capturable] = []
        for _ in range(12):
            feed(a, param, [1.0])
            used[capturable] += map(float, a.get_last_lr())
    assert used[True] == pytest.approx(used[False], rel=1e-6)


@pytest.mark.parametrize("dtype", HALVES)
def test_masters_take_the_steps_of_a_float32_run(dtype):
    half = random_parameter(20, dtype=dtype)
    full = nn.Parameter(half.detach().float())
    a, b = NoamFP16([half], lr=1.0, warmup=10), Noam([full], lr=1.0, warmup=10)
    gradients = random_gradients(50, 20, dtype=dtype)
    feed(a, half, gradients), feed(b, full, gradients)
    (master,) = a.master_params()
    assert torch.equal(master, full.detach())
    assert torch.equal(half.detach(), master.to(dtype))


@pytest.mark.parametrize("warmup", [-1, math.inf, math.nan])
def test_a_warm_up_out_of_its_range_is_refused_by_name(warmup):
    with pytest.raises(ValueError, match="warmup"):
        Noam([parameter([1.0])], warmup=warmup)


@pytest.mark.parametrize(
    ("d_model", "error"),
    [(0, ValueError), (-8, ValueError), (math.inf, ValueError), (math.nan, ValueError), ("8", TypeError)],
)
def test_a_width_out_of_its_range_is_refused_by_name(d_model, error):
    with pytest.raises(error, match="d_model must be"):
        Noam([parameter([1.0])], d_model=d_model)


def test_a_group_with_a_width_out_of_its_range_is_refused():
    a = Noam([parameter([1.0])])
    with pytest.raises(ValueError, match="d_model"):
        a.add_param_group({"params": [parameter([1.0])], "d_model": 0})
    assert len(a.param_groups) == 1
