"""Each printed equation beside the same rule as a float64 function, and the class beside both."""

import inspect
import math
import re
from collections.abc import Callable

import formulas
import numpy as np
import pytest
import torch
from printed import PRINTED, code_on_the_page, display_equations
from stepping import PAPER_FORM, SophiaOfEveryStep, feed, half_loss, parameter, random_gradients, random_parameter
from torch import nn

from labml_opt import (
    AdaBelief,
    Adam,
    AdamFP16,
    AdamWarmup,
    AdamWarmupCosineDecay,
    AMSGrad,
    GradScalerFP16,
    Noam,
    RAdam,
    Sophia,
    WeightDecay,
    adam,
    radam,
)
from labml_opt.amsgrad import counter_example
from labml_opt.split_master import join, split

CARRIED_OUT: dict[str, set[str]] = {page: set() for page in PRINTED}


def prints(page: str, name: str) -> Callable:
    """Mark a test as the one that carries out this equation, which the page must print."""
    CARRIED_OUT[page].add(name)
    return pytest.mark.parametrize(("page", "name"), [pytest.param(page, name, id=f"{page}: {name}")])


def is_printed(page: str, name: str) -> bool:
    return PRINTED[page][name] in display_equations(page)


def close(ours: torch.Tensor, theirs: object, rtol: float = 1e-12) -> None:
    np.testing.assert_allclose(ours.detach().double().numpy(), np.asarray(theirs), rtol=rtol)


@pytest.mark.parametrize("page", PRINTED)
def test_every_display_equation_of_a_page_is_carried_out_here(page):
    assert set(display_equations(page)) == {PRINTED[page][name] for name in CARRIED_OUT[page]}


# optimizer


@prints("optimizer", "step")
def test_step_with_decay(page, name):
    def rule(theta, alpha_t, decay, u_t):
        return (1 - alpha_t * decay) * theta - alpha_t * u_t

    assert is_printed(page, name)
    param, gradients = random_parameter(5), random_gradients(6, 5)
    a = AdamWarmup([param], lr=0.1, warmup=4, weight_decay=0.5, **PAPER_FORM)
    theta, m, v = param.detach().numpy().copy(), np.zeros(5), np.zeros(5)
    for t, gradient in enumerate(gradients, start=1):
        g = gradient.numpy()
        m, v = formulas.first_moment(m, g, 0.9), formulas.second_moment(v, g, 0.999)
        u = formulas.corrected(m, 0.9, t) / (np.sqrt(formulas.corrected(v, 0.999, t)) + 1e-8)
        theta = rule(theta, 0.1 * min(1, t / 4), 0.5, u)
        close(feed(a, param, [gradient])[0], theta)


@prints("optimizer", "coupled decay")
def test_coupled_decay(page, name):
    def rule(g, decay, theta):
        return g + decay * theta

    assert is_printed(page, name)
    theta, g = torch.tensor([2.0, -3.0], dtype=torch.float64), torch.tensor([0.5, 0.25], dtype=torch.float64)
    decay = WeightDecay(0.1, weight_decouple=False)
    close(decay(theta, g, {"lr": 0.3, **decay.defaults()}), rule(g.numpy(), 0.1, theta.numpy()))


@prints("optimizer", "decoupled decay")
def test_decoupled_decay(page, name):
    def rule(theta, alpha_t, decay):
        return (1 - alpha_t * decay) * theta

    assert is_printed(page, name)
    theta = torch.tensor([2.0, -3.0], dtype=torch.float64)
    expected = rule(theta.numpy().copy(), 0.3, 0.1)
    WeightDecay()(theta, torch.zeros(2), {"lr": 0.3, **WeightDecay(0.1).defaults()})
    close(theta, expected)


class Recorder(AdamFP16):
    """Keeps the gradients that step_param is handed."""

    def step_param(self, state, group, grad, param):
        state["seen"] = grad.clone()


@prints("optimizer", "unscaling")
def test_unscaling_inside_the_step(page, name):
    def rule(scale, gradient):
        return np.float16(scale * gradient).astype(np.float64) / scale

    assert is_printed(page, name)
    slopes = [3e-8, -1e-5, 0.7]
    param = nn.Parameter(torch.ones(3, dtype=torch.float16))
    a, scaler = Recorder([param], unscale_in_step=True), GradScalerFP16("cpu", init_scale=1024.0)
    scaler.scale(half_loss(param, slopes)).backward()
    scaler.step(a)
    close(a.state[param]["seen"], rule(1024.0, np.float32(slopes)), rtol=1e-6)


