import math
import warnings

import formulas
import numpy as np
import pytest
import torch
from stepping import EVERY_OPTIMIZER, HALVES, PAPER_FORM, feed, numbers, parameter, random_gradients, random_parameter
from torch import nn

from labml_opt import Adam, WeightDecay

THREE = [0.1, -0.2, 0.3]


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("kind", ["none", "coupled", "decoupled"])
def test_300_float64_steps_equal_torch_adam_and_adamw(kind, maximize):
    ours, theirs = random_parameter(4, 5), random_parameter(4, 5)
    settings = {"lr": 3e-3, "betas": (0.8, 0.99)}
    decay = 0.0 if kind == "none" else 0.1
    a = Adam(
        [ours],
        weight_decay=WeightDecay(decay, weight_decouple=kind != "coupled"),
        maximize=maximize,
        **settings,
        **PAPER_FORM,
    )
    reference = torch.optim.AdamW if kind == "decoupled" else torch.optim.Adam
    b = reference([theirs], weight_decay=decay, maximize=maximize, **settings)
    gradients = random_gradients(300, 4, 5)
    for mine, other in zip(feed(a, ours, gradients), feed(b, theirs, gradients), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=0)


@pytest.mark.parametrize("optimized", [False, True])
def test_300_float64_steps_equal_the_papers_formula(optimized):
    param, gradients = random_parameter(6), random_gradients(300, 6)
    start = param.detach().numpy().copy()
    a = Adam([param], lr=3e-3, eps=1e-4, optimized_update=optimized)
    expected = formulas.run(start, gradients, lr=3e-3, eps=1e-4, optimized=optimized)
    for mine, point in zip(feed(a, param, gradients), expected, strict=True):
        np.testing.assert_allclose(mine.numpy(), point.theta, rtol=1e-10)


def test_the_moments_kept_in_the_state_are_the_papers():
    param, gradients = random_parameter(6), random_gradients(20, 6)
    a = Adam([param], betas=(0.8, 0.99))
    feed(a, param, gradients)
    last = formulas.run(np.zeros(6), gradients, betas=(0.8, 0.99))[-1]
    np.testing.assert_allclose(a.state[param]["exp_avg"].numpy(), last.m, rtol=1e-12)
    np.testing.assert_allclose(a.state[param]["exp_avg_sq"].numpy(), last.v, rtol=1e-12)
    assert a.state[param]["step"] == 20


def test_epsilon_is_added_to_the_root_of_the_corrected_moment_in_the_paper_form():
    param = parameter([1.0])
    a = Adam([param], lr=1e-2, eps=0.1, optimized_update=False)
    assert numbers(feed(a, param, THREE)) == pytest.approx([0.995, 0.9972427858, 0.9948962839], abs=1e-9)


def test_epsilon_is_added_before_the_correction_in_the_optimized_form():
    param = parameter([1.0])
    a = Adam([param], lr=1e-2, eps=0.1, optimized_update=True)
    assert numbers(feed(a, param, THREE)) == pytest.approx([0.9996934657, 0.9999352212, 0.9995721319], abs=1e-9)


def test_the_optimized_form_is_the_paper_form_when_epsilon_is_multiplied_by_the_root_of_the_correction():
    paper, optimized = parameter([1.0]), parameter([1.0])
    a = Adam([paper], lr=1e-2, eps=0.1, optimized_update=False)
    b = Adam([optimized], lr=1e-2, eps=0.1, optimized_update=True)
    for t, gradient in enumerate(THREE, start=1):
        b.param_groups[0]["eps"] = 0.1 * math.sqrt(1 - 0.999**t)
        assert feed(b, optimized, [gradient])[0].item() == pytest.approx(
            feed(a, paper, [gradient])[0].item(), rel=1e-12
        )


def test_the_defaults_are_the_ancestors():
    defaults = Adam([parameter([1.0])]).defaults
    chosen = {name: defaults[name] for name in ("lr", "betas", "eps", "weight_decay", "optimized_update")}
    assert chosen == {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-16, "weight_decay": 0.0, "optimized_update": True}


