"""What Adam's averages do: the correction of their start, and how long a step can get."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch

from labml_opt._figures.svg import Drawing, Plot, linear, logarithmic
from labml_opt._figures.words import Words
from labml_opt.adam import Adam

BETAS = (0.9, 0.999)
LAST = 10_000
SILENCE = 10_000
SHOWN = 40


@dataclass(frozen=True)
class Start:
    """Adam under a gradient that is 1 at every step: the averages, and how far each step went, in learning rates."""

    steps: list[int]
    m: list[float]
    v: list[float]
    step: list[float]

    @property
    def uncorrected(self) -> list[float]:
        """Return the step that the raw averages would take."""
        return [m / math.sqrt(v) for m, v in zip(self.m, self.v, strict=True)]


@cache
def start() -> Start:
    """Run Adam from the first step on."""
    lr = 1e-3
    param = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = Adam([param], lr=lr, betas=BETAS)
    param.grad = torch.ones_like(param)
    data = Start([], [], [], [])
    for t in range(1, LAST + 1):
        before = param.item()
        optimizer.step()
        state = optimizer.state[param]
        data.steps.append(t)
        data.m.append(state["exp_avg"].item())
        data.v.append(state["exp_avg_sq"].item())
        data.step.append((before - param.item()) / lr)
    return data


def adam(words: Words) -> Drawing:
    """Draw the averages of a gradient that is 1 all the time, and the step that follows from them."""
    data = start()
    worst = max(data.uncorrected)
    title = words(
        "Above, averages of a gradient that is always 1: without correction the first moment needs about {m} steps to "
        "come near 1 and the second about {v}; with correction both are 1 from the first step. Below, the length of "
        "the step: without correction up to {worst} learning rates, with correction one.",
        m=_near(data.m),
        v=f"{_near(data.v):,}",
        worst=f"{worst:.1f}",
    )
    drawing = Drawing("adam", 640, 400, title)
    x = logarithmic(1, LAST)
    above = Plot(drawing, (38, 44, 632, 168), x, linear(0, 1))
    drawing.text(0, 16, words("averages of a gradient that is always 1"))
    above.levels([(0, "0"), (1, "1")], rule=False)
    drawing.path(f"M{above.left} {above.bottom}H{above.right}", "tick", 1)
    drawing.curve([(above.left, above.y(1)), (above.right, above.y(1))], "kept", 2)
    drawing.curve(above.points(data.steps, data.m), "ink", 2, "5 4")
    drawing.curve(above.points(data.steps, data.v), "ink", 2, "1.5 3")
    drawing.text(above.left + 4, above.y(1) - 8, words("corrected: *m̂* and *v̂*"), "kept")
    drawing.text(above.x(6.6) + 6, above.y(0.5) + 12, words("*m*, mean of *g*"), "ink")
    drawing.text(above.x(8), above.y(0.1), words("*v*, mean of *g*²"), "ink")

    below = Plot(drawing, (38, 226, 632, 338), x, linear(0, math.ceil(worst)))
    drawing.text(0, 206, words("length of the step, in learning rates"))
    below.levels([(0, "0"), (1, "1"), (math.ceil(worst), str(math.ceil(worst)))], rule=False)
    below.axis([(10.0**e, f"{10**e:,}") for e in range(5)], title=words("step"))
    drawing.curve(below.points(data.steps, data.uncorrected), "ink", 2, "5 4")
    drawing.curve(below.points(data.steps, data.step), "kept", 2)
    drawing.text(below.x(3), below.y(3.2), words("not corrected: up to {worst}", worst=f"{worst:.1f}"), "ink")
    drawing.text(below.left + 4, below.y(1) - 8, words("corrected"), "kept")
    return drawing


def small_adam(words: Words) -> Drawing:
    """Draw the ornament of the front page's list: the mean with and without correction."""
    data = start()
    drawing = Drawing("small_adam", 176, 44)
    plot = Plot(drawing, (1, 6, 175, 37), linear(0, 40), linear(0, 1))
    plot.axis([])
    drawing.curve([(1, 6), (175, 6)], "ink", 1.5, "3 3")
    drawing.curve(plot.points([0, *data.steps[:40]], [0, *data.m[:40]]), "kept", 1.5)
    return drawing


@dataclass(frozen=True)
class Lengths:
    """How far Adam goes after a long silence, in learning rates: under growing gradients, and after a single one."""

    growing: list[float]
    single: list[float]
    bound: float
    bound_single: float
    growth: float


@cache
def lengths() -> Lengths:
    """Run Adam in silence until the corrections are gone, then give it the two sequences of gradients."""
    lr = 1e-3
    beta1, beta2 = BETAS
    growth = beta2 / beta1
    param = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    optimizer = Adam([param], lr=lr, betas=BETAS)
    param.grad = torch.zeros_like(param)
    for _ in range(SILENCE):
        optimizer.step()
    seen: list[list[float]] = []
    for k in range(SHOWN + 1):
        param.grad = torch.tensor([growth**k, float(k == 0)], dtype=torch.float64)
        before = param.detach().clone()
        optimizer.step()
        seen.append(((before - param.detach()) / lr).tolist())
    bound = (1 - beta1) / math.sqrt((1 - beta2) * (1 - beta1**2 / beta2))
    single = (1 - beta1) / math.sqrt(1 - beta2)
    return Lengths([a for a, _ in seen], [b for _, b in seen], bound, single, growth)


def adam_step(words: Words) -> Drawing:
    """Draw how long a step gets after a long silence, and the bound that it never passes."""
    data = lengths()
    numbers = {"bound": f"{data.bound:.2f}", "single": f"{data.bound_single:.2f}", "growth": f"{data.growth:.2f}"}
    title = words(
        "The length of Adam's steps after a long silence, in learning rates. Gradients that grow by the factor "
        "{growth} a step bring it to the bound, {bound}. A single gradient makes a step of {single}, and shorter ones "
        "after it.",
        **numbers,
    )
    drawing = Drawing("adam_step", 480, 330, title)
    plot = Plot(drawing, (46, 44, 472, 268), linear(1, SHOWN + 1), linear(0, 8))
    drawing.text(0, 16, words("length of the step, in learning rates"))
    plot.levels([(data.bound, numbers["bound"]), (data.bound_single, numbers["single"]), (1, "1"), (0, "0")])
    plot.axis([(1, "1"), (10, "10"), (20, "20"), (30, "30"), (40, "40")], title=words("steps since the silence ended"))
    steps = list(range(1, SHOWN + 2))
    drawing.curve(plot.points(steps, data.growing), "kept", 2)
    drawing.curve(plot.points(steps, data.single), "ink", 2)
    drawing.text(plot.x(9), plot.y(5.6), words("gradients grow by the factor {growth} a step", **numbers), "kept")
    drawing.text(plot.x(7.5), plot.y(2.05), words("one gradient, then silence again"), "ink")
    return drawing


def _near(values: list[float]) -> int:
    """Return the first step, rounded to one digit, at which an average has 95 % of its way behind it."""
    step = next(i for i, value in enumerate(values, 1) if value >= 0.95)
    size: int = 10 ** (len(str(step)) - 1)
    return round(step / size) * size