@pytest.mark.filterwarnings("ignore:.*master")
@prints("optimizer", "rounding")
def test_rounding_to_the_dtype_of_the_parameter(page, name):
    def rule(theta):
        return np.float16(theta)

    assert is_printed(page, name)
    param = random_parameter(50, dtype=torch.float16)
    start, gradient = param.detach().double().numpy().copy(), torch.ones(50)
    feed(Adam([param], lr=0.01), param, [gradient])
    theta = formulas.run(start, [gradient.double().numpy()], lr=0.01)[-1].theta
    np.testing.assert_array_equal(param.detach().numpy(), rule(np.float32(theta)))


# adam


@prints("adam", "paper's step")
def test_paper_form(page, name):
    def rule(theta, alpha, m_hat, v_hat, eps):
        return theta - alpha * m_hat / (np.sqrt(v_hat) + eps)

    assert is_printed(page, name)
    param, gradients = random_parameter(5), random_gradients(8, 5)
    a = Adam([param], lr=0.1, eps=0.01, optimized_update=False)
    for t, gradient in enumerate(gradients, start=1):
        theta = param.detach().numpy().copy()
        feed(a, param, [gradient])
        m_hat = a.state[param]["exp_avg"].numpy() / (1 - 0.9**t)
        v_hat = a.state[param]["exp_avg_sq"].numpy() / (1 - 0.999**t)
        close(param, rule(theta, 0.1, m_hat, v_hat, 0.01))


@prints("adam", "bound")
def test_no_step_is_longer_than_the_bound(page, name):
    def rule(alpha, beta1, beta2):
        return alpha * (1 - beta1) / math.sqrt((1 - beta2) * (1 - beta1**2 / beta2))

    assert is_printed(page, name)
    bound = rule(1.0, 0.9, 0.999)
    assert bound == pytest.approx(7.27, abs=0.005)
    param = parameter([0.0] * 50)
    a = Adam([param], lr=1.0)
    feed(a, param, [torch.zeros(50)])
    a.state[param]["step"] = 20_000
    ratios = torch.linspace(0.5, 1.5, 50, dtype=torch.float64)
    longest = torch.zeros(50, dtype=torch.float64)
    before = param.detach().clone()
    for k in range(300):
        after = feed(a, param, [ratios**k])[0]
        longest, before = torch.maximum(longest, (after - before).abs()), after
    assert longest.max().item() == pytest.approx(bound, rel=1e-3)
    assert (longest <= bound * (1 + 1e-9)).all()


@prints("adam", "mean as a sum")
def test_mean_written_as_a_sum(page, name):
    def rule(beta, gradients):
        t = len(gradients)
        return (1 - beta) * sum(beta ** (t - i) * g for i, g in enumerate(gradients, start=1))

    assert is_printed(page, name)
    param, gradients = random_parameter(5), random_gradients(30, 5)
    a = Adam([param])
    feed(a, param, gradients)
    close(a.state[param]["exp_avg"], rule(0.9, [g.numpy() for g in gradients]), rtol=1e-10)


@prints("adam", "mean of equal gradients")
def test_mean_of_equal_gradients(page, name):
    def rule(beta, t, g):
        return (1 - beta) * (1 - beta**t) / (1 - beta) * g

    def other_side(beta, t, g):
        return (1 - beta**t) * g

    assert is_printed(page, name)
    param = parameter([1.0])
    a = Adam([param])
    feed(a, param, [0.7] * 12)
    assert rule(0.9, 12, 0.7) == pytest.approx(other_side(0.9, 12, 0.7), rel=1e-12)
    assert a.state[param]["exp_avg"].item() == pytest.approx(rule(0.9, 12, 0.7), rel=1e-12)


@prints("adam", "correction")
def test_correction(page, name):
    def rule(average, beta, t):
        return average / (1 - beta**t)

    assert is_printed(page, name)
    for beta in (0.0, 0.9, 0.999):
        for t in (1, 2, 1000):
            assert 3.0 / adam.bias_correction(beta, t) == pytest.approx(rule(3.0, beta, t), rel=1e-12)


@prints("adam", "first moment")
def test_first_moment(page, name):
    def rule(beta1, m, g):
        return beta1 * m + (1 - beta1) * g

    assert is_printed(page, name)
    param, gradients = random_parameter(5), random_gradients(8, 5)
    a, m = Adam([param], betas=(0.8, 0.99)), np.zeros(5)
    for gradient in gradients:
        m = rule(0.8, m, gradient.numpy())
        feed(a, param, [gradient])
        close(a.state[param]["exp_avg"], m)


