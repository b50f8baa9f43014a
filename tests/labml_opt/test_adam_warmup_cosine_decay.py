import copy
import math

import formulas
import pytest
import torch
from printed import code_on_the_page
from stepping import PAPER_FORM, feed, numbers, parameter, random_gradients, random_parameter

from labml_opt import Adam, AdamWarmupCosineDecay, WeightDecay


def curve(times: tuple[float, ...], **settings: float) -> list[float]:
    """The rate at each of the given steps."""
    a = AdamWarmupCosineDecay([parameter([1.0])], **settings)
    return [a.get_lr({"step": t}, a.param_groups[0]) for t in times]


def test_the_rate_never_climbs_back_after_total_steps():
    expected = [0.1, 1.0, 0.999753, 0.5, 0.1, 0.1, 0.1, 0.1, 0.1]
    rates = curve((1, 10, 11, 60, 110, 111, 160, 210, 310), lr=1.0, warmup=10, total_steps=110)
    assert rates == pytest.approx(expected, abs=1e-6)


def test_the_steps_taken_use_these_rates():
    param = parameter([1.0])
    a = AdamWarmupCosineDecay([param], lr=1.0, warmup=10, total_steps=110)
    used = []
    for _ in range(310):
        feed(a, param, [1.0])
        used += a.get_last_lr()
    assert used == pytest.approx([formulas.cosine_rate(1.0, t, 10, 110) for t in range(1, 311)], rel=1e-12)


def test_the_floor_is_met_at_four_fifths_of_the_way_and_kept():
    rates = curve(tuple(range(1, 400)), lr=1.0, warmup=10, total_steps=110)
    assert rates.index(0.1, 10) + 1 == 90
    assert set(rates[89:]) == {0.1}


def test_warm_up_is_the_one_of_adam_warmup():
    assert curve((1, 5, 9, 10), lr=1.0, warmup=10, total_steps=110) == pytest.approx([0.1, 0.5, 0.9, 1.0], abs=1e-12)


def test_the_rate_is_exactly_the_learning_rate_at_the_end_of_warm_up():
    assert curve((7,), lr=0.3, warmup=7, total_steps=100) == [0.3]


def test_the_last_step_of_a_schedule_that_is_all_warm_up_but_one():
    assert curve((10, 11), lr=1.0, warmup=10, total_steps=11) == [1.0, 0.1]


def test_without_warm_up_the_cosine_starts_at_once():
    assert curve((1, 50), lr=1.0, total_steps=100) == pytest.approx([(1 + math.cos(math.pi / 100)) / 2, 0.5], rel=1e-12)


