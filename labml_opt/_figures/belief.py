"""How far Adam and AdaBelief step, for gradients that are steady and gradients that are not."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

from labml_opt._figures.svg import Drawing, Plot, logarithmic, plain
from labml_opt._figures.words import Words
from labml_opt.ada_belief import AdaBelief
from labml_opt.adam import Adam

LR = 1e-3
LOW, HIGH = 0.03, 100.0
POINTS = 57
STEPS = 3000


@dataclass(frozen=True)
class Lengths:
    """For each swing of the gradient about its mean of 1: the mean length of a step, in learning rates."""

    swings: list[float]
    adam: list[float]
    belief: list[float]


@cache
def lengths() -> Lengths:
    """Train one weight for each swing, with a gradient that is 1 + swing and 1 - swing in turn."""
    swings = LOW * (HIGH / LOW) ** torch.linspace(0, 1, POINTS, dtype=torch.float64)
    found = []
    for make in (Adam, AdaBelief):
        param = torch.nn.Parameter(torch.zeros(POINTS, dtype=torch.float64))
        optimizer = make([param], lr=LR)
        for t in range(STEPS):
            if t == STEPS - 100:
                before = param.detach().clone()
            param.grad = 1 + (swings if t % 2 else -swings)
            optimizer.step()
        found.append(((before - param.detach()) / (100 * LR)).tolist())
    return Lengths(swings.tolist(), *found)


def ada_belief(words: Words) -> Drawing:
    """Draw both lengths against the swing."""
    data = lengths()
    low, high = 0.01, 30
    title = words(
        "The length of a step after {steps} steps, for a gradient whose mean is 1 and which swings about it. At a "
        "swing of {low} AdaBelief steps {belief} learning rates far and Adam {adam}; at a swing of {high} both step "
        "{both}.",
        steps=f"{STEPS:,}",
        low=plain(data.swings[0]),
        belief=f"{data.belief[0]:.0f}",
        adam=f"{data.adam[0]:.1f}",
        high=plain(data.swings[-1]),
        both=f"{data.belief[-1]:.2f}",
    )
    drawing = Drawing("ada_belief", 640, 350, title)
    plot = Plot(drawing, (44, 44, 632, 288), logarithmic(LOW, HIGH), logarithmic(low, high))
    drawing.text(0, 16, words("length of the step, in learning rates"))
    plot.levels([(10, "10"), (1, "1"), (0.1, "0.1"), (low, "0.01")])
    plot.axis(
        [(x, plain(x)) for x in (0.1, 1.0, 10.0, 100.0)], title=words("swing of the gradient, in units of its mean")
    )
    drawing.curve(plot.points(data.swings, data.adam), "ink", 2, "5 4")
    drawing.curve(plot.points(data.swings, data.belief), "kept", 2)
    drawing.text(plot.x(0.2), plot.y(6), "AdaBelief", "kept", big=True)
    drawing.text(plot.x(0.1), plot.y(0.5), "Adam", "ink", big=True)
    return drawing


def small_ada_belief(words: Words) -> Drawing:
    """Draw the ornament of the front page's list."""
    data = lengths()
    drawing = Drawing("small_ada_belief", 176, 44)
    plot = Plot(drawing, (1, 4, 175, 37), logarithmic(LOW, HIGH), logarithmic(0.01, 30))
    plot.axis([])
    drawing.curve(plot.points(data.swings, data.adam), "ink", 1.5, "3 3")
    drawing.curve(plot.points(data.swings, data.belief), "kept", 1.5)
    return drawing