@prints("adam", "second moment")
def test_second_moment(page, name):
    def rule(beta2, v, g):
        return beta2 * v + (1 - beta2) * g**2

    assert is_printed(page, name)
    param, gradients = random_parameter(5), random_gradients(8, 5)
    a, v = Adam([param], betas=(0.8, 0.99)), np.zeros(5)
    for gradient in gradients:
        v = rule(0.99, v, gradient.numpy())
        feed(a, param, [gradient])
        close(a.state[param]["exp_avg_sq"], v)


@prints("adam", "optimized step")
def test_optimized_form(page, name):
    def rule(theta, alpha, beta1, beta2, t, m, v, eps_hat):
        return theta - alpha * math.sqrt(1 - beta2**t) / (1 - beta1**t) * m / (np.sqrt(v) + eps_hat)

    assert is_printed(page, name)
    param, gradients = random_parameter(5), random_gradients(8, 5)
    a = Adam([param], lr=0.1, eps=0.01)
    for t, gradient in enumerate(gradients, start=1):
        theta = param.detach().numpy().copy()
        feed(a, param, [gradient])
        m, v = a.state[param]["exp_avg"].numpy(), a.state[param]["exp_avg_sq"].numpy()
        close(param, rule(theta, 0.1, 0.9, 0.999, t, m, v, 0.01))


def test_the_page_of_adam_prints_the_relation_of_the_two_epsilons_with_its_root():
    assert r"$\hat\epsilon = \epsilon \sqrt{1 - \beta_2^t}$" in inspect.getsource(adam)
    for t, gradient in ((1, 0.1), (2, -0.2), (50, 0.3)):
        m, v = np.float64(0.3 * gradient), np.float64(gradient**2)
        paper = formulas.adam_update(1.0, m, v, t, 0.01, 0.9, 0.999, 0.1)
        other = formulas.adam_update_optimized(1.0, m, v, t, 0.01, 0.9, 0.999, formulas.eps_hat(0.1, 0.999, t))
        assert other == pytest.approx(paper, rel=1e-14)


# amsgrad


@prints("amsgrad", "step")
def test_amsgrad_step(page, name):
    def rule(theta, alpha, beta1, beta2, t, m, v_max, v, eps):
        v_max = np.maximum(v_max, v)
        return v_max, theta - alpha * (m / (1 - beta1**t)) / (np.sqrt(v_max / (1 - beta2**t)) + eps)

    assert is_printed(page, name)
    param, gradients = random_parameter(5), random_gradients(8, 5)
    a, v_max = AMSGrad([param], lr=0.1, betas=(0.9, 0.5), eps=0.01, optimized_update=False), np.zeros(5)
    for t, gradient in enumerate(gradients, start=1):
        theta = param.detach().numpy().copy()
        feed(a, param, [gradient])
        m, v = a.state[param]["exp_avg"].numpy(), a.state[param]["exp_avg_sq"].numpy()
        v_max, expected = rule(theta, 0.1, 0.9, 0.5, t, m, v_max, v, 0.01)
        close(param, expected)


@prints("amsgrad", "maximum")
def test_maximum(page, name):
    def rule(v_max, v):
        return np.maximum(v_max, v)

    assert is_printed(page, name)
    param, v_max = random_parameter(5), np.zeros(5)
    a = AMSGrad([param], betas=(0.9, 0.5))
    for gradient in random_gradients(8, 5):
        feed(a, param, [gradient])
        v_max = rule(v_max, a.state[param]["exp_avg_sq"].numpy())
        close(a.state[param]["max_exp_avg_sq"], v_max)


@prints("amsgrad", "counter-example")
def test_counter_example(page, name, monkeypatch):
    def rule(t, x):
        return 1010 * x if t % 101 == 1 else -10 * x

    assert is_printed(page, name)
    slopes, step = [], AMSGrad.step

    def watched(self, closure=None):
        slopes.append(self.param_groups[0]["params"][0].grad.item())
        return step(self, closure)

    monkeypatch.setattr(AMSGrad, "step", watched)
    path = counter_example(steps=210, lr=0.5)
    assert slopes == [rule(t, 1.0) for t in range(1, 211)]
    assert all(-1 <= x <= 1 for x in path)
    assert sum(slopes[:101]) == 10.0


# schedules


@prints("adam_warmup", "rate")
def test_warm_up(page, name):
    def rule(alpha, t, w):
        return alpha * min(1, t / w)

    assert is_printed(page, name)
    a = AdamWarmup([parameter([1.0])], lr=0.3, warmup=7)
    rates = [a.get_lr({"step": t}, a.param_groups[0]) for t in range(1, 20)]
    assert rates == [rule(0.3, t, 7) for t in range(1, 20)]


