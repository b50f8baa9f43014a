"""The papers' rules typed once more, in float64, from the papers alone: nothing here is imported from the package.

Adam: arXiv 1412.6980. AMSGrad: arXiv 1904.09237. Decoupled weight decay: arXiv 1711.05101.
Warm-up: arXiv 1706.02677. Cosine decay: arXiv 1608.03983. Noam: arXiv 1706.03762. RAdam: arXiv 1908.03265.
AdaBelief: arXiv 2010.07468. Sophia: arXiv 2305.14342.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

Array = np.ndarray


def first_moment(m: Array, g: Array, beta1: float) -> Array:
    """m_t = beta_1 m_{t-1} + (1 - beta_1) g_t."""
    return beta1 * m + (1 - beta1) * g


def second_moment(v: Array, g: Array, beta2: float) -> Array:
    """v_t = beta_2 v_{t-1} + (1 - beta_2) g_t^2."""
    return beta2 * v + (1 - beta2) * g**2


def corrected(average: Array, beta: float, t: int) -> Array:
    """An average that started from zero, divided by the share of real values in it: 1 - beta^t."""
    return average / (1 - beta**t)


def adam_update(
    theta: Array, m: Array, v: Array, t: int, alpha: float, beta1: float, beta2: float, eps: float
) -> Array:
    """theta - alpha m_hat / (sqrt(v_hat) + eps)."""
    return theta - alpha * corrected(m, beta1, t) / (np.sqrt(corrected(v, beta2, t)) + eps)


def adam_update_optimized(
    theta: Array, m: Array, v: Array, t: int, alpha: float, beta1: float, beta2: float, eps_hat: float
) -> Array:
    """theta - alpha sqrt(1 - beta_2^t) / (1 - beta_1^t) * m / (sqrt(v) + eps_hat)."""
    return theta - alpha * math.sqrt(1 - beta2**t) / (1 - beta1**t) * m / (np.sqrt(v) + eps_hat)


def eps_hat(eps: float, beta2: float, t: int) -> float:
    """The epsilon with which the optimized order gives the paper's step: eps sqrt(1 - beta_2^t)."""
    return eps * math.sqrt(1 - beta2**t)


def decayed_gradient(theta: Array, g: Array, decay: float) -> Array:
    """L2: g + lambda theta."""
    return g + decay * theta


def decayed_weight(theta: Array, alpha: float, decay: float) -> Array:
    """Decoupled: theta (1 - alpha lambda)."""
    return theta * (1 - alpha * decay)


def decayed_weight_absolute(theta: Array, decay: float) -> Array:
    """Decoupled, independent of the learning rate: theta (1 - lambda)."""
    return theta * (1 - decay)


def warmup_rate(alpha: float, t: float, warmup: float) -> float:
    """alpha min(1, t / warmup)."""
    return alpha * (1.0 if warmup == 0 else min(1.0, t / warmup))


def cosine_rate(alpha: float, t: float, warmup: float, total_steps: float) -> float:
    """Warm-up, then alpha max(0.1, (1 + cos pi p) / 2), with p the share of the way, at most 1."""
    if t < warmup:
        return warmup_rate(alpha, t, warmup)
    share = min(1.0, (t - warmup) / (total_steps - warmup))
    return alpha * max(0.1, (1 + math.cos(math.pi * share)) / 2)


def noam_rate(alpha: float, t: float, warmup: float, d_model: float) -> float:
    """alpha d^-0.5 min(t^-0.5, t warmup^-1.5); without a warm-up the first of the two."""
    climb = math.inf if warmup == 0 else t * warmup**-1.5
    return alpha * d_model**-0.5 * min(t**-0.5, climb)


def average_length(beta2: float, t: int) -> float:
    """How long a plain mean is whose values are as old, on average, as those of the running mean."""
    weights = [beta2**age for age in range(t)]
    return 1 + 2 * sum(age * weight for age, weight in enumerate(weights)) / sum(weights)


def rectification(beta2: float, t: int) -> float:
    """r_t of RAdam, 0 while the average is no longer than 5."""
    rho, longest = average_length(beta2, t), 2 / (1 - beta2) - 1
    if rho <= 5:
        return 0.0
    return math.sqrt((rho - 4) * (rho - 2) * longest / ((longest - 4) * (longest - 2) * rho))


def radam_update(
    theta: Array, m: Array, v: Array, t: int, alpha: float, beta1: float, beta2: float, eps: float
) -> Array:
    """theta - alpha r_t m_hat / (sqrt(v_hat) + eps), or theta - alpha m_hat where there is no r_t."""
    r = rectification(beta2, t)
    if r == 0:
        return theta - alpha * corrected(m, beta1, t)
    return adam_update(theta, m, v, t, alpha * r, beta1, beta2, eps)


def radam_update_optimized(
    theta: Array, m: Array, v: Array, t: int, alpha: float, beta1: float, beta2: float, eps_hat: float
) -> Array:
    """The same in the optimized order."""
    r = rectification(beta2, t)
    if r == 0:
        return theta - alpha * corrected(m, beta1, t)
    return adam_update_optimized(theta, m, v, t, alpha * r, beta1, beta2, eps_hat)


