"""The ancestor's AdamFP16 as typed for the benchmark gives the numbers of its formula."""

import math

import pytest
import torch

from benchmarks.ancestor import AncestorAdamFP16
from labml_opt import AdamFP16

LR, BETAS, EPS = 1e-3, (0.9, 0.999), 1e-16


def formula(weight, grads, decay):
    """The ancestor's Adam with Python's own floats; the FP16 weight is what is left of the result."""
    m = v = 0.0
    for t, grad in enumerate(grads, 1):
        weight *= 1 - LR * decay
        m = BETAS[0] * m + (1 - BETAS[0]) * grad
        v = BETAS[1] * v + (1 - BETAS[1]) * grad * grad
        rate = LR * math.sqrt(1 - BETAS[1] ** t) / (1 - BETAS[0] ** t)
        weight -= rate * m / (math.sqrt(v) + EPS)
    return weight


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_it_gives_the_numbers_of_the_formula(decay):
    weights, steps = [0.07, -0.5, 1.25], 20
    grads = [[0.01 * math.sin(3 * k + i) for i in range(3)] for k in range(steps)]
    param = torch.tensor(weights, dtype=torch.float16)
    starts, halves = param.tolist(), torch.tensor(grads, dtype=torch.float16)
    optimizer = AncestorAdamFP16([param], lr=LR, betas=BETAS, eps=EPS, weight_decay=decay)
    for grad in halves:
        param.grad = grad
        optimizer.step()
    expected = [formula(start, halves[:, i].tolist(), decay) for i, start in enumerate(starts)]
    assert optimizer.state[param]["weights"].tolist() == pytest.approx(expected, rel=2e-6)
    assert param.tolist() == torch.tensor(expected).half().tolist()


def test_it_trains_as_ours_does():
    torch.manual_seed(0)
    start = torch.randn(100).half()
    params = [start.clone(), start.clone()]
    optimizers = [AncestorAdamFP16([params[0]], lr=LR), AdamFP16([params[1]], lr=LR)]
    for _ in range(30):
        grad = torch.randn(100).half()
        for param, optimizer in zip(params, optimizers, strict=True):
            param.grad = grad
            optimizer.step()
    assert torch.equal(*params)
    assert not torch.equal(params[0], start)
