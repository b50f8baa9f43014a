import formulas
import numpy as np
import pytest
import torch
from stepping import HALVES, RAdamFP16, feed, numbers, parameter, random_gradients, random_parameter
from torch import nn

from labml_opt import Adam, GradScalerFP16, RAdam, WeightDecay
from labml_opt.radam import average_length, rectification


@pytest.mark.parametrize("capturable", [False, True])
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("kind", ["none", "coupled", "decoupled"])
def test_300_float64_steps_equal_torch_radam(kind, maximize, capturable):
    ours, theirs = random_parameter(4, 5), random_parameter(4, 5)
    settings = {"lr": 3e-3, "betas": (0.8, 0.99), "eps": 1e-3, "maximize": maximize}
    decay = 0.0 if kind == "none" else 0.1
    a = RAdam([ours], weight_decay=WeightDecay(decay, kind != "coupled"), capturable=capturable, **settings)
    b = torch.optim.RAdam([theirs], weight_decay=decay, decoupled_weight_decay=kind == "decoupled", **settings)
    gradients = random_gradients(300, 4, 5)
    for mine, other in zip(feed(a, ours, gradients), feed(b, theirs, gradients), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=0)


def test_the_defaults_are_those_of_torch():
    ours, theirs = random_parameter(5), random_parameter(5)
    a, b = RAdam([ours]), torch.optim.RAdam([theirs])
    gradients = random_gradients(30, 5)
    for mine, other in zip(feed(a, ours, gradients), feed(b, theirs, gradients), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=0)


@pytest.mark.parametrize("beta2", [0.5, 0.8, 0.99])
@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("optimized", [False, True])
def test_100_float64_steps_equal_the_formula(optimized, amsgrad, beta2):
    param, gradients = random_parameter(6), random_gradients(100, 6)
    start = param.detach().numpy().copy()
    settings = {"lr": 3e-3, "betas": (0.9, beta2), "eps": 1e-4, "amsgrad": amsgrad}
    a = RAdam([param], optimized_update=optimized, **settings)
    expected = formulas.run(start, gradients, optimized=optimized, rectified=True, **settings)
    for mine, point in zip(feed(a, param, gradients), expected, strict=True):
        np.testing.assert_allclose(mine.numpy(), point.theta, rtol=1e-9)


def test_complex_parameters_equal_torch_radam():
    torch.manual_seed(0)
    value = torch.randn(4, dtype=torch.complex128)
    ours, theirs = nn.Parameter(value.clone()), nn.Parameter(value.clone())
    gradients = torch.randn(20, 4, dtype=torch.complex128)
    mine, other = feed(RAdam([ours]), ours, gradients), feed(torch.optim.RAdam([theirs]), theirs, gradients)
    torch.testing.assert_close(torch.stack(mine), torch.stack(other), rtol=1e-10, atol=0)


@pytest.mark.parametrize("beta2", [0.7, 0.9, 0.999, 0.9999])
def test_the_share_of_a_step_grows_from_0_to_1_and_equals_the_formula(beta2):
    shares = [rectification(beta2, t) for t in range(1, 400)]
    assert shares == pytest.approx([formulas.rectification(beta2, t) for t in range(1, 400)], rel=1e-6)
    assert shares == sorted(shares)
    assert rectification(beta2, 10**7) == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("beta2", [0.0, 0.5, 0.6, 2 / 3])
@pytest.mark.parametrize("capturable", [False, True])
def test_a_memory_of_five_gradients_or_fewer_never_leaves_gradient_descent(beta2, capturable):
    param, t = parameter([1.0]), 10**6
    a = RAdam([param], lr=0.1, betas=(0.0, beta2), capturable=capturable)
    assert average_length(beta2, t) <= 5 + 1e-12
    assert numbers(feed(a, param, [2.0] * 30)) == pytest.approx([1 - 0.2 * t for t in range(1, 31)], rel=1e-6)


def test_the_share_is_the_same_on_the_device():
    counts = torch.tensor([1.0, 4.0, 5.0, 6.0, 100.0, 5000.0])
    on_the_device = [float(rectification(0.999, t)) for t in counts]
    assert on_the_device == pytest.approx([rectification(0.999, int(t)) for t in counts], rel=1e-12)


def test_an_average_of_exactly_four_gradients_is_no_division_by_zero():
    beta2 = 1 - 2.0**-52
    assert average_length(beta2, 3) == 4.0
    assert rectification(beta2, 3) == 0.0
    assert float(rectification(beta2, torch.tensor(3.0))) == 0.0


@pytest.mark.parametrize("capturable", [False, True])
def test_without_the_descent_the_weights_rest_for_five_steps_while_the_moments_fill(capturable):
    resting, moving = parameter([1.0]), parameter([1.0])
    a = RAdam([resting], lr=0.1, degenerated_to_sgd=False, capturable=capturable)
    b = RAdam([moving], lr=0.1)
    still = feed(a, resting, [2.0] * 6)
    feed(b, moving, [2.0] * 6)
    assert numbers(still)[:5] == [1.0] * 5
    assert still[5].item() == pytest.approx(1 - 0.1 * rectification(0.999, 6), rel=1e-8)
    assert torch.equal(a.state[resting]["exp_avg"], b.state[moving]["exp_avg"])


