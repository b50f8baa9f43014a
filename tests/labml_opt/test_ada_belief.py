import formulas
import numpy as np
import pytest
import torch
from stepping import feed, numbers, parameter, random_gradients, random_parameter

from labml_opt import AdaBelief, Adam, MasterWeights, RAdam, WeightDecay

THREE = [0.1, -0.2, 0.3]


class AdaBeliefFP16(MasterWeights, AdaBelief):
    """What a reader writes to give AdaBelief master weights."""


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("kind", ["decoupled", "coupled", "absolute"])
@pytest.mark.parametrize("rectify", [False, True])
@pytest.mark.parametrize("amsgrad", [False, True])
def test_60_float64_steps_equal_the_formula(amsgrad, rectify, kind, maximize):
    param, gradients = random_parameter(6), random_gradients(60, 6)
    start = param.detach().numpy().copy()
    decay = WeightDecay(0.01, weight_decouple=kind != "coupled", absolute=kind == "absolute")
    settings = {"lr": 3e-3, "betas": (0.9, 0.95), "eps": 1e-3, "rectify": rectify, "amsgrad": amsgrad}
    optimizer = AdaBelief([param], weight_decay=decay, maximize=maximize, **settings)
    expected = formulas.run_ada_belief(start, gradients, decay=0.01, decay_kind=kind, maximize=maximize, **settings)
    for mine, theta in zip(feed(optimizer, param, gradients), expected, strict=True):
        np.testing.assert_allclose(mine.numpy(), theta, rtol=1e-10)


@pytest.mark.parametrize("rectify", [False, True])
def test_with_an_epsilon_that_does_not_matter_steps_equal_those_of_the_authors_code(rectify):
    """Theirs adds epsilon to the mean in place, step after step, and rectifies as `torch.optim.RAdam` does."""
    param, gradients = random_parameter(6), random_gradients(40, 6)
    theta, m, s = param.detach().clone(), torch.zeros(6).double(), torch.zeros(6).double()
    optimizer = AdaBelief([param], lr=1e-2, eps=1e-30, weight_decay=0.1, rectify=rectify)
    for t, (gradient, mine) in enumerate(zip(gradients, feed(optimizer, param, gradients), strict=True), start=1):
        theta.mul_(1 - 1e-2 * 0.1)
        m.mul_(0.9).add_(gradient, alpha=0.1)
        s.mul_(0.999).addcmul_(gradient - m, gradient - m, value=0.001).add_(1e-30)
        if not rectify:
            theta.addcdiv_(m, s.sqrt() / (1 - 0.999**t) ** 0.5 + 1e-30, value=-1e-2 / (1 - 0.9**t))
        else:
            longest = 2 / (1 - 0.999) - 1
            length = longest - 2 * t * 0.999**t / (1 - 0.999**t)
            size = 1e-2 / (1 - 0.9**t)
            if length >= 5:
                share = (length - 4) / (longest - 4) * (length - 2) / length * longest / (longest - 2)
                theta.addcdiv_(m, s.sqrt() + 1e-30, value=-size * ((1 - 0.999**t) * share) ** 0.5)
            else:
                theta.add_(m, alpha=-size)
        torch.testing.assert_close(mine, theta, rtol=1e-10, atol=0)


def test_the_defaults_are_rectified_without_a_maximum_and_begin_as_gradient_descent():
    param = parameter([1.0])
    optimizer = AdaBelief([param], lr=1e-2)
    assert optimizer.defaults["amsgrad"] is False
    assert numbers(feed(optimizer, param, [0.1] * 8)) == pytest.approx(
        [0.999, 0.998, 0.997, 0.996, 0.995, 0.9946382716, 0.9941603788, 0.9935721438], abs=1e-9
    )


def test_unrectified_steps_have_the_numbers_of_the_paper():
    param = parameter([1.0])
    values = numbers(feed(AdaBelief([param], lr=1e-2, rectify=False), param, THREE))
    assert values == pytest.approx([0.9888888889, 0.9927994987, 0.9891250762], abs=1e-9)


def test_epsilon_is_not_accumulated_in_the_mean():
    param = parameter([1.0])
    optimizer = AdaBelief([param], lr=1e-3, eps=1e-8, rectify=False)
    assert numbers(feed(optimizer, param, [0.1] * 1000))[-1] == pytest.approx(-10.98203343, abs=1e-8)
    assert optimizer.state[param]["exp_avg_var"].item() == pytest.approx(1.57583753e-5, rel=1e-8)


def test_coupled_decay_is_in_the_gradient_that_is_forecast():
    param = parameter([1.0])
    decay = WeightDecay(0.1, weight_decouple=False)
    values = numbers(feed(AdaBelief([param], lr=1e-2, rectify=False, weight_decay=decay), param, THREE))
    assert values == pytest.approx([0.988888889, 0.986098152, 0.978776045], abs=1e-9)