@prints("noam", "rate")
def test_rate_of_noam(page, name):
    def rule(alpha, d, t, w):
        return alpha * d ** (-1 / 2) * min(t ** (-1 / 2), t * w ** (-3 / 2))

    assert is_printed(page, name)
    a = Noam([parameter([1.0])], lr=0.3, warmup=7, d_model=64)
    rates = [a.get_lr({"step": t}, a.param_groups[0]) for t in range(1, 40)]
    assert rates == pytest.approx([rule(0.3, 64, t, 7) for t in range(1, 40)], rel=1e-14)


@prints("adam_warmup_cosine_decay", "rate")
def test_warm_up_and_cosine(page, name):
    def rule(alpha, t, w, p_t):
        return alpha * min(1, t / w) * max(0.1, (1 + math.cos(math.pi * p_t)) / 2)

    assert is_printed(page, name)
    a = AdamWarmupCosineDecay([parameter([1.0])], lr=0.3, warmup=7, total_steps=27)
    shares = {t: min(1, max(0, (t - 7) / 20)) for t in range(1, 60)}
    rates = [a.get_lr({"step": t}, a.param_groups[0]) for t in shares]
    assert rates == pytest.approx([rule(0.3, t, 7, p) for t, p in shares.items()], rel=1e-14)


@prints("adam_warmup_cosine_decay", "share of the way")
def test_share_of_the_way(page, name):
    def rule(t, w, total):
        return min(1, max(0, (t - w) / (total - w)))

    assert is_printed(page, name)
    a = AdamWarmupCosineDecay([parameter([1.0])], lr=1.0, warmup=4, total_steps=24)
    for t in range(4, 60):
        rate = a.get_lr({"step": t}, a.param_groups[0])
        assert rate == pytest.approx(max(0.1, (1 + math.cos(math.pi * rule(t, 4, 24))) / 2), rel=1e-14)


def test_the_floor_is_met_where_the_page_says():
    assert math.acos(-0.8) / math.pi == pytest.approx(0.795, abs=0.0005)
    a = AdamWarmupCosineDecay([parameter([1.0])], lr=1.0, total_steps=10_000)
    rates = [a.get_lr({"step": t}, a.param_groups[0]) for t in (7951, 7953)]
    assert rates[0] > 0.1 == rates[1]


# radam


def check_rectified_step(page: str, name: str, rule: Callable, **settings: object) -> None:
    """Take 12 steps with a short memory and hold each against the rule, which is handed what the page names."""
    assert is_printed(page, name)
    param, gradients = random_parameter(5), random_gradients(12, 5)
    a = RAdam([param], lr=0.1, betas=(0.9, 0.99), **settings)
    for t, gradient in enumerate(gradients, start=1):
        theta = param.detach().numpy().copy()
        feed(a, param, [gradient])
        m, v = a.state[param]["exp_avg"].numpy(), a.state[param]["exp_avg_sq"].numpy()
        expected = rule(theta, t, m, v, formulas.average_length(0.99, t), formulas.rectification(0.99, t))
        if expected is not None:
            close(param, expected)


@pytest.mark.parametrize("optimized", [False, True])
@prints("radam", "step")
def test_rectified_step_as_the_page_opens_with_it(page, name, optimized):
    def rule(theta, t, m, v, rho, r):
        m_hat, v_hat = m / (1 - 0.9**t), v / (1 - 0.99**t)
        return theta - 0.1 * (r * m_hat / np.sqrt(v_hat) if rho > 5 else m_hat)

    check_rectified_step(page, name, rule, eps=0.0, optimized_update=optimized)


@prints("radam", "optimized step")
def test_rectified_step_in_the_optimized_order(page, name):
    def rule(theta, t, m, v, rho, r):
        return theta - 0.1 * r * math.sqrt(1 - 0.99**t) / (1 - 0.9**t) * m / (np.sqrt(v) + 0.01) if rho > 5 else None

    check_rectified_step(page, name, rule, eps=0.01)


@prints("radam", "other step")
def test_rectified_step_in_the_other_order(page, name):
    def rule(theta, t, m, v, rho, r):
        m_hat, v_hat = m / (1 - 0.9**t), v / (1 - 0.99**t)
        return theta - 0.1 * r * m_hat / (np.sqrt(v_hat) + 0.01) if rho > 5 else None

    check_rectified_step(page, name, rule, eps=0.01, optimized_update=False)


@prints("radam", "step without a divisor")
def test_step_without_a_divisor(page, name):
    def rule(theta, t, m, v, rho, r):
        return theta - 0.1 * m / (1 - 0.9**t) if rho <= 5 else None

    check_rectified_step(page, name, rule)


