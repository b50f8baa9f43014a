"""How much of Adam's step RAdam takes, from the function that it asks itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from labml_opt._figures.svg import Drawing, Plot, linear
from labml_opt._figures.words import Words
from labml_opt.radam import rectification

BETAS = (0.99, 0.999, 0.9999)
LAST = 4000
SMALL_BETA, SMALL_LAST = 0.9, 40


@dataclass(frozen=True)
class Shares:
    """The share of Adam's step at each step, and the first step that has one."""

    shares: list[float]
    first: int


@cache
def shares(beta2: float, last: int) -> Shares:
    """Ask for the share of the steps 1, 2, 3, ..."""
    values = [rectification(beta2, t) for t in range(1, last + 1)]
    return Shares(values, next(t for t, value in enumerate(values, 1) if value))


def radam(words: Words) -> Drawing:
    """Draw the share of each step, for three memories."""
    curves = {beta2: shares(beta2, LAST) for beta2 in BETAS}
    halves = [next((t for t, r in enumerate(curve.shares, 1) if r >= 0.5), LAST) for curve in curves.values()]
    first = curves[BETAS[0]].first
    title = words(
        "The share of Adam's step that is taken, over {steps} steps. All three curves begin at step {first}. Half of "
        "the step is reached after {short} steps with a decay of {a} and after {long} with {b}; with {c} it takes more "
        "than the {steps}.",
        steps=f"{LAST:,}",
        first=first,
        a=str(BETAS[0]),
        short=halves[0],
        b=str(BETAS[1]),
        long=halves[1],
        c=str(BETAS[2]),
    )
    drawing = Drawing("radam", 640, 330, title)
    plot = Plot(drawing, (38, 44, 632, 268), linear(0, LAST), linear(0, 1))
    drawing.text(0, 16, words("share *r* of Adam's step"))
    plot.levels([(1, "1"), (0.5, "0.5"), (0, "0")])
    plot.axis([(float(t), f"{t:,}") for t in range(0, LAST + 1, 1000)], title=words("step"))
    # Each curve has its name on its right, below itself, where the next one leaves room.
    places = ((140, 0.68), (620, 0.36), (1280, 0.075))
    for (beta2, curve), (at, level) in zip(curves.items(), places, strict=True):
        main = beta2 == BETAS[1]
        drawing.curve(plot.points(range(1, LAST + 1), curve.shares), "kept" if main else "ink", 2)
        drawing.text(plot.x(at) + 8, plot.y(level), f"*β*₂ = {beta2}", "kept" if main else "ink")
    return drawing


def small_radam(words: Words) -> Drawing:
    """Draw the ornament of the front page's list; its memory is short, so that the first steps can be seen."""
    drawing = Drawing("small_radam", 176, 44)
    plot = Plot(drawing, (1, 7, 175, 37), linear(0, SMALL_LAST), linear(0, 1))
    plot.axis([])
    drawing.curve([(1, 7), (175, 7)], "ink", 1.5, "3 3")
    data = shares(SMALL_BETA, SMALL_LAST)
    steps = range(data.first, SMALL_LAST + 1)
    for x, y in plot.points(range(1, data.first), data.shares[: data.first - 1]):
        drawing.dot(x, y, 2, "ink")
    drawing.curve(plot.points(steps, data.shares[data.first - 1 :]), "kept", 1.5)
    return drawing