def largest_step(alpha: float, beta1: float, beta2: float) -> float:
    """The bound on one step of Adam: alpha (1 - beta_1) / sqrt((1 - beta_2) (1 - beta_1^2 / beta_2))."""
    return alpha * (1 - beta1) / math.sqrt((1 - beta2) * (1 - beta1**2 / beta2))


@dataclass
class Point:
    """Where a run stands after one step."""

    theta: Array
    m: Array
    v: Array
    v_max: Array


def run(
    theta: object,
    gradients: Iterable[object],
    *,
    lr: float | Callable[[int], float] = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-16,
    decay: float = 0.0,
    decay_kind: str = "decoupled",
    maximize: bool = False,
    amsgrad: bool = False,
    optimized: bool = True,
    rectified: bool = False,
) -> list[Point]:
    """All steps of Adam, AMSGrad or RAdam over a list of gradients, as the papers' pseudo-code has them."""
    beta1, beta2 = betas
    theta = np.asarray(theta, dtype=np.float64)
    m, v, v_max = np.zeros_like(theta), np.zeros_like(theta), np.zeros_like(theta)
    points = []
    for t, gradient in enumerate(gradients, start=1):
        alpha = lr(t) if callable(lr) else lr
        g = np.asarray(gradient, dtype=np.float64)
        g = -g if maximize else g
        if decay_kind == "coupled":
            g = decayed_gradient(theta, g, decay)
        elif decay_kind == "absolute":
            theta = decayed_weight_absolute(theta, decay)
        else:
            theta = decayed_weight(theta, alpha, decay)
        m, v = first_moment(m, g, beta1), second_moment(v, g, beta2)
        v_max = np.maximum(v_max, v)
        if rectified:
            update = radam_update_optimized if optimized else radam_update
        else:
            update = adam_update_optimized if optimized else adam_update
        theta = update(theta, m, v_max if amsgrad else v, t, alpha, beta1, beta2, eps)
        points.append(Point(theta, m, v, v_max))
    return points


def curvature(h: Array, g: Array, n: float, beta2: float) -> Array:
    """h = beta_2 h + (1 - beta_2) n g^2, with g the gradient of the mean over n predictions."""
    return beta2 * h + (1 - beta2) * n * g**2


def sophia_update(theta: Array, m: Array, h: Array, alpha: float, rho: float, eps: float) -> Array:
    """theta - alpha clip(m / (rho h + eps), 1)."""
    return theta - alpha * np.clip(m / (rho * h + eps), -1, 1)


def run_sophia(
    theta: object,
    gradients: Iterable[object],
    looks: dict[int, tuple[object, float]],
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    rho: float,
    decay: float = 0.0,
    decay_kind: str = "decoupled",
    maximize: bool = False,
) -> list[Array]:
    """All steps of Sophia; before step t the curvature takes in the gradient and the number that `looks` has for it."""
    theta = np.asarray(theta, dtype=np.float64)
    m, h = np.zeros_like(theta), np.zeros_like(theta)
    values = []
    for t, gradient in enumerate(gradients, start=1):
        if t in looks:
            h = curvature(h, np.asarray(looks[t][0], dtype=np.float64), looks[t][1], betas[1])
        g = np.asarray(gradient, dtype=np.float64) * (-1 if maximize else 1)
        if decay_kind == "coupled":
            g = decayed_gradient(theta, g, decay)
        elif decay_kind == "absolute":
            theta = decayed_weight_absolute(theta, decay)
        else:
            theta = decayed_weight(theta, lr, decay)
        m = first_moment(m, g, betas[0])
        theta = sophia_update(theta, m, h, lr, rho, eps)
        values.append(theta)
    return values


def run_ada_belief(
    theta: object,
    gradients: Iterable[object],
    *,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    rectify: bool,
    amsgrad: bool = False,
    decay: float = 0.0,
    decay_kind: str = "decoupled",
    maximize: bool = False,
) -> list[Array]:
    """All steps of AdaBelief, with epsilon added to the mean for the division and not for good."""
    beta1, beta2 = betas
    theta = np.asarray(theta, dtype=np.float64)
    m, s, s_max = np.zeros_like(theta), np.zeros_like(theta), np.zeros_like(theta)
    values = []
    for t, gradient in enumerate(gradients, start=1):
        g = np.asarray(gradient, dtype=np.float64) * (-1 if maximize else 1)
        if decay_kind == "coupled":
            g = decayed_gradient(theta, g, decay)
        elif decay_kind == "absolute":
            theta = decayed_weight_absolute(theta, decay)
        else:
            theta = decayed_weight(theta, lr, decay)
        m = first_moment(m, g, beta1)
        s = beta2 * s + (1 - beta2) * (g - m) ** 2
        s_max = np.maximum(s_max, s)
        divisor = np.sqrt(corrected((s_max if amsgrad else s) + eps, beta2, t)) + eps
        r = rectification(beta2, t) if rectify else 1.0
        theta = theta - lr * (r * corrected(m, beta1, t) / divisor if r else corrected(m, beta1, t))
        values.append(theta)
    return values
