import formulas
import numpy as np
import pytest
import torch
from stepping import PAPER_FORM, feed, numbers, parameter, random_gradients, random_parameter

from labml_opt import Adam, AMSGrad, WeightDecay
from labml_opt.amsgrad import counter_example

FALLING = [1.0, 0.1, 0.1, 0.1]


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_300_float64_steps_equal_torch_amsgrad(decay, maximize):
    ours, theirs = random_parameter(4, 5), random_parameter(4, 5)
    settings = {"lr": 3e-3, "betas": (0.8, 0.99), "maximize": maximize}
    a = AMSGrad([ours], weight_decay=WeightDecay(decay, weight_decouple=False), **settings, **PAPER_FORM)
    b = torch.optim.Adam([theirs], weight_decay=decay, amsgrad=True, **settings)
    gradients = random_gradients(300, 4, 5)
    for mine, other in zip(feed(a, ours, gradients), feed(b, theirs, gradients), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=0)


@pytest.mark.parametrize("optimized", [False, True])
def test_300_float64_steps_equal_the_formula(optimized):
    param, gradients = random_parameter(6), random_gradients(300, 6)
    start = param.detach().numpy().copy()
    a = AMSGrad([param], lr=3e-3, betas=(0.9, 0.9), eps=1e-4, optimized_update=optimized)
    expected = formulas.run(start, gradients, lr=3e-3, betas=(0.9, 0.9), eps=1e-4, optimized=optimized, amsgrad=True)
    for mine, point in zip(feed(a, param, gradients), expected, strict=True):
        np.testing.assert_allclose(mine.numpy(), point.theta, rtol=1e-10)


def test_the_maximum_is_taken_before_the_bias_correction():
    param = parameter([1.0])
    a = AMSGrad([param], lr=1e-2, betas=(0.9, 0.9), **PAPER_FORM)
    assert numbers(feed(a, param, FALLING)) == pytest.approx(
        [0.9900000001, 0.9827452377, 0.9766706704, 0.9712782480], abs=1e-9
    )


def test_adam_without_the_maximum_goes_another_way():
    param = parameter([1.0])
    a = Adam([param], lr=1e-2, betas=(0.9, 0.9), **PAPER_FORM)
    assert numbers(feed(a, param, FALLING))[1] == pytest.approx(0.98239494, abs=1e-8)


def test_switched_off_it_is_adam_to_the_last_bit():
    off, adam = random_parameter(6), random_parameter(6)
    gradients = random_gradients(50, 6)
    a, b = AMSGrad([off], amsgrad=False), Adam([adam])
    assert torch.equal(torch.stack(feed(a, off, gradients)), torch.stack(feed(b, adam, gradients)))


def test_switched_off_it_keeps_no_maximum():
    param = parameter([1.0])
    a = AMSGrad([param], amsgrad=False)
    feed(a, param, [1.0])
    assert "max_exp_avg_sq" not in a.state[param]


def test_it_is_on_by_default():
    assert AMSGrad([parameter([1.0])]).defaults["amsgrad"] is True


def test_the_state_keeps_the_largest_second_moment_so_far():
    param = parameter([1.0])
    a = AMSGrad([param], betas=(0.9, 0.5))
    feed(a, param, [1.0, 0.0, 0.0])
    assert a.state[param]["max_exp_avg_sq"].item() == 0.5
    assert a.state[param]["exp_avg_sq"].item() == 0.125


def test_the_maximum_of_a_half_parameter_is_float32():
    param = parameter([1.0], torch.float16)
    a = AMSGrad([param])
    with pytest.warns(UserWarning, match="master"):
        feed(a, param, [1e-4])
    assert a.state[param]["max_exp_avg_sq"].dtype is torch.float32


def test_one_group_may_switch_it_off():
    on, off = parameter([1.0]), parameter([1.0])
    a = AMSGrad([{"params": [on]}, {"params": [off], "amsgrad": False}])
    on.grad, off.grad = torch.ones_like(on), torch.ones_like(off)
    a.step()
    assert "max_exp_avg_sq" in a.state[on]
    assert "max_exp_avg_sq" not in a.state[off]


def run_the_counter_example(cls: type[Adam]) -> float:
    """Where x is on average in the twentieth cycle of f_t(x) = 1010 x when t mod 101 = 1, else -10 x, on [-1, 1]."""
    x = parameter([0.0])
    optimizer = cls([x], lr=0.05, betas=(0.9, 0.99))
    path = []
    for t in range(1, 20 * 101 + 1):
        x.grad = torch.full_like(x, 1010.0 if t % 101 == 1 else -10.0)
        optimizer.step()
        with torch.no_grad():
            x.clamp_(-1, 1)
        path.append(x.item())
    return sum(path[-101:]) / 101


def test_adam_goes_to_the_worst_point_of_the_papers_counter_example():
    assert run_the_counter_example(Adam) > 0.8


def test_amsgrad_goes_towards_the_best_point_of_the_papers_counter_example():
    assert run_the_counter_example(AMSGrad) < -0.1


@pytest.mark.parametrize("amsgrad", [False, True])
def test_the_experiment_on_the_page_takes_the_steps_of_the_formula(amsgrad):
    path = counter_example(steps=300, amsgrad=amsgrad, lr=0.05)
    theta, expected = 0.0, []
    beta1, beta2, m, v, v_max = 0.9, 0.99, 0.0, 0.0, 0.0
    for t in range(1, 301):
        g = 1010.0 if t % 101 == 1 else -10.0
        m, v = formulas.first_moment(m, g, beta1), formulas.second_moment(v, g, beta2)
        v_max = max(v_max, v)
        theta = formulas.adam_update_optimized(theta, m, v_max if amsgrad else v, t, 0.05, beta1, beta2, 1e-16)
        theta = min(1.0, max(-1.0, float(theta)))
        expected.append(theta)
    assert path == pytest.approx(expected, rel=1e-9, abs=1e-12)
