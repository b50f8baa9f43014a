import formulas
import numpy as np
import pytest
import torch
from stepping import EVERY_OPTIMIZER, PAPER_FORM, feed, numbers, parameter, random_gradients, random_parameter

from labml_opt import Adam, AdamWarmup, GradScalerFP16, WeightDecay


def rates(optimizer: AdamWarmup, param: torch.nn.Parameter, steps: int) -> list[float]:
    """The rate that each of the next steps uses."""
    used = []
    for _ in range(steps):
        feed(optimizer, param, [1.0])
        used.append(optimizer.get_last_lr()[0])
    return used


def test_warm_up_starts_at_one_share_and_reaches_the_top_at_its_last_step():
    param = parameter([1.0])
    used = rates(AdamWarmup([param], lr=1.0, warmup=10), param, 11)
    assert [used[t - 1] for t in (1, 5, 9, 10, 11)] == pytest.approx([0.1, 0.5, 0.9, 1.0, 1.0], abs=1e-12)


def test_the_rate_is_exactly_the_learning_rate_from_the_end_of_warm_up():
    param = parameter([1.0])
    used = rates(AdamWarmup([param], lr=0.3, warmup=7), param, 20)
    assert used[6:] == [0.3] * 14


def test_the_parameter_moves_by_the_rate_of_the_step():
    param = parameter([0.0])
    values = numbers(feed(AdamWarmup([param], lr=1.0, warmup=4), param, [1.0] * 6))
    moves = -np.diff([0.0, *values])
    assert moves.tolist() == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0, 1.0], rel=1e-9)


@pytest.mark.parametrize("warmup", [1, 3, 10, 7000])
def test_steps_in_warm_up_are_bit_equal_to_torch_lambda_lr_with_weight_decay(warmup):
    ours, theirs = random_parameter(5), random_parameter(5)
    settings = {"lr": 3e-3, "weight_decay": WeightDecay(0.1), **PAPER_FORM}
    a, b = AdamWarmup([ours], warmup=warmup, **settings), Adam([theirs], **settings)
    schedule = torch.optim.lr_scheduler.LambdaLR(b, lambda epoch: min(1.0, (epoch + 1) / warmup))
    for gradient in random_gradients(30, 5):
        mine, other = feed(a, ours, [gradient])[0], feed(b, theirs, [gradient])[0]
        assert a.get_last_lr() == schedule.get_last_lr()
        assert torch.equal(mine, other)
        schedule.step()