@prints("radam", "length")
def test_length_of_the_average(page, name):
    def rule(beta2, t):
        rho_inf = 2 / (1 - beta2) - 1
        return rho_inf - 2 * t * beta2**t / (1 - beta2**t)

    assert is_printed(page, name)
    for beta2 in (0.0, 0.5, 0.9, 0.999):
        for t in (1, 2, 5, 100, 10_000):
            assert radam.average_length(beta2, t) == pytest.approx(rule(beta2, t), rel=1e-12)


@prints("radam", "mean age")
def test_the_two_means_have_values_of_the_same_age(page, name):
    def rule(beta2, t):
        weights = [beta2**j for j in range(t)]
        return sum(j * weight for j, weight in enumerate(weights)) / sum(weights)

    def other_side(beta2, t):
        return beta2 / (1 - beta2) - t * beta2**t / (1 - beta2**t)

    assert is_printed(page, name)
    for beta2 in (0.5, 0.9, 0.999):
        for t in (1, 2, 5, 100):
            age = (radam.average_length(beta2, t) - 1) / 2
            assert age == pytest.approx(rule(beta2, t), abs=1e-9) == pytest.approx(other_side(beta2, t), abs=1e-9)


def moment_of_the_reciprocal(power: float, rho: float, sigma: float) -> float:
    """E[(1 / v)^power], where v is the mean of rho squared draws from a normal distribution: a quotient of gammas."""
    scale = (rho / 2 / sigma**2) ** power
    return scale * math.exp(math.lgamma(rho / 2 - power) - math.lgamma(rho / 2))


@prints("radam", "chi-squared")
def test_mean_and_variance_of_the_reciprocal(page, name):
    def rule(rho, sigma):
        return rho / ((rho - 2) * sigma**2), 2 * rho**2 / ((rho - 2) ** 2 * (rho - 4) * sigma**4)

    assert is_printed(page, name)
    for rho in (4.5, 6.0, 30.0):
        mean, square = (moment_of_the_reciprocal(power, rho, 0.7) for power in (1, 2))
        assert rule(rho, 0.7) == pytest.approx((mean, square - mean**2), rel=1e-9)


@prints("radam", "variance")
def test_variance_of_the_root_to_first_order(page, name):
    def rule(rho, sigma):
        return rho / (2 * (rho - 2) * (rho - 4) * sigma**2)

    assert is_printed(page, name)
    for rho in (5.0, 6.0, 30.0):
        mean, square = (moment_of_the_reciprocal(power, rho, 0.7) for power in (1, 2))
        assert rule(rho, 0.7) == pytest.approx((square - mean**2) / (4 * mean), rel=1e-9)
        assert radam.variance(rho) == pytest.approx(rule(rho, 1.0), rel=1e-14)


@prints("radam", "rectification")
def test_rectification(page, name):
    def rule(rho_t, rho_inf):
        return math.sqrt((rho_t - 4) * (rho_t - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho_t))

    assert is_printed(page, name)
    for t in (6, 7, 100, 5000):
        expected = rule(formulas.average_length(0.999, t), 1999.0)
        assert radam.rectification(0.999, t) == pytest.approx(expected, rel=1e-9)


def test_the_first_order_is_as_far_off_as_the_page_says():
    def excess(rho):
        true = moment_of_the_reciprocal(1, rho, 1.0) - moment_of_the_reciprocal(0.5, rho, 1.0) ** 2
        return radam.variance(rho) / true

    assert excess(5.0) == pytest.approx(3.3, abs=0.05)
    assert excess(10.0) == pytest.approx(1.4, abs=0.05)
    assert excess(4.001) > 1000


def test_the_share_of_a_step_is_what_the_page_of_radam_says():
    shares = [radam.rectification(0.999, t) for t in range(1, 2738)]
    assert [round(radam.average_length(0.999, t), 3) for t in (5, 10**6)] == [4.996, 1999.0]
    assert shares[:5] == [0.0] * 5
    assert shares[5] == pytest.approx(0.026, abs=5e-4)
    assert shares[554] < 0.5 <= shares[555]
    assert shares[2735] < 0.9 <= shares[2736]


# ada_belief