def test_decoupled_decay_shrinks_the_weight_before_the_update():
    param = parameter([1.0])
    a = Adam([param], lr=1e-2, weight_decay=WeightDecay(0.1), **PAPER_FORM)
    assert numbers(feed(a, param, THREE)) == pytest.approx([0.9890000010, 0.9916720360, 0.9872479534], abs=1e-9)


def test_coupled_decay_is_added_to_the_gradient_before_the_moments():
    param = parameter([1.0])
    a = Adam([param], lr=1e-2, weight_decay=WeightDecay(0.1, weight_decouple=False), **PAPER_FORM)
    assert numbers(feed(a, param, THREE)) == pytest.approx([0.9900000005, 0.9873751972, 0.9808115947], abs=1e-9)


def test_absolute_decay_does_not_depend_on_the_learning_rate():
    param = parameter([1.0])
    a = Adam([param], lr=0.0, weight_decay=WeightDecay(0.1, absolute=True))
    assert numbers(feed(a, param, THREE)) == pytest.approx([0.9, 0.81, 0.729], rel=1e-12)


def test_a_number_as_weight_decay_means_decoupled_decay():
    number, named = parameter([1.0]), parameter([1.0])
    a, b = Adam([number], weight_decay=0.1), Adam([named], weight_decay=WeightDecay(0.1))
    assert numbers(feed(a, number, THREE)) == numbers(feed(b, named, THREE))


def test_a_groups_own_weight_decay_is_honoured():
    decayed, spared = parameter([1.0]), parameter([1.0])
    a = Adam(
        [{"params": [decayed]}, {"params": [spared], "weight_decay": 0.0}],
        lr=1e-2,
        weight_decay=WeightDecay(0.1),
        **PAPER_FORM,
    )
    decayed.grad, spared.grad = torch.full_like(decayed, 0.1), torch.full_like(spared, 0.1)
    a.step()
    assert [decayed.item(), spared.item()] == pytest.approx([0.9890000010, 0.9900000010], abs=1e-9)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lr", 0.1),
        ("betas", (0.5, 0.6)),
        ("eps", 0.3),
        ("weight_decay", WeightDecay(0.2, weight_decouple=False)),
        ("weight_decay", WeightDecay(0.2, absolute=True)),
        ("optimized_update", False),
        ("maximize", True),
    ],
)
def test_each_setting_of_a_group_acts_like_the_constructors(name, value):
    in_group, in_constructor = parameter([1.0]), parameter([1.0])
    start = {"lr": 1e-2, "eps": 0.01}
    a = Adam([{"params": [in_group], name: value}], **start)
    b = Adam([in_constructor], **{**start, name: value})
    assert numbers(feed(a, in_group, THREE)) == numbers(feed(b, in_constructor, THREE))
    assert numbers([in_group]) != numbers(feed(Adam([other := parameter([1.0])], **start), other, THREE))[-1:]


def test_a_setting_changed_by_hand_between_steps_takes_effect_at_once():
    changed, reference = parameter([1.0]), parameter([1.0])
    a, b = Adam([changed], lr=1e-2, **PAPER_FORM), torch.optim.Adam([reference], lr=1e-2)
    feed(a, changed, THREE), feed(b, reference, THREE)
    a.param_groups[0]["lr"] = b.param_groups[0]["lr"] = 0.5
    a.param_groups[0]["betas"] = b.param_groups[0]["betas"] = (0.5, 0.6)
    assert numbers(feed(a, changed, THREE)) == pytest.approx(numbers(feed(b, reference, THREE)), rel=1e-10)


def test_a_torch_scheduler_drives_the_rate():
    ours, theirs = parameter([1.0]), parameter([1.0])
    a, b = Adam([ours], lr=0.1, **PAPER_FORM), torch.optim.Adam([theirs], lr=0.1)
    schedules = [torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.5, total_steps=10) for o in (a, b)]
    for _ in range(9):
        assert feed(a, ours, [0.3])[0].item() == pytest.approx(feed(b, theirs, [0.3])[0].item(), rel=1e-10)
        for schedule in schedules:
            schedule.step()


def test_the_first_step_is_the_learning_rate_whatever_the_size_of_the_gradient():
    param = parameter([1.0, 1.0, 1.0, 1.0])
    param.grad = torch.tensor([1e-9, 1e-3, 1.0, 1e6], dtype=torch.float64)
    Adam([param], lr=1e-2).step()
    assert param.tolist() == pytest.approx([0.99] * 4, rel=1e-6)