@pytest.mark.parametrize("capturable", [False, True])
def test_a_weight_that_rests_still_decays(capturable):
    param = parameter([1.0])
    a = RAdam([param], lr=0.1, weight_decay=0.5, degenerated_to_sgd=False, capturable=capturable)
    assert numbers(feed(a, param, [1.0, 1.0])) == pytest.approx([0.95, 0.95**2], rel=1e-14)


def test_large_gradients_move_a_weight_further_in_the_first_steps_than_ever_after():
    param = parameter([0.0])
    values = numbers(feed(RAdam([param], lr=1.0), param, [100.0] * 400))
    moves = -np.diff([0.0, *values])
    assert moves[:5].tolist() == pytest.approx([100.0] * 5, rel=1e-12)
    assert moves[5:].max() < 1
    assert formulas.largest_step(1.0, 0.9, 0.999) < 100


@pytest.mark.parametrize("capturable", [False, True])
def test_a_weight_that_never_saw_a_gradient_stays(capturable):
    param = parameter([1.0, 1.0])
    a = RAdam([param], lr=0.1, capturable=capturable)
    assert [value[0].item() for value in feed(a, param, [torch.tensor([0.0, 1.0])] * 8)] == [1.0] * 8


def test_a_layer_unfrozen_late_has_a_warm_up_of_its_own():
    trained, late, fresh = parameter([0.0]), parameter([0.0]), parameter([0.0])
    a = RAdam([trained, late], lr=0.1)
    feed(a, trained, [1.0] * 300)
    trained.grad = None
    assert torch.equal(
        torch.stack(feed(a, late, [0.5] * 8)), torch.stack(feed(RAdam([fresh], lr=0.1), fresh, [0.5] * 8))
    )


def test_long_after_the_beginning_it_takes_adams_steps():
    ours, adam = parameter([0.0]), parameter([0.0])
    a, b = RAdam([ours], lr=0.1, betas=(0.9, 0.9)), Adam([adam], lr=0.1, betas=(0.9, 0.9), eps=1e-8)
    gradients = random_gradients(300, 1)
    mine, other = feed(a, ours, gradients), feed(b, adam, gradients)
    torch.testing.assert_close(mine[-1] - mine[-2], other[-1] - other[-2], rtol=1e-6, atol=0)


def test_one_group_may_rest_where_another_descends():
    one, other = parameter([1.0]), parameter([1.0])
    a = RAdam([{"params": [one]}, {"params": [other], "degenerated_to_sgd": False}], lr=0.1)
    one.grad, other.grad = torch.ones_like(one), torch.ones_like(other)
    a.step()
    assert (one.item(), other.item()) == (0.9, 1.0)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("capturable", [False, True])
def test_masters_take_the_steps_of_a_float32_run(dtype, capturable):
    half = random_parameter(20, dtype=dtype)
    full = nn.Parameter(half.detach().float())
    a, b = RAdamFP16([half], lr=1e-3, capturable=capturable), RAdam([full], lr=1e-3, capturable=capturable)
    gradients = random_gradients(50, 20, dtype=dtype)
    feed(a, half, gradients), feed(b, full, gradients)
    (master,) = a.master_params()
    assert torch.equal(master, full.detach())
    assert torch.equal(half.detach(), master.to(dtype))


@pytest.mark.parametrize("in_step", [False, True])
def test_under_a_scaler_an_overflow_does_not_count_as_one_of_the_five_steps(in_step):
    param = parameter([1.0], torch.float16)
    optimizer = RAdamFP16([param], lr=2.0**-6, unscale_in_step=in_step)
    scaler = GradScalerFP16("cpu", init_scale=8.0)
    for slope in (1.0, float("inf"), 1.0, 1.0, 1.0, 1.0, 1.0):
        optimizer.zero_grad()
        scaler.scale(param.float().sum() * slope).backward()
        scaler.step(optimizer)
        scaler.update()
    (master,) = optimizer.master_params()
    assert optimizer.state[param]["step"] == 6
    assert master.item() == pytest.approx(1 - 2.0**-6 * (5 + rectification(0.999, 6)), rel=1e-6)


@pytest.mark.filterwarnings("ignore:.*master")
def test_a_half_weight_with_gradients_of_zero_stays_what_it_is():
    param = parameter([1.0], torch.float16)
    assert numbers(feed(RAdam([param]), param, [0.0] * 8)) == [1.0] * 8


@pytest.mark.parametrize(("argument", "value"), [("lr", -1.0), ("betas", (0.9, 1.0)), ("eps", -1e-8)])
def test_an_argument_out_of_its_range_is_refused_by_name(argument, value):
    with pytest.raises(ValueError, match=argument):
        RAdam([parameter([1.0])], **{argument: value})