def check_ada_belief_step(page: str, name: str) -> None:
    def rule(theta, alpha, r_t, m_hat, s, beta2, t, eps):
        s_hat = (s + eps) / (1 - beta2**t)
        return theta - alpha * r_t * m_hat / (np.sqrt(s_hat) + eps)

    assert is_printed(page, name)
    for rectify in (False, True):
        param, gradients = random_parameter(5), random_gradients(12, 5)
        a, m, s = AdaBelief([param], lr=0.1, eps=0.01, rectify=rectify), np.zeros(5), np.zeros(5)
        for t, gradient in enumerate(gradients, start=1):
            theta, g = param.detach().numpy().copy(), gradient.numpy()
            m = 0.9 * m + 0.1 * g
            s = 0.999 * s + 0.001 * (g - m) ** 2
            feed(a, param, [gradient])
            r_t = formulas.rectification(0.999, t) if rectify else 1.0
            if r_t:
                close(param, rule(theta, 0.1, r_t, m / (1 - 0.9**t), s, 0.999, t, 0.01))


@prints("ada_belief", "step")
def test_adabelief_as_the_page_opens_with_it(page, name):
    check_ada_belief_step(page, name)


@prints("ada_belief", "update")
def test_adabelief_as_the_update_has_it(page, name):
    check_ada_belief_step(page, name)


@prints("ada_belief", "forecast")
def test_forecast(page, name):
    def rule(beta1, m, g):
        return beta1 * m + (1 - beta1) * g

    assert is_printed(page, name)
    param, m = random_parameter(5), np.zeros(5)
    a = AdaBelief([param], betas=(0.8, 0.99))
    for gradient in random_gradients(8, 5):
        m = rule(0.8, m, gradient.numpy())
        feed(a, param, [gradient])
        close(a.state[param]["exp_avg"], m)


@prints("ada_belief", "surprise")
def test_surprise(page, name):
    def rule(beta2, s, g, m):
        return beta2 * s + (1 - beta2) * (g - m) ** 2

    assert is_printed(page, name)
    param, s = random_parameter(5), np.zeros(5)
    a = AdaBelief([param], betas=(0.8, 0.99), eps=0.5)
    for gradient in random_gradients(8, 5):
        feed(a, param, [gradient])
        s = rule(0.99, s, gradient.numpy(), a.state[param]["exp_avg"].numpy())
        close(a.state[param]["exp_avg_var"], s)


@prints("ada_belief", "old and new forecast")
def test_surprise_of_the_new_forecast_is_a_share_of_that_of_the_old_one(page, name):
    def rule(beta1, g, m_before):
        return beta1 * (g - m_before)

    assert is_printed(page, name)
    param = random_parameter(5)
    a, m = AdaBelief([param], betas=(0.8, 0.99)), torch.zeros(5, dtype=torch.float64)
    for gradient in random_gradients(8, 5):
        feed(a, param, [gradient])
        close(gradient - a.state[param]["exp_avg"], rule(0.8, gradient.numpy(), m.numpy()), rtol=1e-9)
        m = a.state[param]["exp_avg"].clone()


# sophia


def check_curvature(page: str, name: str) -> None:
    def rule(h, beta2, b, gradient):
        h_hat = b * gradient * gradient
        return beta2 * h + (1 - beta2) * h_hat

    assert is_printed(page, name)
    param, h = random_parameter(5), np.zeros(5)
    a = Sophia([param], betas=(0.9, 0.8))
    for gradient in random_gradients(8, 5):
        param.grad = gradient.clone()
        a.update_hessian(37)
        h = rule(h, 0.8, 37, gradient.numpy())
        close(a.state[param]["hessian"], h)


@prints("sophia", "estimate")
def test_estimate_of_the_curvature(page, name):
    check_curvature(page, name)


@prints("sophia", "mean curvature")
def test_mean_curvature(page, name):
    check_curvature(page, name)


@prints("sophia", "mean gradient")
def test_mean_gradient_of_sophia(page, name):
    def rule(beta1, m, g):
        return beta1 * m + (1 - beta1) * g

    assert is_printed(page, name)
    param, m = random_parameter(5), np.zeros(5)
    a = SophiaOfEveryStep([param], betas=(0.8, 0.99))
    for gradient in random_gradients(8, 5):
        m = rule(0.8, m, gradient.numpy())
        feed(a, param, [gradient])
        close(a.state[param]["exp_avg"], m)


def check_sophia_step(page: str, name: str) -> None:
    def clip(z):
        return np.maximum(-1, np.minimum(z, 1))

    def rule(theta, alpha, m, rho, h, eps):
        return theta - alpha * clip(m / (rho * h + eps))

    assert is_printed(page, name)
    param, clipped = random_parameter(50), set()
    a = Sophia([param], lr=0.1, eps=0.01, rho=0.5)
    for gradient in random_gradients(12, 50):
        param.grad = gradient.flip(0)
        a.update_hessian(3)
        theta = param.detach().numpy().copy()
        feed(a, param, [gradient])
        m, h = a.state[param]["exp_avg"].numpy(), a.state[param]["hessian"].numpy()
        close(param, rule(theta, 0.1, m, 0.5, h, 0.01))
        clipped |= set(np.abs(m) > 0.5 * h + 0.01)
    assert clipped == {True, False}