@pytest.mark.parametrize("decouple", [True, False])
def test_300_steps_equal_torch_adam_under_lambda_lr_with_weight_decay(decouple):
    ours, theirs = random_parameter(5), random_parameter(5)
    a = AdamWarmupCosineDecay(
        [ours],
        lr=3e-3,
        warmup=30,
        total_steps=250,
        weight_decay=WeightDecay(0.1, weight_decouple=decouple),
        **PAPER_FORM,
    )
    b = (torch.optim.AdamW if decouple else torch.optim.Adam)([theirs], lr=3e-3, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(b, lambda epoch: formulas.cosine_rate(1.0, epoch + 1, 30, 250))
    for gradient in random_gradients(300, 5):
        torch.testing.assert_close(feed(a, ours, [gradient])[0], feed(b, theirs, [gradient])[0], rtol=1e-10, atol=0)
        schedule.step()


def test_steps_in_warm_up_are_bit_equal_to_lambda_lr():
    ours, theirs = random_parameter(5), random_parameter(5)
    settings = {"lr": 3e-3, "weight_decay": WeightDecay(0.1), **PAPER_FORM}
    a, b = AdamWarmupCosineDecay([ours], warmup=30, total_steps=250, **settings), Adam([theirs], **settings)
    schedule = torch.optim.lr_scheduler.LambdaLR(b, lambda epoch: min(1.0, (epoch + 1) / 30))
    for gradient in random_gradients(30, 5):
        assert torch.equal(feed(a, ours, [gradient])[0], feed(b, theirs, [gradient])[0])
        schedule.step()


def test_with_the_default_length_the_rate_stays_at_the_top():
    assert curve((1, 1000), lr=0.3) == pytest.approx([0.3, 0.3], rel=1e-9)


@pytest.mark.parametrize("group", [{"lr": 0.2, "warmup": 8, "total_steps": 80}, "defaults"])
def test_get_lr_works_on_plain_dictionaries(group):
    a = AdamWarmupCosineDecay([parameter([1.0])], lr=0.2, warmup=8, total_steps=80)
    rates = [a.get_lr({"step": t}, a.defaults if group == "defaults" else group) for t in (1, 8, 40, 90)]
    assert rates == pytest.approx([formulas.cosine_rate(0.2, t, 8, 80) for t in (1, 8, 40, 90)], rel=1e-12)


def test_each_group_has_its_own_schedule():
    short, long = parameter([1.0]), parameter([1.0])
    a = AdamWarmupCosineDecay([{"params": [short], "total_steps": 4}, {"params": [long]}], lr=1.0, total_steps=8)
    for _ in range(4):
        short.grad, long.grad = torch.ones_like(short), torch.ones_like(long)
        a.step()
    assert a.get_last_lr() == pytest.approx([0.1, 0.5], rel=1e-12)


def test_a_run_resumed_in_the_middle_of_the_schedule_is_bit_equal():
    whole, first = random_parameter(5), random_parameter(5)
    gradients = random_gradients(10, 5)
    settings = {"lr": 3e-3, "warmup": 3, "total_steps": 20, "weight_decay": WeightDecay(0.1)}
    feed(AdamWarmupCosineDecay([whole], **settings), whole, gradients)
    a = AdamWarmupCosineDecay([first], **settings)
    feed(a, first, gradients[:5])
    resumed = torch.nn.Parameter(first.detach().clone())
    b = AdamWarmupCosineDecay([resumed], lr=0.7, warmup=1, total_steps=1000)
    b.load_state_dict(copy.deepcopy(a.state_dict()))
    feed(b, resumed, gradients[5:])
    assert torch.equal(resumed, whole)


def test_the_checkpoints_total_steps_wins_over_the_constructors():
    a = AdamWarmupCosineDecay([parameter([1.0])], total_steps=100)
    b = AdamWarmupCosineDecay([parameter([1.0])], total_steps=1000)
    b.load_state_dict(a.state_dict())
    assert b.param_groups[0]["total_steps"] == 100


def test_total_steps_set_by_hand_after_loading_takes_effect_at_once():
    param = parameter([1.0])
    a = AdamWarmupCosineDecay([param], lr=1.0, warmup=2, total_steps=12)
    feed(a, param, [1.0] * 6)
    b = AdamWarmupCosineDecay([param], lr=1.0, warmup=2, total_steps=12)
    b.load_state_dict(a.state_dict())
    b.param_groups[0]["total_steps"] = 1002
    feed(b, param, [1.0])
    assert b.get_last_lr() == pytest.approx([formulas.cosine_rate(1.0, 7, 2, 1002)], rel=1e-12)


def test_the_lines_on_the_page_lengthen_a_resumed_run():
    param = parameter([1.0])
    optimizer = AdamWarmupCosineDecay([param], lr=1.0, warmup=2, total_steps=12)
    feed(optimizer, param, [1.0] * 6)
    exec(code_on_the_page("adam_warmup_cosine_decay", "for group"), {"optimizer": optimizer})
    feed(optimizer, param, [1.0])
    assert optimizer.get_last_lr() == pytest.approx([formulas.cosine_rate(1.0, 7, 2, 200_000)], rel=1e-12)


def test_total_steps_set_by_hand_below_the_warm_up_is_refused_at_the_next_step():
    param = parameter([1.0])
    optimizer = AdamWarmupCosineDecay([param], warmup=5, total_steps=12)
    optimizer.param_groups[0]["total_steps"] = 5
    with pytest.raises(ValueError, match="total_steps must be more than warmup"):
        feed(optimizer, param, [1.0])


def test_amsgrad_arrives_in_the_scheduled_class():
    ours, theirs = parameter([1.0]), parameter([1.0])
    a = AdamWarmupCosineDecay([ours], lr=1e-2, betas=(0.9, 0.9), amsgrad=True, **PAPER_FORM)
    b = torch.optim.Adam([theirs], lr=1e-2, betas=(0.9, 0.9), amsgrad=True)
    falling = [1.0, 0.1, 0.1, 0.1]
    assert numbers(feed(a, ours, falling)) == pytest.approx(numbers(feed(b, theirs, falling)), rel=1e-10)


def test_a_schedule_that_cannot_go_on_stops_the_step_before_any_group_has_moved():
    first, second = torch.nn.Parameter(torch.ones(1)), torch.nn.Parameter(torch.ones(1))
    optimizer = AdamWarmupCosineDecay([{"params": [first]}, {"params": [second]}], warmup=5, total_steps=10)
    optimizer.param_groups[1]["total_steps"] = 4
    first.grad, second.grad = torch.ones(1), torch.ones(1)
    with pytest.raises(ValueError, match="total_steps"):
        optimizer.step()
    assert first.item() == second.item() == 1.0
    assert [group["t"] for group in optimizer.param_groups] == [0, 0]
