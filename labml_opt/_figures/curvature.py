"""How far Sophia steps, against the curvature."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

from labml_opt._figures.svg import Drawing, Ink, Plot, linear, logarithmic, plain
from labml_opt._figures.words import Words
from labml_opt.sophia import Sophia

LR = 1e-3
LOW, HIGH = 1e-3, 1e3
POINTS = 601
GRADIENTS = (0.001, 0.1)


@dataclass(frozen=True)
class Steps:
    """The length of one step for each curvature, in learning rates, and the curvature at which clipping ends."""

    curvatures: list[float]
    lengths: list[float]
    bend: float


@cache
def steps(gradient: float) -> Steps:
    """Let Sophia look at curvatures of every size, and take a step with the same gradient everywhere."""
    curvatures = torch.logspace(-3, 3, POINTS, dtype=torch.float64)
    param = torch.nn.Parameter(torch.zeros(POINTS, dtype=torch.float64))
    optimizer = Sophia([param], lr=LR, betas=(0.0, 0.0))
    param.grad = curvatures.sqrt()
    optimizer.update_hessian(1)
    param.grad = torch.full_like(param, gradient)
    optimizer.step()
    bend = gradient / optimizer.param_groups[0]["rho"]
    return Steps(curvatures.tolist(), (-param.detach() / LR).tolist(), bend)


def sophia(words: Words) -> Drawing:
    """Draw the length of a step for two gradients."""
    small, large = (steps(gradient) for gradient in GRADIENTS)
    numbers = {
        "small": plain(GRADIENTS[0]),
        "large": plain(GRADIENTS[1]),
        "a": plain(small.bend),
        "b": plain(large.bend),
    }
    title = words(
        "The length of Sophia's step against the curvature. With a mean gradient of {small} it is one learning rate up "
        "to a curvature of {a} and falls from there on; with a gradient of {large} it is one learning rate up to {b}.",
        **numbers,
    )
    drawing = Drawing("sophia", 640, 310, title)
    plot = Plot(drawing, (38, 62, 632, 248), logarithmic(LOW, HIGH), linear(0, 1))
    drawing.text(0, 16, words("length of the step, in learning rates"))
    plot.levels([(1, "1"), (0.5, "0.5"), (0, "0")])
    plot.axis([(10.0**e, plain(10.0**e)) for e in range(-3, 4)], title=words("curvature *h*"))
    drawing.text(plot.left + 4, plot.y(1) - 10, words("clipped: the sign of *m*"), "kept")
    inks: tuple[Ink, Ink] = ("ink", "kept")
    for data, ink in zip((small, large), inks, strict=True):
        drawing.curve(plot.points(data.curvatures, data.lengths), ink, 2)
        drawing.dot(plot.x(data.bend), plot.y(1), 4, ink)
    # Phones show the left half of a head figure, so both names stand there, each on the left of its curve.
    drawing.text(plot.x(0.006), plot.y(0.72), words("*m* = {small}", **numbers), "ink")
    drawing.text(plot.x(0.08), plot.y(0.86), words("*m* = {large}", **numbers), "kept")
    return drawing


def small_sophia(words: Words) -> Drawing:
    """Draw the ornament of the front page's list."""
    drawing = Drawing("small_sophia", 176, 44)
    plot = Plot(drawing, (1, 6, 175, 37), logarithmic(LOW, HIGH), linear(0, 1))
    plot.axis([])
    inks: tuple[Ink, Ink] = ("ink", "kept")
    for gradient, ink in zip(GRADIENTS, inks, strict=True):
        data = steps(gradient)
        drawing.curve(plot.points(data.curvatures, data.lengths), ink, 1.5)
    return drawing