@prints("sophia", "step")
def test_sophia_as_the_page_opens_with_it(page, name):
    check_sophia_step(page, name)
    check_curvature(page, name)


@prints("sophia", "update")
def test_sophia_as_the_update_has_it(page, name):
    check_sophia_step(page, name)


@prints("sophia", "clip")
def test_clip(page, name):
    check_sophia_step(page, name)


@prints("sophia", "loss of drawn labels")
def test_loss_of_drawn_labels(page, name):
    """The lines on the page draw labels as often as the softmax says, and take the mean over them."""

    def rule(logits, labels):
        return np.mean([np.log(np.exp(f).sum()) - f[y] for f, y in zip(logits, labels, strict=True)])

    assert is_printed(page, name)
    torch.manual_seed(0)
    logits = torch.tensor([[0.0, 1.0, -1.0]], dtype=torch.float64).expand(20_000, 3)
    names = {"logits": logits, "torch": torch, "cross_entropy": nn.functional.cross_entropy}
    (draw,) = re.findall(r"(?m)^ +labels = .+$", code_on_the_page("sophia", "import torch"))
    exec(draw.strip(), names)
    often = torch.bincount(names["labels"], minlength=3) / 20_000
    torch.testing.assert_close(often.double(), logits[0].softmax(-1), rtol=0, atol=0.02)
    loss = nn.functional.cross_entropy(logits, names["labels"])
    assert loss.item() == pytest.approx(rule(logits.numpy(), names["labels"].numpy()), rel=1e-12)


# adam_fp16


def check_master_step(page: str, name: str) -> None:
    def rule(theta32, alpha, m_hat, v_hat, eps):
        theta32 = theta32 - alpha * m_hat / (np.sqrt(v_hat) + eps)
        return theta32, np.float16(theta32)

    assert is_printed(page, name)
    param = random_parameter(20, dtype=torch.float16)
    a = AdamFP16([param], lr=1e-4, eps=1e-6, optimized_update=False)
    theta32 = param.detach().double().numpy().copy()
    for t, gradient in enumerate(random_gradients(20, 20, dtype=torch.float16), start=1):
        feed(a, param, [gradient])
        m_hat = a.state[param]["exp_avg"].double().numpy() / (1 - 0.9**t)
        v_hat = a.state[param]["exp_avg_sq"].double().numpy() / (1 - 0.999**t)
        theta32, _ = rule(theta32, 1e-4, m_hat, v_hat, 1e-6)
        master = next(iter(a.master_params())).numpy()
        np.testing.assert_allclose(master, theta32, rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(param.detach().numpy(), rule(master, 0, m_hat, v_hat, 1e-6)[1])


@prints("adam_fp16", "step")
def test_master_step_as_the_page_opens_with_it(page, name):
    check_master_step(page, name)


@prints("adam_fp16", "step in a line")
def test_master_step_as_the_class_has_it(page, name):
    check_master_step(page, name)


@prints("adam_fp16", "first master")
def test_first_master(page, name):
    assert is_printed(page, name)
    param = random_parameter(20, dtype=torch.float16)
    theta16 = param.detach().double().numpy().copy()
    a = AdamFP16([param], lr=0.0)
    feed(a, param, [torch.ones(20)])
    np.testing.assert_array_equal(next(iter(a.master_params())).double().numpy(), theta16)


@prints("adam_fp16", "changed weights")
def test_changed_weights(page, name):
    def rule(theta32, theta16):
        return np.where(np.float16(theta32) == theta16, theta32, np.float32(theta16))

    assert is_printed(page, name)
    param = random_parameter(20, dtype=torch.float16)
    a = AdamFP16([param], lr=1e-4)
    feed(a, param, random_gradients(3, 20, dtype=torch.float16))
    theta32 = next(iter(a.master_params())).numpy().copy()
    with torch.no_grad():
        param[::3] *= 2
    a.resync()
    np.testing.assert_array_equal(next(iter(a.master_params())).numpy(), rule(theta32, param.detach().numpy()))


@prints("adam_fp16", "float32 gradient")
def test_gradient_brought_to_float32(page, name):
    def rule(scale, gradient):
        return np.float32(np.float16(scale * gradient))

    assert is_printed(page, name)
    slopes = [3e-8, -1e-5, 0.7]
    param = nn.Parameter(torch.ones(3, dtype=torch.float16))
    a, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=1024.0)
    scaler.scale(half_loss(param, slopes)).backward()
    scaler.unscale_(a)
    np.testing.assert_array_equal(param.grad.numpy() * np.float32(1024), rule(1024.0, np.float32(slopes)))