def after_a_long_silence(param: nn.Parameter) -> Adam:
    """Adam after 20,000 gradients of zero, of which only the count remains."""
    a = Adam([param], lr=1.0)
    feed(a, param, [0.0])
    a.state[param]["step"] = 20_000
    return a


def test_gradients_that_grow_by_beta2_over_beta1_reach_the_bound_on_a_step():
    param = parameter([0.0])
    a = after_a_long_silence(param)
    values = numbers(feed(a, param, [(0.999 / 0.9) ** k for k in range(400)]))
    bound = formulas.largest_step(1.0, 0.9, 0.999)
    assert bound == pytest.approx(7.27, abs=0.005)
    assert values[-2] - values[-1] == pytest.approx(bound, rel=1e-3)


def test_one_gradient_after_a_long_silence_moves_3_16_learning_rates():
    param = parameter([0.0])
    a = after_a_long_silence(param)
    assert -feed(a, param, [1.0])[0].item() == pytest.approx(3.16, abs=0.005)


@pytest.mark.parametrize("dtype", HALVES)
def test_moments_of_half_parameters_are_float32(dtype):
    param = parameter([1.0], dtype)
    a = Adam([param])
    with pytest.warns(UserWarning, match="master"):
        feed(a, param, [1e-4])
    assert a.state[param]["exp_avg"].dtype is a.state[param]["exp_avg_sq"].dtype is torch.float32
    assert a.state[param]["exp_avg_sq"].item() == pytest.approx(1e-11, rel=0.01)


def test_moments_of_float64_parameters_are_float64():
    param = parameter([1.0])
    a = Adam([param])
    feed(a, param, [1.0])
    assert a.state[param]["exp_avg"].dtype is a.state[param]["exp_avg_sq"].dtype is torch.float64


@pytest.mark.filterwarnings("ignore:.*master")
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", EVERY_OPTIMIZER)
def test_a_zero_gradient_leaves_a_half_parameter_exactly_where_it_is(name, dtype):
    param = parameter([1.0], dtype)
    values = feed(EVERY_OPTIMIZER[name]([param], lr=1e-3), param, [0.0] * 8)
    assert numbers(values) == [1.0] * 8


@pytest.mark.parametrize("dtype", HALVES)
def test_a_half_parameter_without_a_master_does_not_move_when_the_step_is_small(dtype):
    param = parameter([1.0], dtype)
    a = Adam([param], lr=1e-4)
    with pytest.warns(UserWarning, match="master"):
        values = feed(a, param, [1.0] * 100)
    assert values[-1].item() == 1.0


def test_half_parameters_without_masters_warn_once():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).half()
    a = Adam(model.parameters())
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for _ in range(3):
            for param in model.parameters():
                param.grad = torch.ones_like(param)
            a.step()
    said = [str(w.message) for w in heard if "master" in str(w.message)]
    assert len(said) == 1
    assert "AdamFP16" in said[0]


def test_float32_and_float64_parameters_do_not_warn(recwarn):
    param, wide = parameter([1.0], torch.float32), parameter([1.0])
    feed(Adam([param, wide]), param, [1.0])
    assert not recwarn.list


def test_a_subclass_may_replace_the_moments_alone():
    class SignOfGradient(Adam):
        def get_mv(self, state, group, grad):
            return grad, torch.ones_like(grad)

    param = parameter([1.0])
    a = SignOfGradient([param], lr=0.1, betas=(0.0, 0.0), eps=0.0)
    assert numbers(feed(a, param, [2.0, -1.0])) == pytest.approx([0.8, 0.9], rel=1e-12)


def test_a_subclass_may_replace_the_update_alone():
    class PlainMomentum(Adam):
        def adam_update(self, state, group, param, m, v):
            param.sub_(m, alpha=group["lr"])

    param = parameter([1.0])
    a = PlainMomentum([param], lr=0.1)
    assert numbers(feed(a, param, [1.0, 1.0])) == pytest.approx([0.99, 0.971], rel=1e-12)