def test_a_steady_gradient_takes_the_steps_that_the_page_says():
    param = parameter([0.0])
    optimizer = AdaBelief([param], lr=1.0)
    walked = [0.0, *(-value for value in numbers(feed(optimizer, param, [0.1] * 1000)))]
    assert walked[100] - walked[99] == pytest.approx(1.1, abs=0.05)
    assert walked[1000] - walked[999] == pytest.approx(13, abs=0.1)


def test_in_noise_alone_the_surprise_is_085_of_the_square_and_the_step_8_percent_longer_than_adams():
    ours, adams = (parameter([0.0] * 2000) for _ in range(2))
    a, b = AdaBelief([ours], rectify=False), Adam([adams])
    generator = torch.Generator().manual_seed(0)
    for _ in range(1000):
        ours.grad = adams.grad = torch.randn(2000, generator=generator, dtype=torch.float64)
        before = ours.detach().clone(), adams.detach().clone()
        a.step()
        b.step()
    ratio = a.state[ours]["exp_avg_var"].mean() / b.state[adams]["exp_avg_sq"].mean()
    step, adams_step = ((param.detach() - old).norm() for param, old in zip((ours, adams), before, strict=True))
    assert ratio.item() == pytest.approx(0.853, abs=0.002)
    assert (step / adams_step).item() == pytest.approx(1.083, abs=0.003)


def test_the_size_of_a_steady_gradient_cancels():
    walked = []
    for size in (1e-3, 1e3):
        param = parameter([0.0])
        walked.append(numbers(feed(AdaBelief([param], lr=1.0, rectify=False), param, [size] * 100))[-1])
    assert walked[0] == pytest.approx(walked[1], rel=1e-6)


def test_the_maximum_never_falls_and_is_kept_without_epsilon():
    param = parameter([0.0])
    optimizer = AdaBelief([param], betas=(0.5, 0.5), eps=0.1, amsgrad=True)
    feed(optimizer, param, [1.0, 0.5, 0.5])
    state = optimizer.state[param]
    assert state["max_exp_avg_var"].item() == 0.5 * 0.5**2
    assert state["exp_avg_var"].item() < state["max_exp_avg_var"].item()
    assert "max_exp_avg_sq" not in state


@pytest.mark.parametrize("rest", [False, True])
def test_without_the_descent_of_the_first_steps_the_weights_rest(rest):
    param = parameter([1.0])
    values = numbers(feed(AdaBelief([param], degenerate_to_sgd=not rest), param, [0.1] * 6))
    assert (values[4] == 1.0) is rest
    assert values[5] < values[4]


def test_one_group_may_be_rectified_and_another_not():
    a, b = parameter([1.0]), parameter([1.0])
    optimizer = AdaBelief([{"params": [a]}, {"params": [b], "rectify": False}], lr=0.01)
    a.grad, b.grad = torch.full_like(a, 0.1), torch.full_like(b, 0.1)
    optimizer.step()
    assert (a.item(), b.item()) == pytest.approx((1 - 0.001, 1 - 0.01 / 0.9), rel=1e-9)


def test_a_half_parameter_without_a_gradient_stands_still():
    param = parameter([1.0], torch.float16)
    with pytest.warns(UserWarning, match="master"):
        assert numbers(feed(AdaBelief([param]), param, [0.0] * 8)) == [1.0] * 8


@pytest.mark.parametrize("rectify", [False, True])
def test_half_parameters_with_masters_follow_float32(rectify):
    gradients = random_gradients(30, 20, dtype=torch.float16)
    half = random_parameter(20, dtype=torch.float16)
    full = torch.nn.Parameter(half.detach().float())
    a, b = AdaBeliefFP16([half], rectify=rectify), AdaBelief([full], rectify=rectify)
    feed(a, half, gradients), feed(b, full, gradients)
    assert torch.equal(next(iter(a.master_params())), full)
    assert torch.equal(half, full.half())


def test_a_complex_parameter_is_two_real_ones():
    values, gradients = random_parameter(5, 2), random_gradients(12, 5, 2)
    whole = torch.nn.Parameter(torch.view_as_complex(values.detach().clone()))
    feed(AdaBelief([values]), values, gradients)
    feed(AdaBelief([whole]), whole, [torch.view_as_complex(gradient) for gradient in gradients])
    assert torch.equal(torch.view_as_real(whole.detach()), values)


@pytest.mark.parametrize(("saved_by", "loaded_into"), [(RAdam, AdaBelief), (AdaBelief, RAdam)])
def test_a_checkpoint_of_radam_is_not_taken_for_one_of_adabelief(saved_by, loaded_into):
    param = parameter([1.0])
    a = saved_by([param])
    feed(a, param, [1.0])
    with pytest.raises(ValueError, match=r"exp_avg_|rectify"):
        loaded_into([parameter([1.0])]).load_state_dict(a.state_dict())
