"""The same weight decay through the gradient and beside it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

from labml_opt._figures.svg import Drawing, Plot, linear
from labml_opt._figures.words import Words
from labml_opt.adam import Adam
from labml_opt.optimizer import WeightDecay

LR, DECAY = 4e-3, 0.1
STEPS = 2000
EVERY = 10
SIZES = (3.0, 0.3)


@dataclass(frozen=True)
class Decays:
    """A weight that starts at 1, its gradient swinging between +size and -size, so that only the decay pulls."""

    steps: list[int]
    coupled: dict[float, list[float]]
    decoupled: dict[float, list[float]]


@cache
def decays() -> Decays:
    """Train with both kinds of decay."""
    steps = list(range(0, STEPS + 1, EVERY))
    found = []
    for decouple in (False, True):
        param = torch.nn.Parameter(torch.ones(len(SIZES), dtype=torch.float64))
        optimizer = Adam([param], lr=LR, weight_decay=WeightDecay(DECAY, weight_decouple=decouple))
        swing = torch.tensor(SIZES, dtype=torch.float64)
        seen = [param.detach().tolist()]
        for t in range(1, STEPS + 1):
            param.grad = swing if t % 2 else -swing
            optimizer.step()
            if t % EVERY == 0:
                seen.append(param.detach().tolist())
        found.append({size: [row[k] for row in seen] for k, size in enumerate(SIZES)})
    return Decays(steps, *found)


def optimizer(words: Words) -> Drawing:
    """Draw two weights under each kind of decay."""
    data = decays()
    large, small = SIZES
    title = words(
        "Two weights over {steps} steps, one with gradients of size {large}, one of {small}. Decay through the "
        "gradient leaves {a} of the first and {b} of the second; decoupled decay leaves {c} of both.",
        steps=f"{STEPS:,}",
        large=f"{large:g}",
        small=f"{small:g}",
        a=f"{data.coupled[large][-1]:.2f}",
        b=f"{data.coupled[small][-1]:.2f}",
        c=f"{data.decoupled[large][-1]:.2f}",
    )
    drawing = Drawing("optimizer", 640, 320, title)
    plot = Plot(drawing, (38, 50, 632, 258), linear(0, STEPS), linear(0, 1))
    drawing.text(0, 16, words("what is left of a weight, λ = {decay}, α = {lr}", decay=DECAY, lr=LR))
    plot.levels([(0, "0"), (0.5, "0.5"), (1, "1")], rule=False)
    plot.axis([(float(x), f"{x:,}") for x in range(0, STEPS + 1, 500)], title=words("step"))
    for size in SIZES:
        drawing.curve(plot.points(data.steps, data.coupled[size]), "ink", 2, "5 4")
    for size in SIZES:
        drawing.curve(plot.points(data.steps, data.decoupled[size]), "kept", 2.5)
    # Phones show the left half of a head figure, so the names stand there.
    drawing.text(
        plot.x(40), plot.y(1) - 8, words("through the gradient, gradients of ±{size}", size=f"{large:g}"), "ink"
    )
    drawing.text(plot.x(430), plot.y(0.62), words("decoupled, both weights"), "kept")
    drawing.text(plot.x(40), plot.y(0.2), words("through the gradient, gradients of ±{size}", size=f"{small:g}"), "ink")
    return drawing


def small_optimizer(words: Words) -> Drawing:
    """Draw the ornament of the front page's list."""
    data = decays()
    drawing = Drawing("small_optimizer", 176, 44)
    plot = Plot(drawing, (1, 6, 175, 37), linear(0, STEPS), linear(0, 1))
    plot.axis([])
    for size in SIZES:
        drawing.curve(plot.points(data.steps, data.coupled[size]), "ink", 1.5, "3 3")
    drawing.curve(plot.points(data.steps, data.decoupled[SIZES[0]]), "kept", 1.5)
    return drawing