@prints("adam_fp16", "unscaling")
def test_unscaling_before_the_step(page, name):
    def rule(scale, gradient32):
        return gradient32 / scale

    assert is_printed(page, name)
    slopes = [3e-8, -1e-5, 0.7]
    param = nn.Parameter(torch.ones(3, dtype=torch.float16))
    a, scaler = Recorder([param]), GradScalerFP16("cpu", init_scale=1024.0)
    scaler.scale(half_loss(param, slopes)).backward()
    gradient32 = param.grad.double().numpy()
    scaler.step(a)
    close(a.state[param]["seen"], rule(1024.0, gradient32))


@prints("adam_fp16", "floor")
def test_floor(page, name):
    def rule(scale, floor):
        return max(scale, floor)

    assert is_printed(page, name)
    param = parameter([1.0], torch.float16)
    a, scaler = AdamFP16([param]), GradScalerFP16("cpu", init_scale=64.0, min_scale=24.0)
    expected = 64.0
    for _ in range(5):
        scaler.scale(param.float().sum() * math.inf).backward()
        scaler.step(a)
        scaler.update()
        expected = rule(expected / 2, 24.0)
        assert scaler.get_scale() == expected


# split_master


def check_halves(page: str, name: str) -> None:
    def rule(m):
        p = math.floor((m + 2**15) / 2**16)
        return p, m - 2**16 * p

    assert is_printed(page, name)
    for number in (0.1, -0.1, 1.0, 1.00390625, -1.01171875, 3.4e38, 1e-45, 0.0, math.inf):
        master = torch.tensor([number])
        param, residue = split(master)
        p, r = rule(master.view(torch.int32).item())
        assert (param.view(torch.int16).item(), residue.item()) == (p, r)
        assert -(2**15) <= r < 2**15


@prints("split_master", "halves")
def test_halves_as_the_page_opens_with_them(page, name):
    check_halves(page, name)


@prints("split_master", "upper half")
def test_upper_half(page, name):
    check_halves(page, name)


@prints("split_master", "lower half")
def test_lower_half(page, name):
    check_halves(page, name)


@prints("split_master", "master")
def test_master_of_two_halves(page, name):
    def rule(p, r):
        return 2**16 * p + r

    assert is_printed(page, name)
    for p, r in [(0x3DCD, -0x3333), (-0x4233, -0x3333), (0x7F80, -1), (0, 1), (0x3F80, 0x7FFF), (0x3F81, -0x8000)]:
        param = torch.tensor([p], dtype=torch.int16).view(torch.bfloat16)
        master = join(param, torch.tensor([r], dtype=torch.int16))
        assert master.view(torch.int32).item() == rule(p, r)


# What the pages say in numbers


def test_the_numbers_of_the_two_formats_are_those_of_the_page():
    half, brain = torch.finfo(torch.float16), torch.finfo(torch.bfloat16)
    assert (half.max, half.tiny, half.smallest_normal, half.eps) == (65504, 2**-14, 2**-14, 2**-10)
    assert torch.tensor(2.0**-24).half().item() == 2**-24
    assert torch.tensor(2.0**-25).half().item() == 0
    assert brain.eps == 2**-7
    assert brain.smallest_normal == torch.finfo(torch.float32).smallest_normal


def test_squares_vanish_and_overflow_in_float16_where_the_page_says():
    assert torch.tensor(1.70e-4).half().square().item() == 0
    assert torch.tensor(1.80e-4).half().square().item() > 0
    assert torch.tensor(256.0).half().square().item() == math.inf
    assert torch.tensor(255.5).half().square().item() < math.inf


def test_the_memories_of_the_two_averages_are_halved_after_7_and_693_steps():
    assert 0.9**7 < 0.5 < 0.9**6
    assert 0.999**693 < 0.5 < 0.999**692


def test_without_the_correction_the_first_step_would_be_3_16_times_as_long():
    assert (1 - 0.9) / math.sqrt(1 - 0.999) == pytest.approx(3.16, abs=0.005)


def test_a_constant_epsilon_is_32_times_as_strong_at_the_first_optimized_step():
    assert 1 / math.sqrt(1 - 0.999) == pytest.approx(32, abs=0.5)