@pytest.mark.parametrize("decouple", [True, False])
def test_300_steps_equal_torch_adam_under_lambda_lr(decouple):
    ours, theirs = random_parameter(5), random_parameter(5)
    a = AdamWarmup([ours], lr=3e-3, warmup=100, weight_decay=WeightDecay(0.1, weight_decouple=decouple), **PAPER_FORM)
    b = (torch.optim.AdamW if decouple else torch.optim.Adam)([theirs], lr=3e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(b, lambda epoch: min(1.0, (epoch + 1) / 100))
    for gradient in random_gradients(300, 5):
        torch.testing.assert_close(feed(a, ours, [gradient])[0], feed(b, theirs, [gradient])[0], rtol=1e-10, atol=0)
        schedule.step()


def test_weight_decay_follows_the_warm_up():
    param = parameter([1.0])
    a = AdamWarmup([param], lr=0.1, warmup=10, weight_decay=WeightDecay(0.5))
    assert numbers(feed(a, param, [0.0])) == pytest.approx([1 - 0.01 * 0.5], rel=1e-12)


def test_absolute_weight_decay_does_not_follow_the_warm_up():
    param = parameter([1.0])
    a = AdamWarmup([param], lr=0.1, warmup=10, weight_decay=WeightDecay(0.5, absolute=True))
    assert numbers(feed(a, param, [0.0])) == [0.5]


def test_no_warm_up_is_the_default_and_is_adam_to_the_last_bit():
    ours, adam = random_parameter(5), random_parameter(5)
    gradients = random_gradients(20, 5)
    a, b = AdamWarmup([ours]), Adam([adam])
    assert torch.equal(torch.stack(feed(a, ours, gradients)), torch.stack(feed(b, adam, gradients)))


def test_amsgrad_arrives_in_the_scheduled_class():
    ours, theirs = parameter([1.0]), parameter([1.0])
    a = AdamWarmup([ours], lr=1e-2, betas=(0.9, 0.9), amsgrad=True, **PAPER_FORM)
    b = torch.optim.Adam([theirs], lr=1e-2, betas=(0.9, 0.9), amsgrad=True)
    falling = [1.0, 0.1, 0.1, 0.1]
    assert numbers(feed(a, ours, falling)) == pytest.approx(numbers(feed(b, theirs, falling)), rel=1e-10)


@pytest.mark.parametrize("group", [{"lr": 0.2, "warmup": 8}, "defaults", "param_group"])
def test_get_lr_works_on_plain_dictionaries(group):
    a = AdamWarmup([parameter([1.0])], lr=0.2, warmup=8)
    group = (
        {"defaults": a.defaults, "param_group": a.param_groups[0]}.get(group, group)
        if isinstance(group, str)
        else group
    )
    curve = [a.get_lr({"step": t}, group) for t in (1, 4, 8, 9)]
    assert curve == [formulas.warmup_rate(0.2, t, 8) for t in (1, 4, 8, 9)]


def test_get_lr_does_not_touch_the_optimizer():
    param = parameter([1.0])
    a = AdamWarmup([param], lr=0.2, warmup=8)
    feed(a, param, [1.0])
    a.get_lr({"step": 500}, a.param_groups[0])
    assert a.get_last_lr() == [0.2 / 8]
    assert rates(a, param, 1) == [0.2 * (2 / 8)]


def test_the_learning_rate_in_the_group_stays_what_the_user_set():
    param = parameter([1.0])
    a = AdamWarmup([param], lr=0.2, warmup=8)
    feed(a, param, [1.0] * 3)
    assert a.param_groups[0]["lr"] == 0.2


def test_before_the_first_step_the_rate_is_the_one_it_will_use():
    assert AdamWarmup([parameter([1.0])], lr=0.2, warmup=8).get_last_lr() == [0.2 / 8]


def test_each_group_has_its_own_schedule():
    fast, slow = parameter([1.0]), parameter([1.0])
    a = AdamWarmup([{"params": [fast], "warmup": 2}, {"params": [slow], "lr": 2.0}], lr=1.0, warmup=10)
    fast.grad, slow.grad = torch.ones_like(fast), torch.ones_like(slow)
    a.step()
    assert a.get_last_lr() == pytest.approx([0.5, 0.2], rel=1e-12)


def test_a_layer_unfrozen_late_continues_at_the_common_rate():
    trained, late = parameter([0.0]), parameter([0.0])
    a = AdamWarmup([trained, late], lr=1.0, warmup=10)
    feed(a, trained, [1.0] * 7)
    late.grad = torch.ones_like(late)
    a.step()
    assert late.item() == pytest.approx(-0.8, rel=1e-9)


def test_the_schedule_of_a_group_goes_on_while_the_group_has_no_gradient():
    trained, late = parameter([0.0]), parameter([0.0])
    a = AdamWarmup([{"params": [trained]}, {"params": [late]}], lr=1.0, warmup=10)
    feed(a, trained, [1.0] * 7)
    assert a.param_groups[1]["t"] == 7
    late.grad = torch.ones_like(late)
    a.step()
    assert late.item() == pytest.approx(-0.8, rel=1e-9)


def test_bias_correction_of_a_layer_unfrozen_late_starts_at_its_own_first_step():
    trained, late = parameter([0.0]), parameter([0.0])
    a = AdamWarmup([trained, late])
    feed(a, trained, [1.0] * 7)
    late.grad = torch.ones_like(late)
    a.step()
    assert a.state[late]["step"] == 1
    assert a.state[trained]["step"] == 8


def test_a_group_added_later_starts_at_the_optimizers_count():
    first, added = parameter([0.0]), parameter([0.0])
    a = AdamWarmup([first], lr=1.0, warmup=10)
    feed(a, first, [1.0] * 4)
    a.add_param_group({"params": [added]})
    added.grad = torch.ones_like(added)
    a.step()
    assert added.item() == pytest.approx(-0.5, rel=1e-9)


def test_a_group_added_later_may_bring_its_own_count():
    first, added = parameter([0.0]), parameter([0.0])
    a = AdamWarmup([first], lr=1.0, warmup=10)
    feed(a, first, [1.0] * 4)
    a.add_param_group({"params": [added], "t": 0})
    added.grad = torch.ones_like(added)
    a.step()
    assert added.item() == pytest.approx(-0.1, rel=1e-9)


def test_a_group_added_later_may_bring_its_own_warm_up():
    first, added = parameter([0.0]), parameter([0.0])
    a = AdamWarmup([first], lr=1.0)
    a.add_param_group({"params": [added], "warmup": 5, "weight_decay": WeightDecay(0.1)})
    added.grad = torch.ones_like(added)
    a.step()
    assert added.item() == pytest.approx(-0.2, rel=1e-9)


@pytest.mark.filterwarnings("ignore:.*master")
def test_the_default_scale_overflows_a_half_loss_and_then_nothing_but_the_scale_changes():
    param = parameter([1.0], torch.float16)
    optimizer, scaler = AdamWarmup([param], lr=0.1, warmup=10), GradScalerFP16("cpu")
    scaler.scale((param * 0.001).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert param.item() == 1.0
    assert optimizer.state[param].get("step", 0) == 0
    assert optimizer.param_groups[0]["t"] == 0
    assert scaler.get_scale() == 32768


@pytest.mark.filterwarnings("ignore:.*master")
def test_the_step_after_an_overflow_uses_the_first_rate_of_the_warm_up():
    param = parameter([1.0], torch.float16)
    optimizer, scaler = AdamWarmup([param], lr=0.1, warmup=10), GradScalerFP16("cpu")
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale((param * 0.001).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert optimizer.get_last_lr() == [0.1 * (1 / 10)]
    assert param.item() == pytest.approx(0.99, abs=2**-11)


@pytest.mark.parametrize("name", ["AdamWarmup", "AdamWarmupCosineDecay", "Noam"])
def test_a_scheduler_of_torch_on_top_multiplies_the_schedule_of_the_class(name):
    both, own = random_parameter(3), random_parameter(3)
    a, b = EVERY_OPTIMIZER[name]([both], lr=0.1), EVERY_OPTIMIZER[name]([own], lr=0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(a, gamma=0.5)
    for t, gradient in enumerate(random_gradients(8, 3)):
        b.param_groups[0]["lr"] = 0.1 * 0.5**t
        feed(a, both, [gradient]), feed(b, own, [gradient])
        assert torch.equal(both, own)
        assert a.get_last_lr() == [0.5**t * a.get_lr({"step": t + 1}, {**a.param_groups[0], "lr": 0.1})]
        schedule.step()
